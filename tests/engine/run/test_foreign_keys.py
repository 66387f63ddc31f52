"""A key of a foreign type stops nothing but what needs that very key."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from sidekiq_py.client.sync_client import Client
from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.hooks import Hooks
from sidekiq_py.middleware.chain import Chain, ServerMiddleware
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.registry import FunctionDefinition, Registry
from sidekiq_py.wire import keys
from tests.support.in_flight import jobs_in_flight
from tests.support.ledger import job_text
from tests.support.waiting import eventually


class Worker:
    """One thread, the queues `a` and `x`, and what it was told."""

    def __init__(self, url: str) -> None:
        self.ran: list[int] = []
        self.reported: list[str] = []
        registry = Registry()
        for name, function in {"run": self.ran.append, "fail": self._fail}.items():
            registry.add(FunctionDefinition(name, {}, function, function))
        hooks = Hooks()
        hooks.on_error(lambda error, context: self.reported.append(f"{context['context']}: {error}"))
        capsule = CapsuleConfig(concurrency=1, queues=(QueueConfig.parse("a"), QueueConfig.parse("x")))
        config = Config(
            redis=RedisSettings(url), sidekiq_version="6.4.1", capsules=(capsule,), job_log=False, embedded=True
        )
        self._client = Client(url, sidekiq_version="6.4.1")
        chain: Chain[ServerMiddleware] = Chain()
        self.launcher = Launcher(
            WorkerParts(config, registry=registry, hooks=hooks, server_middleware=chain, client=self._client)
        )

    def stop(self) -> None:
        """End it."""
        self.launcher.stop(timeout_seconds=1)
        self._client.close()

    @staticmethod
    def _fail(*arguments: Any) -> None:
        raise ValueError("boom")


@pytest.fixture
def start(redis_url: str) -> Iterator[Callable[[], Worker]]:
    """Starts workers."""
    started: list[Worker] = []

    def begin() -> Worker:
        started.append(Worker(redis_url))
        started[-1].launcher.start()
        return started[-1]

    yield begin
    for worker in started:
        worker.stop()


def wait_for_runs(worker: Worker, count: int) -> None:
    """Until so many jobs have run."""
    eventually(lambda: len(worker.ran) == count)


def in_flight(client: redis.Redis) -> int:
    """How many jobs are."""
    return len(jobs_in_flight(client))


def test_a_queue_that_is_no_list_keeps_no_other_from_being_served(
    start: Callable[[], Worker], redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """It is left alone as if it were paused, told of once, and served once its key is repaired."""
    redis_client.set("queue:x", "foreign")
    with caplog.at_level(logging.ERROR, "sidekiq"):
        worker = start()
        for number in range(3):
            redis_client.lpush("queue:a", job_text(number, "run"))
            wait_for_runs(worker, number + 1)

    assert [record.message for record in caplog.records if "queue:x" in record.message] == [
        "queue:x is not a list: something else wrote to this key. The queue is skipped; rename or delete the key"
    ]
    assert worker.reported == []
    redis_client.delete("queue:x")
    redis_client.lpush("queue:x", job_text(9, "run"))
    eventually(lambda: 9 in worker.ran)


def test_a_queue_that_redis_refuses_to_read_is_not_taken_for_a_foreign_key(
    start: Callable[[], Worker], redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever followed the advice to delete the key would lose its jobs."""
    redis_client.execute_command("ACL", "SETUSER", "default", "-llen")
    try:
        worker = start()
        redis_client.lpush("queue:a", job_text(1, "run"))
        eventually(lambda: any("Redis refuses commands that a worker needs" in text for text in worker.reported))
    finally:
        redis_client.execute_command("ACL", "SETUSER", "default", "+llen")

    wait_for_runs(worker, 1)
    assert "is not a list" not in caplog.text


def test_jobs_that_fail_hold_no_thread_while_the_retry_set_is_none(
    start: Callable[[], Worker], redis_client: redis.Redis
) -> None:
    """They stay in flight and this worker's, and are settled once it is repaired."""
    worker = start()
    redis_client.set("retry", "foreign")
    redis_client.lpush("queue:a", job_text(1, "fail"), job_text(2, "fail"), job_text(3, "run"))

    eventually(lambda: worker.ran == [3])

    eventually(lambda: in_flight(redis_client) == 2)
    assert redis_client.get("stat:failed") is None
    redis_client.delete("retry")
    eventually(lambda: redis_client.zcard("retry") == 2)
    eventually(lambda: in_flight(redis_client) == 0)
    assert redis_client.get("stat:failed") == b"2"


def test_jobs_whose_end_is_refused_go_back_when_the_worker_stops(
    start: Callable[[], Worker], redis_client: redis.Redis
) -> None:
    """Somebody else may run them again; they are not lost."""
    worker = start()
    redis_client.set("retry", "foreign")
    failing = job_text(1, "fail")
    redis_client.lpush("queue:a", failing, job_text(2, "run"))
    eventually(lambda: worker.ran == [2])

    worker.stop()

    assert redis_client.lrange("queue:a", 0, -1) == [failing.encode()]
    eventually(lambda: in_flight(redis_client) == 0)


def refused(client: redis.Redis) -> int:
    """How many commands found a key of a wrong type."""
    found = client.info("errorstats")["errorstat_WRONGTYPE"]
    # redis-py 5.0 does not take these fields apart.
    return int(found["count"] if isinstance(found, dict) else found.removeprefix("count="))


def test_what_redis_refuses_all_the_time_is_told_once(
    start: Callable[[], Worker], redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Other calls go through meanwhile; they do not say that Redis is back."""
    redis_client.set("sidekiq_py:revoked", "foreign")
    with caplog.at_level(logging.INFO, "sidekiq"):
        worker = start()
        refusals = refused(redis_client)
        eventually(lambda: refused(redis_client) > refusals + 4)

    assert [line for line in worker.reported if "Redis" in line and "WRONGTYPE" in line] == worker.reported
    assert len(worker.reported) == 1
    assert "online" not in caplog.text
    redis_client.delete("sidekiq_py:revoked")
    with caplog.at_level(logging.INFO, "sidekiq"):
        eventually(lambda: "Redis is online" in caplog.text)


def test_an_overwritten_inbox_is_told_once_and_keeps_no_job(
    start: Callable[[], Worker], redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs that arrive from other queues do not say that Redis is back; those of its queue come by another command."""
    with caplog.at_level(logging.INFO, "sidekiq"):
        worker = start()
        eventually(lambda: redis_client.hlen(keys.OWNERS) == 1)
        [owner] = redis_client.hkeys(keys.OWNERS)
        inbox = keys.inbox(owner.decode(), "x")
        redis_client.set(inbox, "foreign")
        redis_client.lpush("queue:x", job_text(9, "run"))
        eventually(lambda: len(worker.reported) > 0)
        for number in range(3):
            redis_client.lpush("queue:a", job_text(number, "run"))
            eventually(lambda number=number: number in worker.ran)
        eventually(lambda: 9 in worker.ran)

    assert [line for line in worker.reported if "Redis refuses commands" in line] == worker.reported
    assert len(worker.reported) == 1
    assert "online" not in caplog.text
