"""Beat answers `ping`, so that a health check sees whether it still checks its schedule."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import redis
from click.testing import CliRunner
from sidekiq_celery import Celery
from sidekiq_celery.apps.beat import Beat
from sidekiq_celery.beat import BeatPidbox, Scheduler, Service, beat_nodename
from sidekiq_celery.bin.base import CLIContext
from sidekiq_celery.bin.control import inspect
from sidekiq_celery.utils.nodenames import gethostname

from sidekiq_py.clock import monotonic
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

Start = Callable[..., Service]


class Held(Scheduler):
    """A check of the schedule ends when the test says so."""

    max_interval = 5
    may_end = threading.Event()

    def tick(self, *args: Any, **kwargs: Any) -> float:
        self.may_end.wait()
        return 0.01


@contextmanager
def running(service: Service) -> Iterator[Service]:
    """A beat in a thread of its own."""
    thread = threading.Thread(target=service.start)
    thread.start()
    try:
        yield service
    finally:
        Held.may_end.set()
        service.stop()
        thread.join()


@pytest.fixture
def start(make_app: Callable[[], Celery]) -> Iterator[Start]:
    """Starts beats, and ends them after the test."""
    begun = []

    def start(**options: Any) -> Service:
        service = Service(make_app(), remote_control=True, **options)
        cleanup = running(service)
        cleanup.__enter__()
        begun.append(cleanup)
        return service

    yield start
    for cleanup in begun:
        cleanup.__exit__(None, None, None)


def replies(app: Celery, command: str, *destination: str, timeout: float = 1.0) -> list[Any]:
    """What the nodes reply to a command."""
    found: list[Any] = app.control.broadcast(
        command, destination=list(destination) or None, reply=True, timeout=timeout, limit=len(destination) or None
    )
    return found or []


def answers(app: Celery, name: str) -> bool:
    """Whether a node replies to `ping`."""
    return replies(app, "ping", name, timeout=0.3) == [{name: {"ok": "pong"}}]


def test_it_answers_a_ping_as_celerybeat_of_its_machine(app: Celery, start: Start) -> None:
    start()

    eventually(lambda: answers(app, f"celerybeat@{gethostname()}"))
    assert replies(app, "ping", "celery@elsewhere", timeout=0.2) == []


@pytest.mark.parametrize(
    ("hostname", "name"),
    [("other@here", "other@here"), ("here", "celerybeat@here"), ("beat@%h", f"beat@{gethostname()}")],
)
def test_the_name_can_be_chosen(hostname: str, name: str) -> None:
    assert beat_nodename(hostname) == name


def test_the_command_line_asks_it(app: Celery, start: Start) -> None:
    """The exit code is what a probe looks at."""
    start(hostname="beat@here")
    eventually(lambda: answers(app, "beat@here"))
    known = CLIContext(app=app, no_color=True, workdir=None)

    asked = CliRunner().invoke(inspect, ["ping", "-d", "beat@here", "-t", "5"], obj=known)
    elsewhere = CliRunner().invoke(inspect, ["ping", "-d", "a@b", "-t", "0.2"], obj=known)

    assert (asked.exit_code, "pong" in asked.output) == (0, True)
    assert elsewhere.exit_code != 0


def test_it_is_silent_about_commands_for_workers(app: Celery, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """An error from beat would stand among the answers of the workers."""
    start(hostname="beat@here")
    eventually(lambda: answers(app, "beat@here"))

    assert replies(app, "active", timeout=0.3) == []
    assert replies(app, "shutdown", "beat@here", timeout=0.3) == []
    eventually(lambda: answers(app, "beat@here"))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_it_is_silent_once_the_schedule_has_not_been_checked_for_too_long(
    app: Celery, start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`inspect` exits with an error only if nobody replies. It replies again when the check has ended."""
    Held.may_end.clear()
    service = start(hostname="beat@here", scheduler_cls=Held)
    eventually(lambda: answers(app, "beat@here"))

    with monkeypatch.context() as patch:
        patch.setattr("sidekiq_celery._beat.pidbox.monotonic", lambda: service.ticked_at + 61)
        assert not answers(app, "beat@here")
        eventually(lambda: caplog.text)
    assert "beat does not answer ping: the schedule has not been checked for 61 s (limit: 60 s)" in caplog.text

    Held.may_end.set()
    eventually(lambda: answers(app, "beat@here"))


@pytest.mark.parametrize(
    ("configured", "tick_seconds", "limit"), [(None, 5.0, 60.0), (None, 300.0, 600.0), (7.0, 300.0, 7.0), (0, 5.0, 0)]
)
def test_too_long_is_two_pauses_or_a_minute_or_what_the_setting_says(
    app: Celery, configured: float | None, tick_seconds: float, limit: float
) -> None:
    app.conf.beat_remote_control_max_tick_age = configured
    service = Service(app)
    service.effective_max_interval = tick_seconds
    pidbox = BeatPidbox(service)

    assert (pidbox.max_tick_age, pidbox.tick_age(), pidbox.is_stale()) == (limit, None, False)

    service.ticked_at = monotonic() - limit - 1
    assert pidbox.is_stale() == (limit != 0)


def test_it_answers_again_when_redis_is_back(
    new_redis_server: Callable[..., RedisServer], make_app: Callable[[], Celery]
) -> None:
    server = new_redis_server()

    app = make_app()
    app.conf.update(broker_url=server.url, result_backend=server.url)

    def answers_again() -> bool:
        # The connection of the asking side was lost, too.
        with suppress(redis.ConnectionError):
            return answers(app, "beat@here")
        return False

    with running(Service(app, remote_control=True, hostname="beat@here", scheduler_cls=Held)):
        Held.may_end.set()
        eventually(lambda: answers(app, "beat@here"))
        server.stop()
        server.start()

        eventually(answers_again)


def test_it_is_off_unless_it_is_asked_for(app: Celery) -> None:
    """As in Celery, by the setting or the command line."""
    service = Service(app)

    with running(service):
        eventually(lambda: service.ticked_at is not None)
        assert service._pidbox is None


class Broken(Scheduler):
    """Can neither check the schedule nor write it."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        raise ValueError("no schedule")

    def close(self) -> None:
        raise OSError("no disk")


def test_it_is_silent_when_beat_has_failed(app: Celery) -> None:
    """A program that runs beat by itself may live on."""
    service = Service(app, remote_control=True, hostname="beat@here", scheduler_cls=Broken)

    with pytest.raises(OSError, match="no disk"):
        service.start()

    assert "sidekiq.beat_pidbox" not in [thread.name for thread in threading.enumerate()]


def test_the_banner_names_the_node(app: Celery) -> None:
    beat = Beat(app=app)

    assert "remote control -> beat@here" in beat.startup_info(Service(app, remote_control=True, hostname="beat@here"))
    assert "remote control" not in beat.startup_info(Service(app))
