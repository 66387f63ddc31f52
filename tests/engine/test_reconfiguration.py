"""A process whose queues and size change while it runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Literal

import pytest
import redis

from sidekiq_py.client.sync_client import Client
from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.engine.run.processor import Processor
from sidekiq_py.hooks import Hooks
from sidekiq_py.middleware.chain import Chain
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.registry import FunctionDefinition, Registry
from sidekiq_py.wire.process_info import ProcessInfo, parse_info
from tests.support.ledger import job_text, push_jobs
from tests.support.waiting import eventually

Start = Callable[..., Launcher]


class Jobs:
    """What ran, and a gate before which jobs of the class `wait` stand."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.waiting: list[int] = []
        self.gate = threading.Event()

    def run(self, number: int) -> None:
        """Ends at once."""
        self.ran.append(number)

    def wait(self, number: int) -> None:
        """Ends when the gate is open."""
        self.waiting.append(number)
        self.gate.wait(60)
        self.ran.append(number)


@pytest.fixture
def jobs() -> Jobs:
    """Of one test."""
    return Jobs()


@pytest.fixture
def start(redis_url: str, jobs: Jobs) -> Iterator[Start]:
    """`start("one", "two", concurrency=2)` starts a worker in this process."""
    with ExitStack() as exits:

        def make(
            *queues: str, concurrency: int = 1, fetcher: Literal["reliable", "basic"] = "reliable", **settings: Any
        ) -> Launcher:
            registry = Registry()
            registry.add(FunctionDefinition("run", {}, jobs.run, jobs.run))
            registry.add(FunctionDefinition("wait", {}, jobs.wait, jobs.wait))
            capsule = CapsuleConfig("default", concurrency, tuple(map(QueueConfig, queues)))
            config = Config(
                redis=RedisSettings(redis_url),
                sidekiq_version="7.3.2",
                capsules=(capsule,),
                fetcher=fetcher,
                job_log=False,
                embedded=True,
                **settings,
            )
            client = Client(redis_url, sidekiq_version="7.3.2")
            launcher = Launcher(
                WorkerParts(config, registry=registry, hooks=Hooks(), server_middleware=Chain(), client=client)
            )
            exits.callback(client.close)
            exits.callback(lambda: launcher.stop(timeout_seconds=5))
            exits.callback(jobs.gate.set)
            launcher.start()
            return launcher

        yield make


def info_of(client: redis.Redis, launcher: Launcher) -> ProcessInfo:
    """What the process says of itself."""
    found = parse_info(client.hget(launcher.identity, "info") or b"{}")
    assert found is not None
    return found


@pytest.mark.parametrize("fetcher", ["reliable", "basic"])
def test_a_worker_serves_other_queues(fetcher: str, start: Start, jobs: Jobs, redis_client: redis.Redis) -> None:
    """With either fetcher; the heartbeat says so."""
    launcher = start("one", fetcher=fetcher)
    push_jobs(redis_client, [job_text(1, "run")], "one")
    eventually(lambda: jobs.ran == [1])

    launcher.reconfiguration.serve([QueueConfig("two")])
    # A blocking pop that is under way brings one more.
    eventually(lambda: info_of(redis_client, launcher).queues == ("two",))
    push_jobs(redis_client, [job_text(2, "run")], "two")

    eventually(lambda: jobs.ran == [1, 2])
    assert launcher.reconfiguration.queues == ["two"]


@pytest.mark.parametrize("fetcher", ["reliable", "basic"])
def test_a_worker_runs_more_jobs_at_once_and_fewer(
    fetcher: str, start: Start, jobs: Jobs, redis_client: redis.Redis
) -> None:
    """What runs is not stopped."""
    launcher = start("one", fetcher=fetcher)
    push_jobs(redis_client, [job_text(number, "wait") for number in range(4)], "one")

    launcher.reconfiguration.resize(3)
    eventually(lambda: len(jobs.waiting) == 3)
    eventually(lambda: info_of(redis_client, launcher).capsules[0].concurrency == 3)
    launcher.reconfiguration.resize(1)
    jobs.gate.set()

    eventually(lambda: sorted(jobs.ran) == [0, 1, 2, 3])
    [manager] = launcher.parts.managers
    eventually(lambda: sum(processor.is_alive for processor in manager.processors) == 1)


