"""Jobs that leave Redis before they start, and so run at most once; soft limits that raise an error of their own."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from sidekiq_py.errors import SoftTimeLimitError
from sidekiq_py.outcome import Attempt, Outcome
from tests.engine.test_beside_the_job import Worker, in_flight
from tests.support.ledger import job_text, push_jobs
from tests.support.waiting import eventually


@pytest.fixture
def worker(redis_url: str) -> Iterator[Worker]:
    """Not started yet."""
    one = Worker(redis_url)
    yield one
    one.stop()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_job_that_runs_at_most_once_is_nowhere_while_it_runs(
    redis_client: redis.Redis, worker: Worker, is_async: bool
) -> None:
    """What kills its process then, kills the job."""
    seen: list[int] = []

    def look(_: int) -> None:
        seen.append(in_flight(redis_client) + redis_client.llen("queue:default"))

    async def look_async(_: int) -> None:
        look(_)

    function: Callable[..., Any] = look_async if is_async else look
    worker.declare("look", function, is_async=is_async).is_acknowledged_early = True
    worker.start()
    push_jobs(redis_client, [job_text(1, "look")])

    eventually(lambda: redis_client.get("stat:processed") == b"1")
    assert seen == [0]


def test_what_its_end_wants_is_written_all_the_same(redis_client: redis.Redis, worker: Worker) -> None:
    """A result does not depend on the job being in flight."""

    def conclude(attempt: Attempt) -> Outcome | None:
        return Outcome("done", attempt.payload, vital=(("SET", "result", str(attempt.result)),))

    definition = worker.declare("answer", lambda _: 42)
    definition.is_acknowledged_early = True
    definition.conclude = conclude
    worker.start()
    push_jobs(redis_client, [job_text(1, "answer")])

    eventually(lambda: redis_client.get("result") == b"42")
    eventually(lambda: redis_client.get("stat:processed") == b"1")


def test_its_failure_is_kept_like_any_other(redis_client: redis.Redis, worker: Worker) -> None:
    """At most once is about deaths of processes, not about errors."""

    def fail(_: int) -> None:
        raise ValueError("boom")

    worker.declare("fail", fail).is_acknowledged_early = True
    worker.start()
    push_jobs(redis_client, [job_text(1, "fail")])

    eventually(lambda: redis_client.zcard("retry") == 1)


def test_a_soft_limit_raises_what_its_job_declares(redis_client: redis.Redis, worker: Worker) -> None:
    """A library on top has an error of its own that programs catch."""

    class Late(SoftTimeLimitError):
        pass

    caught: list[type[BaseException]] = []

    def wait(_: int) -> None:
        try:
            while True:
                time.sleep(0.01)
        except SoftTimeLimitError as error:
            caught.append(type(error))

    definition = worker.declare("wait", wait)
    definition.timeout_seconds = 0.05
    definition.timeout_error = Late
    worker.start()
    push_jobs(redis_client, [job_text(1, "wait")])

    eventually(lambda: caught == [Late])
