"""
Passing a message through kombu's `Producer.publish`, if a package has wrapped it.

Sentry, New Relic and ddtrace do so, to show the call in a trace and to add headers by which the task continues it. No
producer sends a task here, so their wrapper is given one that publishes nothing itself.
"""

import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, TypeVar

from sidekiq_celery._wire.message import TaskMessage
from sidekiq_celery.contract import App

T = TypeVar("T")
# Their place among the arguments of `Producer._publish`, which are body, priority, content type, encoding, headers, ….
_HEADERS = 4


def is_wrapped() -> bool:
    """Whether a package has wrapped kombu's `Producer.publish`. Nobody has before it is there."""
    # Another thread may be just importing its module.
    producer = getattr(sys.modules.get("kombu.messaging"), "Producer", None)
    if producer is None:
        return False
    publish = vars(producer)["publish"]
    # A transparent wrapper shows the attributes of what it wraps, but not its type.
    return type(publish) is not FunctionType or publish.__code__.co_filename != producer.__init__.__code__.co_filename


def publish(app: App, message: TaskMessage, body: Any, place: Mapping[str, str], push: Callable[[], T]) -> T:
    """
    Call *push* from within the wrapper of `Producer.publish`. Headers that it adds are in *message* by then.

    Args:
        body: As the publish signals show it.
        place: The exchange and the routing key.
    """
    from kombu import Producer

    pushed: list[T] = []

    class Pushing(Producer):
        def _prepare(self, body: Any, *args: Any, **kwargs: Any) -> Any:
            return body, None, None

        def _publish(self, *args: Any, **kwargs: Any) -> None:
            message.headers.update(args[_HEADERS])
            pushed.append(push())

    # The connection is for the wrapper to look at; it is never opened.
    producer: Any = Pushing
    producer(app.connection_for_write(), auto_declare=False).publish(
        body, headers=message.headers, **place, **message.properties
    )
    [outcome] = pushed
    return outcome
