"""A program of its own with jobs that do what they are told, callbacks that write down their calls, and a worker."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.client import sync_client
from tests.support.declared_jobs import no_jobs_declared
from tests.support.queued_jobs import queued_jobs
from tests.support.waiting import eventually


@dataclass
class Program:
    """
    What a user would write.

    Attributes:
        calls: Of callbacks: event, batch's id, options.
        runs: What jobs have noted.
        deeds: What `deed` does besides, by name.
    """

    client: redis.Redis
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    runs: list[Any] = field(default_factory=list)
    deeds: dict[str, Callable[[], Any]] = field(default_factory=dict)
    deed: Any = None
    once: Any = None
    callback: Any = None
    worker: Any = None

    def events(self, bid: str) -> list[str]:
        """
        Of the callbacks of one batch, sorted: two that are enqueued together may start in either order, as the worker
        has two threads.
        """
        return sorted(event for event, of, _ in self.calls if of == bid)

    def wait_until_idle(self) -> None:
        """No job is queued or in flight."""

        def is_idle() -> bool:
            for _ in range(3):
                if any(self.client.llen(key) for key in self.client.keys("queue:*")):
                    return False
                if any(self.client.keys(f"sidekiq_py:{kind}:*") for kind in ("inflight", "inbox")):
                    return False
            return True

        eventually(is_idle)

    def waiting(self, queue: str = "default") -> list[dict[str, Any]]:
        """Payloads in a queue, the next to run first."""
        return queued_jobs(self.client, queue)


@pytest.fixture
def app(redis_url: str, redis_client: redis.Redis) -> Iterator[Program]:
    """The program, on the emptied server; no worker runs yet."""
    program.reset()
    program.configure(redis_url=redis_url, sidekiq_version="7")
    with no_jobs_declared():
        one = Program(redis_client)

        @sidekiq.job(name="Deed", retry=3)
        def deed(name: str, *rest: Any) -> Any:
            one.runs.append((name, *rest))
            return one.deeds[name]() if name in one.deeds else None

        @sidekiq.job(name="Once", retry=False)
        def once(name: str) -> None:
            one.runs.append((name,))
            one.deeds[name]()

        @sidekiq.job(name="Callback")
        def callback(bid: str, event: str, options: Any) -> None:
            one.calls.append((event, bid, options))
            if isinstance(options, str) and options in one.deeds:
                one.deeds[options]()

        def fail() -> None:
            raise ValueError("no e-mail")

        one.deeds["fail"] = fail
        one.deed, one.once, one.callback = deed, once, callback
        yield one
        sync_client.current().close()
    program.reset()


@pytest.fixture
def worker(app: Program) -> Iterator[Any]:
    """Runs jobs in this process."""
    with sidekiq.embed(concurrency=2, buffer_seconds=0.01, lease_seconds=5) as one:
        app.worker = one
        yield one
