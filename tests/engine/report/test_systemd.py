"""What systemd is told."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sidekiq_py.engine.prefork.parent_service import ParentService
from sidekiq_py.engine.report.systemd import ServiceNotifier, watchdog_seconds
from tests.support.worker_process import WorkerProcess

_STUCK = """
import threading
import sidekiq_py as sidekiq

sidekiq.job(name="Nothing")(print)
sidekiq.on("beat")(threading.Event().wait)
"""


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """The manager's end of the line, and its address."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(path)
        line.settimeout(5)
        yield line, path


def test_ready_and_stopping_are_told(systemd: tuple[socket.socket, str]) -> None:
    """`Type=notify` units wait for the first and show the second."""
    line, path = systemd
    notifier = ServiceNotifier({"NOTIFY_SOCKET": path})

    notifier.ready()
    notifier.stopping()

    assert [line.recv(100), line.recv(100)] == [b"READY=1", b"STOPPING=1"]


def test_an_address_outside_of_the_file_system_is_reached() -> None:
    """Containers are given abstract sockets, written with a leading @."""
    name = f"sidekiq-py-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind("\0" + name)
        line.settimeout(5)

        ServiceNotifier({"NOTIFY_SOCKET": "@" + name}).ready()

        assert line.recv(100) == b"READY=1"


def test_the_watchdog_is_fed_until_the_end(systemd: tuple[socket.socket, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while busy jobs are waited for."""
    line, path = systemd
    monkeypatch.setattr("sidekiq_py.engine.report.systemd._SHORTEST_WATCHDOG_SECONDS", 0.0)
    notifier = ServiceNotifier({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "20000"})

    notifier.ready()
    notifier.ready()
    notifier.stopping()
    messages = [line.recv(100) for _ in range(6)]
    notifier.close()

    assert messages.count(b"WATCHDOG=1") >= 3


def test_the_watchdog_is_not_fed_while_a_loop_of_the_worker_is_stuck(
    systemd: tuple[socket.socket, str], redis_url: str, tmp_path: Path
) -> None:
    """So systemd restarts it, as Kubernetes does when `/live` answers 503."""
    line, path = systemd
    (tmp_path / "stuck_program.py").write_text(_STUCK)
    (tmp_path / "sidekiq.yml").write_text("stall_seconds: 0.1\n")
    worker = WorkerProcess(
        "stuck_program",
        redis_url=redis_url,
        arguments=["-C", str(tmp_path / "sidekiq.yml")],
        environment={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "1000000"},
        python_path=[tmp_path],
    )
    worker.start()
    try:
        line.settimeout(60)
        assert [line.recv(100), line.recv(100)] == [b"READY=1", b"WATCHDOG=1"]

        line.settimeout(3)
        with suppress(TimeoutError):
            # Each is received, because a worker waits when the line is full.
            for _ in range(100):
                assert line.recv(100) == b"WATCHDOG=1"
        assert "These loops have not turned for too long: heartbeat" in worker.log
    finally:
        worker.kill()


def test_nobody_listens_without_systemd() -> None:
    """Outside of a service nothing happens."""
    notifier = ServiceNotifier({})

    notifier.ready()

    assert not notifier.is_wanted
    assert not notifier.send("STATUS=fine")


def test_a_socket_that_is_gone_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A worker does not fail for it."""
    assert not ServiceNotifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).send("READY=1")

    assert "READY=1 could not be sent to systemd" in caplog.text


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "42"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "43"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "500000"}, None),
    ],
)
def test_the_watchdog_waits_for_this_process_alone(variables: dict[str, str], expected: float | None) -> None:
    """As sd_watchdog_enabled(3) reads the two variables, here for process 42."""
    assert watchdog_seconds(variables, 42) == expected


def test_the_parent_of_child_processes_names_a_watchdog_that_is_too_fast_once(caplog: pytest.LogCaptureFixture) -> None:
    """One unit has one mistake."""
    ParentService({"NOTIFY_SOCKET": "@nobody", "WATCHDOG_USEC": "500000"})

    assert caplog.text.count("systemd Watchdog too fast") == 1
