"""The ground of the tests is tested too: a server or a wait that lies would make every other test lie."""

import errno
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

ONE_JOB = """
import sidekiq_py as sidekiq

@sidekiq.job
def nothing(): ...
"""


def test_the_server_answers_on_its_port_and_on_its_socket(redis_server: RedisServer) -> None:
    """Both addresses lead to the same server."""
    by_port, by_socket = redis.Redis.from_url(redis_server.url), redis.Redis.from_url(redis_server.socket_url)

    by_port.set("seen", "1")

    assert by_socket.get("seen") == b"1"
    by_port.close()
    by_socket.close()


def test_every_test_starts_on_an_empty_server(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    """The fixture flushes, whatever ran before."""
    assert redis_client.dbsize() == 0


def test_an_append_only_server_has_its_data_after_a_crash(new_redis_server: Callable[..., RedisServer]) -> None:
    """SIGKILL loses nothing that was answered, and the port stays."""
    server = new_redis_server(appendonly=True)
    port_before = server.port
    client = server.client()
    client.set("kept", "1")

    server.restart(kill=True)

    assert (client.get("kept"), server.port) == (b"1", port_before)
    client.close()


def test_the_port_of_a_server_that_is_down_is_kept_for_it(new_redis_server: Callable[..., RedisServer]) -> None:
    """Who connects is refused, and neither a server nor an outgoing connection of another test gets the port."""
    server = new_redis_server()

    for ends in (server.stop, server.kill):
        ends()
        with socket.socket() as client, socket.socket() as other:
            assert client.connect_ex(("127.0.0.1", server.port)) == errno.ECONNREFUSED
            with pytest.raises(OSError, match="Address already in use"):
                other.bind(("127.0.0.1", server.port))
        server.start()


def test_a_server_without_persistence_comes_back_empty(new_redis_server: Callable[..., RedisServer]) -> None:
    """The default keeps nothing on disk."""
    server = new_redis_server()
    client = server.client()
    client.set("kept", "1")

    server.restart()

    assert client.get("kept") is None
    client.close()


def test_a_paused_server_answers_only_after_it_was_resumed(new_redis_server: Callable[..., RedisServer]) -> None:
    """A frozen server holds the line without a word."""
    server = new_redis_server()
    client = server.client(socket_timeout=0.1, retry=None)

    with server.paused(), pytest.raises(redis.TimeoutError):
        client.ping()

    assert eventually(client.ping)
    client.close()


def test_a_sleeping_server_is_busy_for_that_long(new_redis_server: Callable[..., RedisServer]) -> None:
    """DEBUG SLEEP is allowed and does not block the caller."""
    server = new_redis_server()
    client = server.client()
    client.ping()
    server.debug_sleep(0.3)
    eventually(lambda: client.ping() and time.monotonic())
    started = time.monotonic()

    server.debug_sleep(0.3)
    time.sleep(0.05)
    client.ping()

    assert time.monotonic() - started >= 0.25
    client.close()


def test_cut_connections_are_noticed_by_their_clients(new_redis_server: Callable[..., RedisServer]) -> None:
    """Whoever reads from a cut connection finds its end."""
    server = new_redis_server()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(b"PING\r\n")
        connection.recv(7)

        assert server.cut_connections() == 1

        assert connection.recv(1) == b""


def test_eventually_returns_what_the_check_returned() -> None:
    """The truthy value is handed on, so it can be unpacked."""
    values = iter([0, None, [], ["there"]])

    assert eventually(lambda: next(values)) == ["there"]


def test_eventually_fails_with_the_last_value() -> None:
    """The message shows what was seen last."""
    with pytest.raises(AssertionError, match=r"not true within 0\.05 s; its last value was 0"):
        eventually(lambda: 0, within_seconds=0.05)


def test_eventually_takes_a_failed_assert_as_not_yet() -> None:
    """A row of asserts may be a check."""
    tries = iter(range(10))

    def the_third_try() -> bool:
        assert next(tries) >= 2
        return True

    assert eventually(the_third_try)


def test_a_worker_that_cannot_start_fails_with_the_end_of_its_log(redis_url: str) -> None:
    """The log says why, so the failure must show it."""
    worker = WorkerProcess("no_such_module_anywhere", redis_url=redis_url).start()

    with pytest.raises(AssertionError, match=r"ended with"):
        worker.wait_until_ready()


def test_a_worker_is_ready_when_it_stands_in_redis(
    redis_client: redis.Redis, start_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    """The identity found is the one that Redis lists, and its process id is the one that signals go to."""
    (tmp_path / "one_job.py").write_text(ONE_JOB)

    worker = start_worker("one_job", arguments=["-c", "1"])

    assert redis_client.smembers("processes") == {worker.identity.encode()}
    assert worker.identity.split(":")[1] == str(worker.pid)


def test_a_worker_of_a_fixture_may_be_stopped_by_a_context(
    redis_client: redis.Redis, start_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    """It is not started a second time, and it is gone after the block."""
    (tmp_path / "one_job.py").write_text(ONE_JOB)
    worker = start_worker("one_job", arguments=["-c", "1"])
    pid_before = worker.pid

    with worker as same:
        pid_within = same.pid

    assert (pid_before, worker.is_running, worker.stop()) == (pid_within, False, 0)
    assert redis_client.smembers("processes") == set()


def test_a_frozen_worker_is_stopped_all_the_same(start_worker: Callable[..., WorkerProcess], tmp_path: Path) -> None:
    """A test that fails while its worker is frozen must not leave it behind."""
    (tmp_path / "one_job.py").write_text(ONE_JOB)
    worker = start_worker("one_job", arguments=["-c", "1"])

    worker.freeze()

    assert worker.stop() == 0


def test_no_thread_of_a_frozen_worker_goes_on(start_worker: Callable[..., WorkerProcess], tmp_path: Path) -> None:
    """A test that then looks at the jobs must not race with a thread that still takes some."""
    (tmp_path / "one_job.py").write_text(ONE_JOB)
    worker = start_worker("one_job", arguments=["-c", "1"])

    for _ in range(50):
        worker.freeze()
        states = {
            path.read_text().rpartition(")")[2].split()[0] for path in Path("/proc").glob(f"{worker.pid}/task/*/stat")
        }
        worker.thaw()

        assert states == {"T"}
