"""Fixtures that every test may use: a Redis server of this test process, and a client for it."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import pytest
import redis

from interop_tests import servers
from sidekiq_py import logs
from tests.support.missing_tools import skip_or_fail
from tests.support.no_skips import pytest_make_collect_report, pytest_runtest_makereport
from tests.support.no_threads_left import pytest_unconfigure
from tests.support.redis_server import RedisServer
from tests.support.worker_process import WorkerProcess

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport", "pytest_unconfigure"]

REDIS_SWITCH = "SIDEKIQ_PY_REQUIRE_REDIS"


def pytest_configure() -> None:
    """
    Let tests pass on a busy machine; and let the programs that they start receive INT and HUP also where a shell has
    started all this in the background, or nohup has.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Random data that is drawn slowly says something of the machine alone: five values took 1.6 s on a busy one.
    hypothesis.settings.register_profile("busy", suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.load_profile("busy")
    # pytest's handlers fail a test whose log line cannot be formatted, which this would only report.
    del logs.log.handle


def _require_server_program() -> None:
    if servers.chosen() is None:
        skip_or_fail("no redis-server or valkey-server; on Debian: apt-get install redis-server", switch=REDIS_SWITCH)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The server that all tests of this process share; tests that kill or configure one take `new_redis_server`."""
    _require_server_program()
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The URL of the shared server, emptied before the test."""
    client = redis_server.client()
    try:
        client.flushall()
    finally:
        client.close()
    return redis_server.url


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """A plain client whose replies are bytes, on the emptied server."""
    client = redis.Redis.from_url(redis_url)
    yield client
    client.close()


@pytest.fixture
def new_redis_server() -> Iterator[Callable[..., RedisServer]]:
    """Starts servers for one test alone: `new_redis_server(appendonly=True, config={"maxmemory": "10mb"})`."""
    _require_server_program()
    with ExitStack() as servers:
        yield lambda **options: servers.enter_context(RedisServer(**options))


@pytest.fixture
def start_worker(redis_url: str, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """
    Starts Python workers on the shared server, waits until each is ready, and stops them after the test.

    `start_worker("my_jobs", arguments=["-c", "2"], python_path=[folder])`; `redis_url=` names another server.
    """
    with ExitStack() as workers:

        def start(require: str, **options: object) -> WorkerProcess:
            options.setdefault("redis_url", redis_url)
            options.setdefault("python_path", [tmp_path])
            worker = WorkerProcess(require, **options)  # type: ignore[arg-type]
            workers.callback(worker.print_log_tail)
            return workers.enter_context(worker)

        yield start
