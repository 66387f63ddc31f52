"""Workers to kill, a ledger to check them by, and a line about each test's books in the report."""

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tests.support.cutting_proxy import CuttingProxy
from tests.support.in_flight import jobs_in_flight
from tests.support.ledger import Balance, Ledger, balance, number_of, stock
from tests.support.process_states import children_of, has_ended, state_of
from tests.support.redis_server import RedisServer
from tests.support.report import pytest_terminal_summary, report
from tests.support.sentinel import Sentinel
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY, SidekiqProcess

__all__ = ["pytest_terminal_summary", "report"]

pytestmark = pytest.mark.kill


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder bears the marker."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.kill)


class KillWorker(SidekiqProcess):
    """
    One run of `tests.support.kill_worker`.

    Args:
        redis_url: Where the test looks.
        settings: As of `kill_worker.Settings`; its own `redis_url` may lead through a proxy.
    """

    def __init__(self, redis_url: str, settings: dict[str, Any]) -> None:
        self.settings = settings
        super().__init__(
            [sys.executable, "-m", "tests.support.kill_worker", json.dumps(settings)],
            redis_url=redis_url,
            environment={"PYTHONPATH": str(REPOSITORY)},
        )


def end(worker: KillWorker) -> None:
    """
    At the end of a test nobody waits for jobs.

    Frozen first, a parent replaces no child that is killed. A child that outlived it, if only by its open move, took a
    job of the next test into an inbox of an owner that was in no registry any more: that test waited for it in vain.
    """
    if worker.is_running:
        worker.freeze()
        eventually(lambda: state_of(worker.pid) in "TZ")
        family = children_of(worker.pid)
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.kill()
        eventually(lambda: all(has_ended(pid) for pid in family))


@dataclass
class Fleet:
    """
    Workers on one Redis, and the books of their jobs.

    Attributes:
        deaths: When each process that was killed was stopped.
        in_flight_at_deaths: How many jobs the killed had in flight, all together.
    """

    redis_url: str
    client: redis.Redis
    ledger: Ledger
    exits: ExitStack
    worker_url: str = ""
    defaults: dict[str, Any] = field(default_factory=dict)
    deaths: dict[int, float] = field(default_factory=dict)
    in_flight_at_deaths: int = 0

    def keep_retries(self) -> None:
        """
        Let what failed stay in `retry`.

        For tests that count runs: a slow machine takes longer than the 15 seconds after which a first retry may be due.
        """
        self.defaults["moves_due_jobs"] = False

    def start(self, *, wait: bool = True, **settings: Any) -> KillWorker:
        """Start a worker."""
        base = {"redis_url": self.worker_url or self.redis_url, "ledger": str(self.ledger.path), **self.defaults}
        worker = KillWorker(self.redis_url, {**base, **settings}).start()
        self.exits.callback(end, worker)
        if wait:
            worker.wait_until_ready()
        return worker

    def kill(self, worker: KillWorker) -> int:
        """
        SIGKILL; how many jobs it had in flight.

        Counted while it is frozen: once it is dead, another worker may already recover some of them.
        """
        # It does nothing from then on, however long the counting takes.
        self.deaths[worker.pid] = time.monotonic()
        worker.freeze()
        count = self.in_flight_of(worker.pid)
        self.in_flight_at_deaths += count
        worker.kill()
        return count

    def owners_of(self, pid: int) -> list[str]:
        """Under which names a process holds jobs, or held some lately."""
        names = {*self.client.hkeys("sidekiq_py:owners"), *self.client.hkeys("sidekiq_py:departed")}
        names |= {key.removeprefix(b"sidekiq_py:inflight:") for key in self.client.keys("sidekiq_py:inflight:*")}
        names |= {
            key.removeprefix(b"sidekiq_py:inbox:").rpartition(b":")[0] for key in self.client.keys("sidekiq_py:inbox:*")
        }
        return sorted(name.decode() for name in names if name.split(b":")[-3] == str(pid).encode())

    def in_flight_of(self, pid: int) -> int:
        """How many jobs a process has in flight."""
        return sum(len(jobs_in_flight(self.client, owner)) for owner in self.owners_of(pid))

    def numbers_in_flight_of(self, pid: int) -> set[int]:
        """The numbers of the jobs that a process has in flight."""
        texts = [jobs_in_flight(self.client, owner) for owner in self.owners_of(pid)]
        return {number_of(text) for text in itertools.chain.from_iterable(texts)}

    @property
    def in_flight(self) -> int:
        """How many jobs all processes have in flight or in an inbox."""
        return sum(len(jobs) for name, jobs in stock(self.client).items() if name.startswith("sidekiq_py:"))

    @property
    def waiting(self) -> int:
        """How many jobs stand in queues."""
        return sum(len(jobs) for name, jobs in stock(self.client).items() if name.startswith("queue:"))

    @property
    def due(self) -> int:
        """How many jobs stand in `retry` and `schedule` though their time has come; none if nobody is to move them."""
        if not self.defaults.get("moves_due_jobs", True):
            return 0
        return sum(int(self.client.zcount(name, "-inf", time.time())) for name in ("retry", "schedule"))

    def wait_until_done(self, within_seconds: float = 60) -> None:
        """Until no job is due, queued or in flight."""
        eventually(lambda: self.is_done, within_seconds, every_seconds=0.05)

    @property
    def is_done(self) -> bool:
        """No job is due, queued or in flight. One look may miss a job that goes from place to place."""
        return not any(self.due or self.waiting or self.in_flight for _ in range(3))

    def books(self, pushed: int) -> Balance:
        """Close them."""
        return balance(self.client, self.ledger, pushed)


@pytest.fixture
def fleet(redis_url: str, redis_client: redis.Redis, tmp_path: Path) -> Iterator[Fleet]:
    """Workers on the shared server."""
    with ExitStack() as exits:
        yield Fleet(redis_url, redis_client, Ledger(tmp_path / "ledger"), exits)


@pytest.fixture
def durable_server(new_redis_server: Callable[..., RedisServer]) -> RedisServer:
    """A server that keeps every write on disk before it answers."""
    return new_redis_server(appendonly=True)


@pytest.fixture
def durable_fleet(durable_server: RedisServer, tmp_path: Path) -> Iterator[Fleet]:
    """Workers on a server that may be restarted."""
    with ExitStack() as exits:
        patience = Retry(ConstantBackoff(0.05), 200)
        client = durable_server.client(retry=patience, retry_on_error=[redis.ConnectionError], socket_timeout=30)
        exits.callback(client.close)
        yield Fleet(durable_server.url, client, Ledger(tmp_path / "ledger"), exits)


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[CuttingProxy]:
    """Before the shared server."""
    with CuttingProxy(redis_server.port) as one:
        yield one


@pytest.fixture
def primary(new_redis_server: Callable[..., RedisServer]) -> RedisServer:
    """The server that takes writes at first."""
    return new_redis_server()


@pytest.fixture
def replica(new_redis_server: Callable[..., RedisServer], primary: RedisServer) -> RedisServer:
    """The one that takes them later."""
    server = new_redis_server(config={"replicaof": f"127.0.0.1 {primary.port}"})
    client = server.client()
    eventually(lambda: client.info("replication")["master_link_status"] == "up")
    client.close()
    return server


@pytest.fixture
def sentinel(primary: RedisServer, replica: RedisServer, tmp_path: Path) -> Iterator[Sentinel]:
    """A sentinel that knows both."""
    with Sentinel(primary, tmp_path) as one:
        one.wait_for_replicas()
        yield one
