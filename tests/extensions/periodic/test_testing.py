"""Periodic jobs in tests of programs: no Redis, and a moment of one's own."""

from datetime import UTC, datetime, timedelta

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.api import CronJobs
from sidekiq_py.errors import ConfigError, SidekiqError
from sidekiq_py.extensions.periodic import testing
from sidekiq_py.testing import fake

NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)


def test_ticks_are_asked_for_without_redis() -> None:
    """In the job's own zone."""
    sidekiq.periodic("0 3 * * *", sidekiq.ruby_job("R"), name="nightly", tz="Europe/Berlin")

    first, second = testing.declared("nightly").next_ticks(2, after=NEW_YEAR)

    assert (first.isoformat(), second - first) == ("2030-01-01T03:00:00+01:00", timedelta(days=1))


def test_a_job_is_run_at_a_moment_of_the_test_s_own() -> None:
    """It lands among the fake jobs, and nothing is sent to Redis."""
    sidekiq.periodic("0 3 * * *", sidekiq.ruby_job("R", queue="low"), name="nightly", args=[1])

    with fake() as jobs:
        jid = testing.declared("nightly").run(at=NEW_YEAR)

        [job] = jobs
        assert (job.jid, job.job_class, job.args, job.queue) == (jid, "R", [1], "low")


def test_what_is_due_in_a_span_comes_in_order() -> None:
    """Of all jobs that the program declares."""
    sidekiq.periodic("0 */6 * * *", sidekiq.ruby_job("R"), name="often")
    sidekiq.periodic("30 7 * * *", sidekiq.ruby_job("R"), name="morning")

    found = testing.due(NEW_YEAR, NEW_YEAR + timedelta(hours=12))

    assert [(f"{at:%H:%M}", name) for at, name in found] == [
        ("06:00", "often"),
        ("07:30", "morning"),
        ("12:00", "often"),
    ]


def test_a_time_without_a_zone_is_refused() -> None:
    """Otherwise the result would depend on the zone of the machine that runs the test."""
    sidekiq.periodic("0 3 * * *", sidekiq.ruby_job("R"), name="nightly")
    naive = NEW_YEAR.replace(tzinfo=None)

    for use in (
        lambda: testing.due(naive, NEW_YEAR),
        lambda: testing.declared("nightly").next_ticks(after=naive),
        lambda: testing.declared("nightly").run(at=naive),
        lambda: CronJobs().add("* * * * *", "R", name="n").next_ticks(after=naive),
    ):
        with pytest.raises(SidekiqError, match="has no time zone"):
            use()


def test_a_name_that_is_not_declared_says_which_are() -> None:
    """A misspelled one."""
    sidekiq.periodic("0 3 * * *", sidekiq.ruby_job("R"), name="nightly")

    with pytest.raises(ConfigError, match="it declares: nightly"):
        testing.declared("nighly")
