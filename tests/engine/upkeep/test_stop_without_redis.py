"""A stop while Redis accepts connections and never answers: its silence is not waited for at each step."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sidekiq_py.client.sync_client import Client
from sidekiq_py.config import CapsuleConfig, Config
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.hooks import Hooks
from sidekiq_py.middleware.chain import Chain, ServerMiddleware
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.registry import FunctionDefinition, Registry
from tests.support.in_flight import jobs_in_flight
from tests.support.ledger import job_text, push_jobs
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

STUBBORN = """
import threading
import sidekiq_py as sidekiq

@sidekiq.job(name="Stubborn")
def wait_in_spite_of_all(number):
    print("it waits", flush=True)
    while True:
        try:
            threading.Event().wait(0.01)
        except BaseException:
            pass
"""


@pytest.fixture
def server(new_redis_server: Callable[..., RedisServer]) -> Iterator[RedisServer]:
    """One to freeze."""
    one = new_redis_server()
    yield one
    one.resume()


def launch(url: str, function: Callable[..., Any], *, socket_timeout_seconds: float = 1) -> Launcher:
    """A worker whose release is to be detected, with one declared job, `run`; it gives Redis a second."""
    registry = Registry()
    registry.add(FunctionDefinition("run", {}, function, function))
    chain: Chain[ServerMiddleware] = Chain()
    config = Config(
        redis=RedisSettings(url, socket_timeout_seconds=socket_timeout_seconds),
        capsules=(CapsuleConfig("one", concurrency=2), CapsuleConfig("two", concurrency=2)),
        job_log=False,
        embedded=True,
    )
    launcher = Launcher(
        WorkerParts(config, registry=registry, hooks=Hooks(), server_middleware=chain, client=Client(url))
    )
    launcher.start()
    return launcher


def test_an_idle_worker_leaves_a_redis_that_hangs(server: RedisServer) -> None:
    """The waits for its answer do not add up."""
    launcher = launch(server.url, print, socket_timeout_seconds=5)
    client = server.client()
    eventually(lambda: client.hlen("sidekiq_py:owners") == 1)
    client.close()
    server.pause()

    began = time.monotonic()
    launcher.stop(timeout_seconds=25)

    # A timeout of five seconds at each of some sixteen steps, where they add up.
    assert time.monotonic() - began < 30


def test_a_redis_that_hangs_is_left_as_soon_as_the_time_of_the_jobs_is_over(server: RedisServer) -> None:
    """And not only when the ping of that moment times out, which would add up to five seconds to a stop."""
    may_end, has_begun = threading.Event(), threading.Event()

    def run(number: int) -> None:
        has_begun.set()
        may_end.wait(60)

    launcher = launch(server.url, run, socket_timeout_seconds=30)
    client = server.client()
    push_jobs(client, [job_text(1, "run")])
    assert has_begun.wait(60)
    client.close()
    server.pause()

    began = time.monotonic()
    [_] = launcher.stop(timeout_seconds=1.5)
    took = time.monotonic() - began
    may_end.set()

    # 1.5 s and 3 s for the job, and 5 s of silence. Pings time out after 30 s.
    assert 4 < took < 25


def test_what_ended_meanwhile_is_handed_in_if_redis_comes_back_in_time(server: RedisServer) -> None:
    """While jobs run, a Redis that hangs is not given up."""
    may_end = threading.Event()
    has_begun = threading.Event()

    def run(number: int) -> None:
        has_begun.set()
        may_end.wait(60)

    launcher = launch(server.url, run)
    client = server.client()
    push_jobs(client, [job_text(1, "run")])
    assert has_begun.wait(60)
    server.pause()

    stopping = threading.Thread(target=launcher.stop, kwargs={"timeout_seconds": 60})
    stopping.start()
    stopping.join(2.5)
    server.resume()
    may_end.set()
    stopping.join(60)

    assert not stopping.is_alive()
    assert client.get("stat:processed") == b"1"
    assert jobs_in_flight(client) == []
    client.close()


def test_a_stop_waits_for_jobs_although_no_sentinel_answers(server: RedisServer, tmp_path: Path) -> None:
    """If it raised at its first line, it would cut off the jobs although their Redis is there."""
    may_end, has_begun = threading.Event(), threading.Event()

    def run(number: int) -> None:
        has_begun.set()
        may_end.wait(60)

    client = server.client()
    with Sentinel(server, tmp_path) as sentinel:
        launcher = launch(sentinel.url, run)
        push_jobs(client, [job_text(1, "run")])
        assert has_begun.wait(60)
    # Longer than the silence after which Redis is given up.
    threading.Timer(2, may_end.set).start()

    assert launcher.stop(timeout_seconds=60) == []

    assert client.get("stat:processed") == b"1"
    assert jobs_in_flight(client) == []
    client.close()


def test_a_process_whose_job_ignores_the_stop_ends_although_no_sentinel_answers(
    server: RedisServer, start_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    """Its last step asks them where the primary is. An exit code of 1 would say that the worker has failed."""
    (tmp_path / "stubborn_jobs.py").write_text(STUBBORN)
    client = server.client()
    with Sentinel(server, tmp_path) as sentinel:
        worker = start_worker(
            "stubborn_jobs", arguments=["-t", "0.1"], redis_url=server.url, environment={"REDIS_URL": sentinel.url}
        )
        push_jobs(client, [job_text(1, "Stubborn")])
        eventually(lambda: "it waits" in worker.log)

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(30) == 0
    assert "Traceback" not in worker.log
    client.close()
