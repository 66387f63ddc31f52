"""Which of a worker's own loops has not turned for too long."""

import threading
from collections.abc import Iterator

import pytest

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import monotonic
from sidekiq_py.config import Config
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.hooks import Hooks
from sidekiq_py.metrics.job_metrics import JobMetrics
from sidekiq_py.middleware.chain import Chain
from sidekiq_py.probes.worker import WorkerProbes
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.registry import Registry
from tests.support.declared_jobs import no_jobs_declared
from tests.support.waiting import eventually


@pytest.fixture
def hooks() -> Hooks:
    """Of the program under test."""
    return Hooks()


@pytest.fixture
def launcher(redis_url: str, hooks: Hooks) -> Iterator[Launcher]:
    """A worker whose loops have a short time to turn."""
    program.reset()
    redis = RedisSettings(redis_url, socket_timeout_seconds=0.3)
    config = Config(redis=redis, lease_seconds=1.2, stall_seconds=0.1, sidekiq_version="7")
    one = Launcher(
        WorkerParts(config, registry=Registry(), hooks=hooks, server_middleware=Chain(), client=Client(redis_url))
    )
    yield one
    one.stop(timeout_seconds=0.1)


def test_a_hook_that_never_returns_stalls_the_heartbeat(
    launcher: Launcher, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process would vanish from the Web UI, and others would take it for dead."""
    end = threading.Event()
    hooks.on("beat")(end.wait)
    probes = WorkerProbes(JobMetrics())
    probes.launcher = launcher
    try:
        launcher.start()
        eventually(lambda: probes.live().is_good)

        # On a busy machine, others may be late for a moment.
        eventually(lambda: probes.live().text == "these loops have not turned for too long: heartbeat\n")
    finally:
        end.set()


def test_loops_that_wait_for_their_time_are_not_stalled(launcher: Launcher) -> None:
    """The heartbeat's time is ten seconds, many times the patience of this worker."""
    launcher.start()
    eventually(lambda: launcher.liveness.why_not_fetching() is None)

    until = monotonic() + 2.0
    while monotonic() < until:
        assert launcher.liveness.stalled_loops() == []
        threading.Event().wait(0.1)


def test_a_worker_that_leaves_is_live_to_its_end(launcher: Launcher) -> None:
    """Its loops end one after the other, and a busy job has its time."""
    launcher.start()
    launcher.stop()

    assert launcher.liveness.stalled_loops() == []


def test_a_worker_that_starts_is_live_and_not_ready() -> None:
    """The program may take its time to be imported."""
    probes = WorkerProbes(JobMetrics())

    assert probes.live().is_good
    assert not probes.ready().is_good


def test_a_fetch_that_never_ends_is_a_stalled_loop(launcher: Launcher) -> None:
    """The other loops turn, and no job would be run."""
    launcher.start()
    probes = WorkerProbes(JobMetrics())
    probes.launcher = launcher
    fetcher = launcher.parts.managers[0].fetcher
    with fetcher._buffer.fetching:  # type: ignore[attr-defined]
        fetcher.wake()

        eventually(lambda: probes.live().text == "these loops have not turned for too long: fetch (default)\n")

    eventually(lambda: probes.live().is_good)


@no_jobs_declared()
def test_processors_that_all_run_long_jobs_stall_nothing(redis_url: str, hooks: Hooks) -> None:
    """Nobody fetches then, and nobody is to."""
    program.reset()
    end, started = threading.Event(), threading.Semaphore(0)

    @sidekiq.job(name="Block")
    def block() -> None:
        started.release()
        end.wait()

    config = Config(
        redis=RedisSettings(redis_url, socket_timeout_seconds=0.1),
        lease_seconds=1.2,
        stall_seconds=0.05,
        sidekiq_version="7",
    )
    client = Client(redis_url)
    launcher = Launcher(WorkerParts(config, hooks=hooks, server_middleware=Chain(), client=client))
    client.push_bulk({"class": "Block", "args": [[]] * config.capsules[0].concurrency})
    launcher.start()
    try:
        for _ in range(config.capsules[0].concurrency):
            assert started.acquire(timeout=30)
        until = monotonic() + 1.0
        while monotonic() < until:
            assert "fetch (default)" not in launcher.liveness.stalled_loops()
    finally:
        end.set()
        launcher.stop(timeout_seconds=5)
        client.close()
