"""What is published for monitors, read off Redis as it is."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from tests.support.waiting import eventually

LONG = 60.0


class EventMonitor:
    """
    Everything that was published since it subscribed.

    Attributes:
        messages: Channel and message, whose body is decoded.
    """

    def __init__(self, pubsub: Any) -> None:
        self._pubsub = pubsub
        self.messages: list[tuple[str, dict[str, Any]]] = []

    def listen(self) -> "EventMonitor":
        """Take in what has come."""
        while (received := self._pubsub.get_message(ignore_subscribe_messages=True, timeout=0.01)) is not None:
            message = json.loads(received["data"])
            message["body"] = json.loads(base64.b64decode(message["body"]))
            self.messages.append((received["channel"].decode(), message))
        return self

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events, those in lists one by one."""
        self.listen()
        bodies = [message["body"] for _, message in self.messages]
        return [event for body in bodies for event in (body if isinstance(body, list) else [body])]

    def of(self, task_id: str) -> list[dict[str, Any]]:
        """The events of a task."""
        return [event for event in self.events if event.get("uuid") == task_id]

    def kinds(self, task_id: str) -> list[str]:
        """Their types in the order in which they were written, but for that of the client."""
        events = sorted(self.of(task_id), key=lambda event: event["timestamp"])
        return [event["type"] for event in events if event["type"] != "task-sent"]

    def wait_for(self, kind: str, task_id: str | None = None) -> dict[str, Any]:
        """The first event of a type, for a task; waits until it has come."""

        def found() -> dict[str, Any] | None:
            about = self.events if task_id is None else self.of(task_id)
            return next((event for event in about if event["type"] == kind), None)

        return eventually(found, within_seconds=LONG)


@contextmanager
def listening(url: str, pattern: str = "/0.celeryev*") -> Iterator[EventMonitor]:
    """Subscribed within the block."""
    client = redis.Redis.from_url(url)
    pubsub = client.pubsub()
    pubsub.psubscribe(pattern)
    # The server's word that it has taken effect.
    eventually(lambda: pubsub.get_message(timeout=0.1), within_seconds=LONG)
    try:
        yield EventMonitor(pubsub)
    finally:
        pubsub.close()
        client.close()