def test_a_worker_that_cannot_start_all_the_threads_it_should_have_starts_the_rest_when_it_is_asked_again(
    start: Start, jobs: Jobs, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may limit their number. A worker that is resized with its load is asked every few seconds."""
    launcher = start("one")
    run, may_start = Processor.start, [True]

    def start_one(processor: Processor) -> None:
        if not may_start:
            raise RuntimeError("can't start new thread")
        may_start.pop()
        run(processor)

    with monkeypatch.context() as patch:
        patch.setattr(Processor, "start", start_one)
        with pytest.raises(RuntimeError, match="thread"):
            launcher.reconfiguration.resize(3)
    [manager] = launcher.parts.managers
    assert sum(processor.is_alive for processor in manager.processors) == 2

    launcher.reconfiguration.resize(3)

    push_jobs(redis_client, [job_text(number, "wait") for number in range(4)], "one")
    eventually(lambda: len(jobs.waiting) == 3)
    assert len(manager.processors) == 3


def test_a_worker_that_shrinks_keeps_no_connections_of_threads_that_are_gone(
    start: Start, redis_client: redis.Redis
) -> None:
    """With the basic fetcher each has one: a worker that is resized with its load used up those of the server."""
    launcher = start("one", fetcher="basic")

    def waiting() -> int:
        return sum(client["cmd"] == "brpop" for client in redis_client.client_list(_type="normal"))

    eventually(lambda: waiting() == 1)

    launcher.reconfiguration.resize(4)
    eventually(lambda: waiting() == 4)
    launcher.reconfiguration.resize(1)

    eventually(lambda: waiting() == 1)


def test_a_quiet_worker_is_not_resized(start: Start, redis_client: redis.Redis) -> None:
    """It is on its way out."""
    launcher = start("one")
    launcher.quiet()

    launcher.reconfiguration.resize(3)

    [manager] = launcher.parts.managers
    assert len(manager.processors) == 1


def test_a_worker_tells_what_it_runs_and_what_waits(start: Start, jobs: Jobs, redis_client: redis.Redis) -> None:
    """Neither what stands in a queue that is paused, nor a key that is no list."""
    redis_client.sadd("paused", "held")
    redis_client.set("queue:odd", "text")
    launcher = start("one", "held", "odd")
    push_jobs(redis_client, [job_text(number, "wait") for number in range(3)], "one")
    push_jobs(redis_client, [job_text(4, "run")], "held")
    eventually(lambda: jobs.waiting)

    eventually(lambda: launcher.reconfiguration.load(asks_waiting=True) == [1, 2])
    assert launcher.reconfiguration.load(asks_waiting=False) == [1]


def test_a_queue_that_was_refused_stays_so_until_it_is_asked_for_anew(
    start: Start, jobs: Jobs, redis_client: redis.Redis
) -> None:
    """A job of an extension stood in it."""
    launcher = start("one", "mixed")
    push_jobs(redis_client, [job_text(1, "run", queue="mixed", bid="b-7KyWqDV3Z0Pg")], "mixed")
    eventually(lambda: info_of(redis_client, launcher).queues == ("one",))
    # It goes back when nothing here waits at its queue any more.
    eventually(lambda: redis_client.delete("queue:mixed"))
    push_jobs(redis_client, [job_text(2, "run")], "mixed")

    launcher.reconfiguration.serve([QueueConfig("one"), QueueConfig("mixed"), QueueConfig("two")])
    eventually(lambda: info_of(redis_client, launcher).queues == ("one", "two"))
    launcher.reconfiguration.serve([QueueConfig("one")])
    launcher.reconfiguration.serve([QueueConfig("one"), QueueConfig("mixed")])

    eventually(lambda: jobs.ran == [2])
