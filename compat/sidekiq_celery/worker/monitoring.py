"""The worker's events for monitors, and the commands with which monitors ask for more."""

import logging
import math
import os
import platform
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sidekiq_py
from sidekiq_celery import signals
from sidekiq_celery.utils.time import utcoffset
from sidekiq_celery.worker.commands import control_command, ok
from sidekiq_celery.worker.control_channel import Answer, Recipient, on_message
from sidekiq_py.extension import monotonic

if TYPE_CHECKING:
    from sidekiq_celery.events.dispatcher import EventDispatcher
    from sidekiq_celery.events.outbox import Outbox

logger = logging.getLogger("celery.worker.control")


SOFTWARE_INFO = {"sw_ident": "sidekiq-py", "sw_ver": sidekiq_py.__version__, "sw_sys": platform.system()}
"""How a worker describes itself."""

_LEAST_SECONDS = 1.0
# Remote control checks once a second what is due, so a beat falls due a little before the interval that monitors see.
_EARLY_SECONDS = 0.5


class Heart:
    """
    Tells monitors that a worker is alive. It beats by itself unless heartbeats are turned off.

    Args:
        ask_children: Asks the worker's processes, as `RemoteControl.ask_children`.

    Attributes:
        seconds: The time between heartbeats.
    """

    _due_at = math.inf

    def __init__(self, worker: Any, ask_children: Callable[..., list[Answer]]) -> None:
        from sidekiq_celery.events.clock import keep_up
        from sidekiq_celery.events.outbox import outbox_of

        self._worker = worker
        self._ask_children = ask_children
        self.seconds = max(float(worker.heartbeat_seconds or 2.0), _LEAST_SECONDS)
        self._pause_seconds = max(_LEAST_SECONDS, self.seconds - _EARLY_SECONDS)
        self._outbox: Outbox = outbox_of(worker.app)
        self._clock = keep_up(worker.app)
        self._serializer: str = worker.app.conf.event_serializer
        self._pid = os.getppid() if worker.pool_name == "prefork" else os.getpid()
        # Kept per process: a child that was replaced still counts.
        self._processed: dict[int, int] = {}
        self._active = 0
        self._has_listeners = False

    @cached_property
    def eventer(self) -> "EventDispatcher":
        """For receivers of `heartbeat_sent`: it has the worker's name, and sends events of the program under it."""
        from sidekiq_celery.events.dispatcher import EventDispatcher

        app = self._worker.app
        return EventDispatcher(app.connection_for_write(), hostname=self._worker.hostname, app=app)

    def start(self) -> None:
        """Report that the worker has started."""
        if self._worker.heartbeat_seconds:
            self._send("worker-online")
            self._due_at = monotonic() + self._pause_seconds

    def beat_if_due(self) -> None:
        """Beat if the last beat is old enough."""
        if monotonic() >= self._due_at:
            self._due_at = monotonic() + self._pause_seconds
            self.beat()

    def beat(self) -> None:
        """Report that it is alive. While there are no listeners, its processes are not asked for their activity."""
        if self._has_listeners:
            self.look()
        self._send("worker-heartbeat")

    def stop(self) -> None:
        """Report that it has stopped and that its tasks have ended."""
        if not self._worker.heartbeat_seconds:
            return
        if self._worker.events is not None:
            # In a worker with a single process, the last task's events go out first.
            self._worker.events.close()
        self._send("worker-offline")

    def look(self) -> None:
        """Ask the worker's processes how many tasks are running and have run."""
        answers = [answer for answer in self._ask_children("activity", timeout_seconds=0.5) if not answer.error]
        self._active = sum(answer.value["active"] for answer in answers)
        self._processed |= {answer.pid: answer.value["processed"] for answer in answers}

    def _send(self, kind: str) -> None:
        if signals.heartbeat_sent.receivers:
            signals.heartbeat_sent.send(sender=self)
        hostname = self._worker.hostname
        event = {
            "hostname": hostname,
            "utcoffset": utcoffset(),
            "pid": self._pid,
            "clock": self._clock.forward(),
            "freq": self.seconds,
            "active": self._active,
            "processed": sum(self._processed.values()),
            "loadavg": [round(load, 2) for load in os.getloadavg()],
            **SOFTWARE_INFO,
            "timestamp": time.time(),
            "type": kind,
        }
        self._has_listeners = self._outbox.publish_now(event, hostname, self._serializer) > 0
        if "eventer" in self.__dict__:
            # What could not be sent while the broker was away.
            self.eventer.flush(groups=False)


@control_command()
def enable_events(state: Any, **kwargs: Any) -> dict[str, str]:
    """Tell worker(s) to send task-related events."""
    if state.remote_control.worker.task_events:
        return ok("task events already enabled")
    state.remote_control.tell_all("task_events", is_on=True)
    logger.info("Events of group {task} enabled by remote.")
    return ok("task events enabled")


@control_command()
def disable_events(state: Any, **kwargs: Any) -> dict[str, str]:
    """Tell worker(s) to stop sending task-related events."""
    if not state.remote_control.worker.task_events:
        return ok("task events already disabled")
    state.remote_control.tell_all("task_events", is_on=False)
    logger.info("Events of group {task} disabled by remote.")
    return ok("task events disabled")


@control_command()
def heartbeat(state: Any, **kwargs: Any) -> None:
    """Tell worker(s) to send event heartbeat immediately."""
    state.heart.look()
    state.heart.beat()


@on_message("task_events")
def set_task_events(recipient: Recipient, is_on: bool) -> None:
    """Remember the setting where children are forked, and apply it where tasks run."""
    recipient.worker.task_events = is_on
    events = recipient.worker.events
    if recipient.launcher is not None and events is not None:
        (events.turn_on if is_on else events.turn_off)()


@on_message("activity")
def activity(recipient: Recipient) -> dict[str, int]:
    """Count the tasks that are running in this process, and those that have run."""
    launcher = recipient.launcher
    if launcher is None:
        return {"active": 0, "processed": 0}
    return {"active": launcher.state.busy, "processed": sum(launcher.metrics.attempts().values())}
