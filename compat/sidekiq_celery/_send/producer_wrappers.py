"""
Passing a message through kombu's `Producer.publish`, if a package has wrapped it or the `_publish` that it calls.

Sentry and New Relic wrap the first, ddtrace the second, to show the call in a trace and to add headers by which the
task continues it. No producer sends a task here, so their wrapper is given one whose channel pushes the job.
"""

import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, TypeVar

from sidekiq_celery._wire.message import TaskMessage
from sidekiq_celery.contract import App

T = TypeVar("T")


def is_wrapped() -> bool:
    """Whether a package has wrapped kombu's `Producer.publish`. Nobody has before it is there."""
    # Another thread may be just importing its module.
    producer = getattr(sys.modules.get("kombu.messaging"), "Producer", None)
    if producer is None:
        return False
    methods, kombus = vars(producer), producer.__init__.__code__.co_filename
    return not (_is_of(kombus, methods["publish"]) and _is_of(kombus, methods["_publish"]))


def publish(app: App, message: TaskMessage, body: Any, place: Mapping[str, str], push: Callable[[], T]) -> T | None:
    """
    Call *push* from within the wrapper of `Producer.publish`. Headers that it adds are in *message* by then.

    Args:
        body: As the publish signals show it.
        place: The exchange and the routing key.

    Returns:
        What *push* returned; None if the wrapper has published nothing, as a test's mock does.
    """
    from kombu.messaging import Producer

    pushed: list[T] = []
    # For the wrapper to look at; it is never opened.
    broker = app.connection_for_write()

    class Unserialized(Producer):
        def _prepare(self, body: Any, *args: Any, **kwargs: Any) -> Any:
            return body, None, None

    class Channel:
        connection = broker.transport

        def prepare_message(self, body: Any, priority: Any, kind: Any, encoding: Any, headers: Any, _: Any) -> Any:
            return headers

        def basic_publish(self, headers: Any, **_: Any) -> None:
            message.headers.update(headers)
            pushed.append(push())

    made: Any = Unserialized
    producer = made(broker, auto_declare=False)
    producer.channel = Channel()
    producer.publish(body, headers=message.headers, **place, **message.properties)
    return pushed[0] if pushed else None


def _is_of(filename: str, method: Any) -> bool:
    # A transparent wrapper shows the attributes of what it wraps, but not its type.
    return type(method) is FunctionType and method.__code__.co_filename == filename
