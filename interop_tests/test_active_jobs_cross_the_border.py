"""Active Job both ways: what Rails enqueues Python runs, what Python enqueues Rails runs, arguments and all."""

from datetime import UTC, date, datetime
from typing import cast

import pytest
import redis

from interop_tests.conftest import PYTHON_JOBS, RunRuby, StartPython, StartRuby
from interop_tests.support.recordings import recordings
from sidekiq_py.active_job import Duration, GlobalID, Keywords, Symbol, perform_later, symbolize
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("python_client")

ECHO = "fixture:echo"
PREFIX = "active_job_argument_"
ARGUMENTS = {
    recorded.situation.removeprefix(PREFIX): recorded.input["ruby"].removeprefix("EchoJob.perform_later(")[:-1]
    for recorded in recordings()
    if recorded.situation.startswith(PREFIX) and "refused" not in recorded.input
}


def test_arguments_of_every_type_come_back_from_python_as_they_went(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Ruby enqueues for Python, Python enqueues the same values for Ruby, and Ruby sees no difference."""
    start_ruby(active_job=True, concurrency=1)
    calls = "\n".join(
        f"[EchoJob, PythonActiveJob].each {{ |job| job.perform_later({text}) }}" for text in ARGUMENTS.values()
    )
    ruby(calls, active_job=True)
    straight = eventually(lambda: echoes(redis_client, len(ARGUMENTS)))
    redis_client.delete(ECHO)

    start_python("-q", "python", "-c", "1", require=[PYTHON_JOBS, "interop_tests.support.python_active_jobs"])
    round_about = eventually(lambda: echoes(redis_client, len(ARGUMENTS)), within_seconds=10)

    assert dict(zip(ARGUMENTS, round_about, strict=True)) == dict(zip(ARGUMENTS, straight, strict=True))


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ([1, 2.5, "é", None, True, [1]], '1, 2.5, "é", nil, true, [1]'),
        ([Symbol("a_symbol")], ":a_symbol"),
        ([{"a": 1}], '{"a"=>1}'),
        ([[symbolize({"a": 1})]], "[{:a=>1}]"),
        ([1, Keywords(name="value")], '1, name: "value"'),
        ([date(2024, 2, 29)], "Thu, 29 Feb 2024"),
        ([datetime(2024, 2, 29, 13, 5, 9, 500_000, tzinfo=UTC)], "2024-02-29 13:05:09.5 UTC"),
        ([GlobalID("gid://fixtures/FixtureRecord/42")], "#<FixtureRecord 42>"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_ruby_performs_what_python_enqueued_for_active_job(
    arguments: list[object], shown: str, redis_client: redis.Redis, start_ruby: StartRuby
) -> None:
    """`perform_later` with natural Python values; Ruby's `inspect` shows what arrived."""
    start_ruby(active_job=True)

    perform_later("EchoJob", *arguments)

    assert eventually(lambda: echoes(redis_client, 1)) == [shown]


def test_ruby_performs_an_active_job_that_python_delayed(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby
) -> None:
    """`wait` puts it into `schedule`; a Duration arrives as one."""
    start_ruby(active_job=True)

    perform_later("EchoJob", Duration(days=2), wait=0.3)

    assert eventually(lambda: echoes(redis_client, 1)) == ["2 days"]


def test_an_active_job_that_python_does_not_have_waits_in_the_retry_set(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """As a missing class does: it is not lost."""
    start_python("-q", "python", require=[PYTHON_JOBS, "interop_tests.support.python_active_jobs"])

    ruby('EchoJob.set(queue: "python").perform_later(1)', active_job=True)

    eventually(lambda: redis_client.zcard("retry") == 1)


def echoes(client: redis.Redis, count: int) -> list[str] | None:
    """What the echo jobs wrote, in order; None while there are fewer than *count*."""
    written = [line.decode() for line in cast(list[bytes], client.lrange(ECHO, 0, -1))]
    return written if len(written) >= count else None
