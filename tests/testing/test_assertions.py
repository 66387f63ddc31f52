"""assert_enqueued and refute_enqueued: what they accept, and their messages."""

from datetime import UTC, datetime, timedelta
from unittest.mock import ANY

import pytest

from sidekiq_py import testing
from sidekiq_py.testing import fake


def complaint(enqueued, *args, **expected):
    """The message of a failed assertion."""
    with pytest.raises(AssertionError) as failure:
        enqueued.assert_enqueued(*args, **expected)
    return str(failure.value)


def test_a_job_that_waits_is_returned(jobs):
    """By any of its properties, or by none."""
    with fake() as enqueued:
        jid = jobs.plain.perform_async("bob", 5)

        assert testing.assert_enqueued(jobs.plain, args=["bob", 5], queue="low", at=None, count=1).jid == jid
        assert enqueued.assert_enqueued("Plain", args=("bob", ANY)).jid == jid
        assert enqueued.assert_enqueued(args=["bob", pytest.approx(5.0)]).jid == jid
        assert enqueued.assert_enqueued().jid == jid
        assert enqueued.assert_enqueued(jobs.plain.set(wait=5)).jid == jid


@pytest.mark.parametrize(
    "at",
    [300, timedelta(minutes=5), lambda: datetime.now(UTC) + timedelta(minutes=5), True],
    ids=["seconds", "timedelta", "datetime", "any time"],
)
def test_when_a_job_is_due_may_be_said_in_many_ways(jobs, at):
    """The tolerance allows for the time between the push and the assertion."""
    with fake() as enqueued:
        jobs.plain.perform_in(300)

    enqueued.assert_enqueued(jobs.plain, at=at() if callable(at) else at, tolerance_seconds=60)
    enqueued.refute_enqueued(jobs.plain, at=None)
    enqueued.refute_enqueued(jobs.plain, at=4_000_000_000)


def test_the_message_shows_what_comes_near_and_how_it_differs(jobs):
    """Jobs of the same class are listed with their differences, other classes by name."""
    with fake() as enqueued:
        jobs.plain.perform_async("bob", 6)
        jobs.plain.set(queue="high").perform_async("bob", 5)
        jobs.plain.perform_at(4_000_000_000, "bob", 5)
        jobs.worker.perform_async()

    assert complaint(enqueued, jobs.plain, args=["bob", 5], queue="low", at=None) == (
        "no Plain with args ['bob', 5] on queue 'low' for now is enqueued.\n"
        "Of this class:\n"
        "  Plain('bob', 6) on queue 'low'  <- args differ\n"
        "  Plain('bob', 5) on queue 'high'  <- queue differ\n"
        "  Plain('bob', 5) on queue 'low', due 2096-10-02 07:06:40.000+00:00  <- at differ\n"
        "Of other classes (1): Worker"
    )


def test_the_message_for_a_wrong_number(jobs):
    """It lists the jobs that match."""
    with fake() as enqueued:
        jobs.plain.perform_async(1)

    assert complaint(enqueued, jobs.plain, count=2) == (
        "1 Plain is enqueued, expected 2.\nOf this class:\n  Plain(1) on queue 'low'"
    )


def test_the_message_when_nothing_is_enqueued():
    """There is nothing to list."""
    with fake() as enqueued:
        pass

    assert complaint(enqueued, "Mailer", at=True) == "no Mailer for later is enqueued.\nNo job is enqueued at all."
    assert complaint(enqueued) == "no job is enqueued.\nNo job is enqueued at all."


def test_refute_shows_the_job_that_should_not_be_there(jobs):
    """Each is shown on one line."""
    with fake() as enqueued:
        jobs.plain.perform_async(1)
        enqueued.refute_enqueued(jobs.plain, args=[2])

        with pytest.raises(AssertionError) as failure:
            testing.refute_enqueued(jobs.plain)

    assert str(failure.value) == "no Plain should be enqueued, but found 1:\n  Plain(1) on queue 'low'"


def test_what_is_no_job_or_no_moment_is_a_type_error(jobs):
    """A mistake in the test is not a failed assertion, and not a passed one."""
    with fake() as enqueued:
        with pytest.raises(TypeError, match="is not a job"):
            enqueued.refute_enqueued(print)
        jobs.plain.perform_in(5)

        with pytest.raises(TypeError, match="is not a job"):
            enqueued.assert_enqueued(print)
        with pytest.raises(TypeError, match="aware datetime"):
            enqueued.assert_enqueued(jobs.plain, at="soon")


@pytest.mark.parametrize("at", ["soon", datetime(2030, 1, 1), False])
def test_a_time_that_no_job_can_have_is_refused_even_if_none_is_enqueued(at):
    """`refute_enqueued` would pass with any text, and a naive datetime would be taken for this machine's time."""
    with testing.fake() as enqueued, pytest.raises(TypeError, match="give an aware datetime, epoch seconds"):
        enqueued.refute_enqueued(at=at)


@pytest.mark.parametrize("args", ["bob", 1, 1.5, None, {"to": "bob"}])
def test_args_that_are_no_list_are_refused(args):
    """No job has such arguments, so `refute_enqueued` would pass with any."""
    with testing.fake() as enqueued, pytest.raises(TypeError, match=r"give a list of all arguments, as in args=\["):
        enqueued.refute_enqueued("Mail", args=args)
