"""A clean program for each test, with its own jobs and no reachable Redis."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.active_job import forget_active_jobs
from sidekiq_py.registry import registry


@pytest.fixture(autouse=True)
def _as_at_the_start() -> Iterator[None]:
    # No server listens on port 1, so anything that leaves the fake mode fails at once.
    sidekiq.configure(redis_url="redis://127.0.0.1:1/0")
    yield
    program.reset()
    forget_active_jobs()


@pytest.fixture
def jobs() -> Iterator[SimpleNamespace]:
    """Jobs that write what they do to `ran`: a function, an `async def`, a class, one that fails, one that enqueues."""
    ran: list[object] = []

    @sidekiq.job(name="Plain", queue="low")
    def plain(*args: object) -> None:
        ran.append(("Plain", *args))

    @sidekiq.job(name="Awaited")
    async def awaited(*args: object) -> None:
        ran.append(("Awaited", *args))

    class Worker(sidekiq.Job):
        sidekiq_options = {"name": "Worker", "queue": "critical"}

        def perform(self, *args: object) -> None:
            ran.append(("Worker", self.jid, *args))

    @sidekiq.job(name="Failing")
    def failing() -> None:
        ran.append("Failing")
        raise ZeroDivisionError("as told")

    @sidekiq.job(name="Spawning")
    def spawning(more: int) -> None:
        ran.append(("Spawning", more))
        if more:
            spawning.perform_in(60, more - 1)

    yield SimpleNamespace(plain=plain, awaited=awaited, worker=Worker, failing=failing, spawning=spawning, ran=ran)
    for name in ("Plain", "Awaited", "Worker", "Failing", "Spawning"):
        registry.remove(name)
