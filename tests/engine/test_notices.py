"""What a worker hears along with its jobs."""

import pytest

from sidekiq_py.engine.notices import Notices
from sidekiq_py.errors import RedisConnectionError


def test_ids_are_remembered() -> None:
    """As hints: some thousands of them."""
    notices = Notices()

    notices.note([b"", b"a", b"b"])
    notices.note([b"", *(str(number).encode() for number in range(20_000))])

    assert not notices.may_be_revoked("a")
    assert notices.may_be_revoked("19999")


def test_a_change_is_followed_once() -> None:
    """Fetch after fetch tells the same number."""
    calls: list[int] = []
    notices = Notices(lambda: calls.append(1))

    for number in (b"", b"1", b"1", b"2", b"2"):
        notices.note([number])

    assert len(calls) == 2


def test_a_change_that_could_not_be_read_is_asked_for_again() -> None:
    """With the next jobs."""
    calls: list[int] = []

    def read() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise RedisConnectionError("away")

    notices = Notices(read)
    for _ in range(3):
        notices.note([b"1"])

    assert len(calls) == 2


def test_notices_that_cannot_be_applied_cost_no_jobs(caplog: pytest.LogCaptureFixture) -> None:
    """They come along with jobs that have left their queue; the log tells of it once for each change."""
    calls: list[int] = []

    def read() -> None:
        calls.append(1)
        raise TypeError("no such order")

    notices = Notices(read)
    for number in (b"1", b"1", b"2"):
        notices.note([number, b"a"])

    assert len(calls) == 2
    assert notices.may_be_revoked("a")
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
