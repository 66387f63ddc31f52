"""A worker that starts before its Redis does: what it waits for, what ends the wait, and who is told."""

import json
import logging
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer
from typing import Any

import pytest
from sidekiq_celery import Celery
from sidekiq_celery.worker import WorkController, startup

from tests.compat.worker.conftest import PROJECT
from tests.support.celery_program import command, end_family, environment
from tests.support.process_states import children_of
from tests.support.redis_server import LOADS_SLOWLY, RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess

Start = Callable[..., SidekiqProcess]
_WAITS = "Trying again "
# Far longer than any stop takes.
_NO_RETRY_IN_TIME = "30"
_AT_STARTUP = {"broker_connection_retry_on_startup": True}


@pytest.fixture
def absent_server(new_redis_server: Callable[..., RedisServer]) -> RedisServer:
    """A server that is not running yet, and whose port is known."""
    server = new_redis_server()
    server.stop()
    return server


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(url, "-P", "solo", VARIABLE="value")` starts a worker, and waits for nothing."""
    with ExitStack() as stack:

        def start(url: str, *arguments: str, **more: str) -> SidekiqProcess:
            mark = uuid.uuid4().hex
            env = environment(TEST_FAMILY=mark, WITHOUT_NOTES="1", **{"PAUSE_SECONDS": "0.1", **more})
            words = command("-A", PROJECT, "worker", "-l", "INFO", *arguments)
            worker = SidekiqProcess(words, redis_url=url, environment=env)
            stack.callback(worker.print_log_tail)
            stack.callback(end_family, worker, mark)
            return worker.start()

        yield start


def waits(worker: SidekiqProcess) -> bool:
    """Whether it has found no Redis, and waits for it."""
    assert worker.is_running, worker.log
    return _WAITS in worker.log


def command_of(pid: int) -> bytes:
    """A forked child's is its parent's. In Python 3.14, the program's process pool has a process with another one."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize("arguments", [("-P", "prefork", "-B"), ("-P", "threads", "-B"), ("-P", "solo")])
def test_a_worker_waits_for_its_redis(absent_server: RedisServer, start: Start, arguments: tuple[str, ...]) -> None:
    """With docker-compose a worker often starts first. Children are forked only once there is something to do."""
    worker = start(absent_server.url, "-c", "1", *arguments)
    eventually(lambda: waits(worker), within_seconds=60)
    assert [child for child in children_of(worker.pid) if command_of(child) == command_of(worker.pid)] == []

    absent_server.start()

    worker.wait_until_ready()
    eventually(lambda: " ready." in worker.log)
    assert worker.stop() == 0
    text = f"consumer: Cannot connect to {absent_server.url}: Redis is out of reach: Error 111 connecting to "
    assert text in worker.log
    assert "(1/100)" in worker.log


def test_a_host_whose_name_is_not_known_yet_is_waited_for(start: Start) -> None:
    """As that of a container that does not exist yet."""
    worker = start("redis://nowhere.invalid:6379/0", "-P", "solo")

    eventually(lambda: waits(worker), within_seconds=60)


def test_sentinels_that_know_no_primary_yet_are_waited_for(start: Start) -> None:
    """They may start later than the worker, or be in the middle of a failover."""
    url, options = "sentinel://127.0.0.1:1", {"master_name": "jobs"}
    settings = {"broker_url": url, "result_backend": url}
    settings |= {"broker_transport_options": options, "result_backend_transport_options": options}
    worker = start("redis://127.0.0.1:1/0", "-P", "solo", BROKER_SETTINGS=json.dumps(settings))

    eventually(lambda: waits(worker), within_seconds=60)
    assert "no sentinel knows a primary for 'jobs'" in worker.log


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_a_proxy_whose_redis_is_not_up_yet_is_waited_for(start: Start, scheme: str) -> None:
    """It accepts a connection and hangs up, also in the middle of a TLS handshake."""

    class Proxy(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)

    with TCPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            worker = start(f"{scheme}://127.0.0.1:{proxy.server_address[1]}/0", "-P", "solo")
            eventually(lambda: waits(worker), within_seconds=60)
        finally:
            proxy.shutdown()


@pytest.mark.parametrize(
    ("pool", "number", "how", "code"),
    [
        ("prefork", signal.SIGTERM, "Warm", 0),
        ("solo", signal.SIGTERM, "Warm", 0),
        ("prefork", signal.SIGINT, "Warm", 1),
        ("solo", signal.SIGQUIT, "Cold", 0),
    ],
)
def test_a_signal_ends_the_wait_at_once(
    absent_server: RedisServer, start: Start, tmp_path: Path, pool: str, number: signal.Signals, how: str, code: int
) -> None:
    """The worker stops as it would while it runs; the file with its process id goes."""
    pidfile = tmp_path / "worker.pid"
    worker = start(absent_server.url, "-P", pool, "--pidfile", str(pidfile), PAUSE_SECONDS=_NO_RETRY_IN_TIME)
    eventually(lambda: waits(worker), within_seconds=60)
    assert pidfile.exists()

    worker.send_signal(number)

    assert worker.wait(within_seconds=25) == code
    assert f"{how} shutdown: " in worker.log
    assert worker.log.count(_WAITS) == 1
    assert "Traceback" not in worker.log
    assert not pidfile.exists()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTTIN, signal.SIGTSTP])
def test_a_signal_for_a_running_worker_does_not_end_one_that_waits(
    absent_server: RedisServer, start: Start, number: signal.Signals
) -> None:
    """Such as the one after a rotation of logs. Nor is it suspended: it would not notice that it is to stop."""
    worker = start(absent_server.url, "-P", "solo", PAUSE_SECONDS=_NO_RETRY_IN_TIME)
    eventually(lambda: waits(worker), within_seconds=60)

    worker.send_signal(number)
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(within_seconds=25) == 0


def test_hup_starts_a_waiting_worker_again(absent_server: RedisServer, start: Start) -> None:
    """As it does a worker that runs."""
    worker = start(absent_server.url, "-P", "solo", PAUSE_SECONDS=_NO_RETRY_IN_TIME)
    eventually(lambda: waits(worker), within_seconds=60)

    worker.send_signal(signal.SIGHUP)

    eventually(lambda: waits(worker) and worker.log.count("(1/100)") == 2)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_hup_while_a_waiting_worker_stops_starts_it_again(
    absent_server: RedisServer, start: Start, number: signal.Signals
) -> None:
    """As it does one that stops after it has run. It can be stopped again from its first moment on."""
    worker = start(absent_server.url, "-P", "solo", PAUSE_SECONDS=_NO_RETRY_IN_TIME, HUP_AT_SHUTDOWN="1")
    eventually(lambda: waits(worker), within_seconds=60)

    worker.send_signal(number)

    eventually(lambda: waits(worker) and worker.log.count("(1/100)") == 2)
    assert worker.log.count("TERM ends this process") == 2


@pytest.mark.parametrize(
    ("pool", "settings", "tries"),
    [
        ("solo", {"broker_connection_retry_on_startup": False}, 0),
        ("prefork", {"broker_connection_retry": False}, 0),
        ("solo", {"broker_connection_max_retries": 0}, 0),
        ("prefork", {"broker_connection_max_retries": 2}, 2),
        ("solo", {"broker_connection_max_retries": 1, "broker_connection_retry": False, **_AT_STARTUP}, 1),
    ],
)
def test_settings_say_how_often_a_worker_tries(
    absent_server: RedisServer, start: Start, pool: str, settings: dict[str, Any], tries: int
) -> None:
    """When it gives up, a line says why, and the exit code tells the supervisor."""
    worker = start(absent_server.url, "-P", pool, BROKER_SETTINGS=json.dumps(settings))

    assert worker.wait(within_seconds=60) == 1
    assert worker.log.count(_WAITS) == tries
    assert worker.log.count("the worker cannot start: Redis is out of reach: Error 111 connecting to ") == 1
    assert "Traceback" not in worker.log


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis://:wrong@127.0.0.1:{port}/0", "check the user and password in the URL"),
        ("redis://127.0.0.1:{port}/99", "the URL ends with the number of a database that this server lacks"),
        ("rediss://127.0.0.1:{port}/0", "If this server does not use TLS, write redis:// in the URL, not rediss://"),
    ],
)
def test_what_someone_has_to_fix_is_not_waited_for(
    redis_server: RedisServer, start: Start, url: str, text: str
) -> None:
    """The worker says what to do and exits. Celery's tries a hundred times."""
    at_once = json.dumps({"broker_connection_timeout": 1})
    worker = start(url.format(port=redis_server.port), "-P", "solo", BROKER_SETTINGS=at_once)

    assert worker.wait(within_seconds=60) == 1
    assert text in worker.log
    assert _WAITS not in worker.log


def test_a_waiting_worker_is_live_but_not_ready(absent_server: RedisServer, start: Start) -> None:
    """Kubernetes must not kill it while its Redis is on the way."""
    pytest.importorskip("prometheus_client")
    from tests.probes.test_probes import Probes

    probes = Probes()
    worker = start(absent_server.url, "-P", "prefork", "-c", "1", "--probe-port", str(probes.port))

    eventually(lambda: waits(worker) and probes.is_good("live"), within_seconds=60)
    status, text = probes.ask("ready")
    assert status == 503
    assert text.startswith("waiting for Redis: Redis is out of reach: ")

    absent_server.start()
    eventually(lambda: probes.is_good("live") and probes.is_good("ready"), within_seconds=60)


def made(url: str) -> WorkController:
    """A worker in this process."""
    app = Celery("startup", broker=url, backend=url, set_as_current=False, fixups=[])
    return WorkController(app=app, pool="threads", concurrency=1)


def in_thread(worker: WorkController) -> threading.Thread:
    """Start *worker* outside the main thread."""
    thread = threading.Thread(target=worker.start, daemon=True)
    thread.start()
    return thread


def test_a_worker_in_a_thread_waits_until_it_is_stopped(
    absent_server: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without signals, `stop` ends the wait."""
    monkeypatch.setattr(startup, "STEP_SECONDS", float(_NO_RETRY_IN_TIME))
    worker = made(absent_server.url)
    thread = in_thread(worker)
    eventually(lambda: _WAITS in caplog.text)

    worker.stop(exitcode=7)

    thread.join(25)
    assert not thread.is_alive()
    assert worker.exitcode == 7


def test_a_redis_that_loads_its_data_is_waited_for(
    new_redis_server: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As after its restart, with much in it."""
    monkeypatch.setattr(startup, "STEP_SECONDS", 0.01)
    caplog.set_level(logging.INFO)
    server = new_redis_server(config=LOADS_SLOWLY)
    with server.loading():
        worker = made(server.url)
        thread = in_thread(worker)
        eventually(lambda: "LOADING Redis is loading the dataset in memory. Trying again " in caplog.text)

    eventually(lambda: "Working on " in caplog.text)
    worker.stop()
    thread.join()
    assert worker.exitcode == 0
