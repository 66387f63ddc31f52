"""Publishes as the real Celery does: its message, by kombu's producer."""

from typing import Any

from kombu import Connection
from sidekiq_celery import Celery
from sidekiq_celery._wire.message import as_task_v2

_app = Celery("elsewhere", set_as_current=False, fixups=[], broker="redis://unused")


def publish(
    connection: Connection,
    name: str,
    args: Any = (),
    kwargs: Any = None,
    *,
    task_id: str = "an-id",
    queue: str = "celery",
    serializer: str = "json",
    compression: str | None = None,
    priority: int | None = None,
    reply_to: str | None = None,
    exchange: str = "",
    more_headers: dict[str, Any] | None = None,
    retry: bool = False,
    **options: Any,
) -> None:
    """Send a call; *options* are those of Celery's `as_task_v2`."""
    message = as_task_v2(_app, task_id, name, args, kwargs, reply_to=reply_to, origin="me@here", **options)
    connection.Producer().publish(
        message.body,
        exchange=exchange,
        routing_key=queue,
        serializer=serializer,
        compression=compression,
        headers={**message.headers, **(more_headers or {})},
        priority=priority,
        retry=retry,
        **message.properties,
    )
