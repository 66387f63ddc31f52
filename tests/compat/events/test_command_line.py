"""`sidekiq-celery events`."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner
from sidekiq_celery import Celery
from sidekiq_celery.bin.celery import celery
from sidekiq_celery.events.cursesmon import evtop
from sidekiq_celery.events.snapshot import Polaroid
from sidekiq_celery.exceptions import ImproperlyConfigured

from tests.compat.events.event_monitor import LONG
from tests.support.waiting import eventually
from tests.support.worker_process import SOURCE_ROOTS, SidekiqProcess

CAMERA = """
import os
from sidekiq_celery.events.snapshot import Polaroid

class Camera(Polaroid):
    clear_after = True

    def on_shutter(self, state):
        for uuid, task in state.itertasks():
            print("picture of", uuid, task.state, flush=True)
"""


@pytest.fixture
def run(redis_url: str, tmp_path: Path) -> Iterator[Callable[..., SidekiqProcess]]:
    """Starts the command, which can import what is in *tmp_path*; it does not wait."""
    paths = os.pathsep.join([str(tmp_path), *map(str, SOURCE_ROOTS)])
    with ExitStack() as stack:

        def start(*arguments: str) -> SidekiqProcess:
            command = [sys.executable, "-m", "sidekiq_celery", "-b", redis_url, "events", *arguments]
            process = SidekiqProcess(command, redis_url=redis_url, environment={"PYTHONPATH": paths})
            stack.callback(process.print_log_tail)
            stack.callback(lambda: process.kill() if process.is_running else None)
            return process.start()

        yield start


def send(app: Celery) -> None:
    """Events of a task, and of a worker."""
    with app.connection_for_write() as connection, app.events.Dispatcher(connection, hostname="w1@here") as dispatcher:
        dispatcher.send("worker-online", freq=2.0)
        dispatcher.send("task-received", uuid="a-task", name="proj.add", args="(1, 2)", kwargs="{}")
        dispatcher.send("task-succeeded", uuid="a-task", result="3", runtime=0.5)


def test_events_are_printed_as_they_come(
    run: Callable[..., SidekiqProcess], app: Celery, redis_client: redis.Redis
) -> None:
    """One a line; what is known of a task stands with all of its events."""
    dump = run("--dump")
    eventually(lambda: redis_client.pubsub_numpat() == 1, LONG)

    send(app)

    eventually(lambda: "task succeeded" in dump.log, LONG)
    lines = dump.log.splitlines()
    assert lines[0] == "-> evdump: starting capture..."
    assert any("w1@here [" in line and "] started: " in line and "freq=2.0" in line for line in lines)
    [last] = [line for line in lines if "task succeeded" in line]
    assert "proj.add(a-task) args=(1, 2) kwargs={}" in last
    assert "result=3, runtime=0.5" in last
    dump.send_signal(signal.SIGINT)
    assert dump.wait(LONG) == 0


def test_a_camera_takes_pictures(
    run: Callable[..., SidekiqProcess], app: Celery, redis_client: redis.Redis, tmp_path: Path
) -> None:
    """Every so many seconds, and a last one when it is stopped; its pidfile goes."""
    (tmp_path / "my_camera.py").write_text(CAMERA)
    pidfile = tmp_path / "camera.pid"
    camera = run("--camera", "my_camera:Camera", "-F", "0.2", "--pidfile", str(pidfile))
    eventually(lambda: redis_client.pubsub_numpat() == 1, LONG)
    assert pidfile.read_text().strip() == str(camera.pid)

    send(app)

    eventually(lambda: "picture of a-task SUCCESS" in camera.log, LONG)
    camera.send_signal(signal.SIGINT)
    assert camera.wait(LONG) == 0
    assert not pidfile.exists()


def test_settings_name_the_files_of_a_camera(
    run: Callable[..., SidekiqProcess], redis_client: redis.Redis, tmp_path: Path
) -> None:
    """As `events_pidfile` and `events_logfile` do in Celery."""
    (tmp_path / "my_camera.py").write_text(CAMERA)
    pidfile, logfile = tmp_path / "camera.pid", tmp_path / "camera.log"
    (tmp_path / "celeryconfig.py").write_text(f"events_pidfile = {str(pidfile)!r}\nevents_logfile = {str(logfile)!r}\n")

    camera = run("--camera", "my_camera:Camera", "-l", "INFO")

    eventually(lambda: redis_client.pubsub_numpat() == 1, LONG)
    assert pidfile.read_text().strip() == str(camera.pid)
    assert logfile.exists()


def test_a_camera_ends_its_thread_and_can_be_used_again(app: Celery) -> None:
    """It has a timer of its own only while it takes pictures."""
    before, pictures = threading.active_count(), list[object]()
    camera = Polaroid(app.events.State(), freq=0.01, app=app)
    camera.on_shutter = pictures.append  # type: ignore[method-assign]

    for _ in range(2):
        pictures.clear()
        with camera:
            eventually(lambda: len(pictures) > 1, LONG)
        assert threading.active_count() == before


def test_a_camera_schedules_calls_of_its_own(app: Celery) -> None:
    """Its timer is there from the start, as in Celery."""
    called: list[int] = []

    class Camera(Polaroid):
        def install(self) -> None:
            self.timer.call_repeatedly(0.01, called.append, (1,))
            super().install()

    with Camera(app.events.State(), app=app):
        eventually(lambda: len(called) > 1, LONG)


@pytest.mark.parametrize("camera", ["no_such_module:Camera", "json:Camera", "json"])
def test_a_camera_that_there_is_not_is_a_one_line_error(app: Celery, camera: str) -> None:
    """With the exit code and the words of Celery."""
    result = CliRunner().invoke(celery, ["events", "--camera", camera])

    assert result.exit_code == 69
    assert "Error: Unable to run the `events` command. Reason: " in result.output


def test_what_there_is_not_says_what_there_is(app: Celery) -> None:
    """The monitor in the terminal, and becoming a daemon."""
    for arguments, said in (([], "events --dump"), (["--dump", "--detach"], "systemd")):
        result = CliRunner().invoke(celery, ["events", *arguments])
        assert result.exit_code == 2
        assert said in result.output
    with pytest.raises(ImproperlyConfigured, match="Flower"):
        evtop(app)
