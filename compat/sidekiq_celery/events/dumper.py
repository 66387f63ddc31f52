"""Prints events as they arrive: `sidekiq-celery events --dump`."""

import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from kombu.utils.functional import LRUCache

from sidekiq_celery._state import app_or_default
from sidekiq_celery.utils.time import humanize_seconds
from sidekiq_py.payloads import escaped

__all__ = ("Dumper", "evdump")

TASK_NAMES: Any = LRUCache(limit=4095)
"""The text shown for a task when it was sent or received, by task id."""

HUMAN_TYPES = {"worker-offline": "shutdown", "worker-online": "started", "worker-heartbeat": "heartbeat"}
_WITH_NAMES = ("task-received", "task-sent")


def humanize_type(type: str) -> str:
    """Describe an event type in words."""
    type = type.lower()
    return HUMAN_TYPES.get(type) or type.replace("-", " ")


class Dumper:
    """
    Prints events, one per line.

    Args:
        out: The stream to print to.
    """

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self.out = out

    def say(self, msg: str) -> None:
        """Print a line and flush it, so that it appears at once in a pipe, too."""
        # Events come from whoever reaches the broker, and repeat what payloads say.
        print(escaped(msg), file=self.out, flush=True)

    def on_event(self, ev: dict[str, Any]) -> None:
        """Print an event. This removes its fields."""
        timestamp = _moment(ev.pop("timestamp", 0))
        type, hostname = ev.pop("type").lower(), ev.pop("hostname", "?")
        if not type.startswith("task-"):
            self._line(hostname, timestamp, type, "", ev)
            return
        uuid = ev.pop("uuid", "?")
        if type in _WITH_NAMES:
            TASK_NAMES[uuid] = "{}({}) args={} kwargs={}".format(
                ev.pop("name", "?"), uuid, ev.pop("args", "?"), ev.pop("kwargs", "?")
            )
        self.format_task_event(hostname, timestamp, type, TASK_NAMES.get(uuid, ""), ev)

    def format_task_event(
        self, hostname: str, timestamp: datetime | float, type: str, task: str, event: dict[str, Any]
    ) -> None:
        """Print a task event."""
        self._line(hostname, timestamp, type, f"{task} ", event)

    def _line(self, hostname: str, timestamp: datetime | float, type: str, task: str, event: dict[str, Any]) -> None:
        fields = ", ".join(f"{key}={event[key]}" for key in sorted(event))
        self.say(f"{hostname} [{timestamp}] {humanize_type(type)}{':' if fields else ''} {task}{fields}")


def _moment(seconds: float) -> datetime | float:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        # An event of a program's own may have milliseconds.
        return seconds


def evdump(app: Any = None, out: TextIO = sys.stdout) -> None:
    """Print events until Ctrl-C. Reconnects when the connection is lost."""
    app = app_or_default(app)
    dumper = Dumper(out=out)
    dumper.say("-> evdump: starting capture...")
    connection = app.connection_for_read().clone()

    def print_retry(error: BaseException, interval: float) -> None:
        when = humanize_seconds(interval, "in", " ")
        dumper.say(f"-> Cannot connect to {connection.as_uri()}: {error}. Trying again {when}")

    try:
        while True:
            try:
                connection.ensure_connection(print_retry)
                app.events.Receiver(connection, handlers={"*": dumper.on_event}).capture()
            except connection.connection_errors + connection.channel_errors:
                dumper.say("-> Connection lost, attempting reconnect")
    except (KeyboardInterrupt, SystemExit):
        connection.close()
