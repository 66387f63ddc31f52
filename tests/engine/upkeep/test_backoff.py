"""What cannot be moved for the moment is remembered, but not without bounds."""

from typing import Any

import pytest

from sidekiq_py.engine.upkeep.backoff import LONGEST_PAUSE_SECONDS, MOST_REMEMBERED, Backoffs


def test_a_bounded_number_is_remembered_and_reported() -> None:
    """Those beyond are tried whenever their turn comes."""
    reported: list[dict[str, Any]] = []
    setbacks = Backoffs(lambda error, context: reported.append(context))
    members = [b"%d" % n for n in range(MOST_REMEMBERED + 100)]

    for member in members:
        setbacks.add(member, ValueError("not now"), "stays", 0.0)

    assert len(setbacks) == MOST_REMEMBERED
    assert len(reported) == 1
    assert setbacks.must_wait(members[0], 0.5)
    assert not setbacks.must_wait(members[-1], 0.5)


def test_one_error_of_a_kind_is_reported_at_a_time_and_the_others_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Five thousand tracebacks of one middleware would hide all else; a job that fails again says nothing more."""
    reported: list[BaseException] = []
    backoffs = Backoffs(lambda error, context: reported.append(error))

    for at in (0.0, 100.0):
        for number in range(5000):
            backoffs.add(b"%d" % number, ValueError(number), "stays", at)
        backoffs.add(b"other", KeyError("other"), "stays", at)
        backoffs.end_pass(at)
    backoffs.add(b"new", ValueError("new"), "stays", 100.0)

    assert [str(error) for error in reported] == ["0", "'other'", "new"]
    assert [line.getMessage() for line in caplog.records] == ["stays: the same for 4,999 more jobs: ValueError"]


def test_jobs_that_come_due_one_by_one_are_reported_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A middleware's database is down, and each job wrote a traceback: 6,500 lines a minute for 20 jobs a second."""
    reported: list[BaseException] = []
    backoffs = Backoffs(lambda error, context: reported.append(error))

    for second in range(150):
        backoffs.add(b"%d" % second, ValueError(second), "stays", float(second))
        backoffs.end_pass(float(second))

    assert [str(error) for error in reported] == ["0", "60", "120"]
    assert [line.getMessage() for line in caplog.records] == [
        "stays: the same for 1 more job: ValueError",
        "stays: the same for 59 more jobs: ValueError",
        "stays: the same for 59 more jobs: ValueError",
    ]


def test_one_that_has_not_failed_again_for_long_makes_room() -> None:
    """Somebody else has taken it out of its set; one that fails again and again stays remembered."""
    setbacks = Backoffs(lambda error, context: None)
    setbacks.add(b"gone", ValueError("not now"), "stays", 0.0)
    setbacks.add(b"stays", ValueError("not now"), "stays", 0.0)
    for minute in range(1, 12):
        setbacks.add(b"stays", ValueError("not now"), "stays", minute * LONGEST_PAUSE_SECONDS)

    setbacks.add(b"new", ValueError("not now"), "stays", 12 * LONGEST_PAUSE_SECONDS)

    assert len(setbacks) == 2
    assert setbacks.must_wait(b"stays", 12 * LONGEST_PAUSE_SECONDS - 1)
