"""
How Celery stores its messages in Redis: a list for each priority step, and the messages that its workers have taken.

Source: kombu 5.7, `kombu.transport.redis`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sidekiq_celery._wire.priorities import STEPS, configured_steps, step_of

_SEPARATOR = "\x06\x16"
_BINDING = "_kombu.binding."


class CeleryLayout(NamedTuple):
    """
    The names of the keys.

    Args:
        prefix: The prefix of each key.
        separator: The separator between a queue's name and a priority step.
        steps: The priority steps, most urgent first.
        unacked: The hash of messages that workers have taken.
        unacked_index: The sorted set of the times at which they were taken.
        visibility_seconds: The time after which Celery considers them lost.
    """

    prefix: str = ""
    separator: str = _SEPARATOR
    steps: tuple[int, ...] = STEPS
    unacked: str = "unacked"
    unacked_index: str = "unacked_index"
    visibility_seconds: float = 3600

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> "CeleryLayout":
        """The layout that `broker_transport_options` describe."""
        return cls(
            prefix=str(options.get("global_keyprefix") or ""),
            separator=str(options.get("sep") or _SEPARATOR),
            steps=configured_steps(options),
            unacked=str(options.get("unacked_key") or "unacked"),
            unacked_index=str(options.get("unacked_index_key") or "unacked_index"),
            visibility_seconds=float(options.get("visibility_timeout") or 3600),
        )

    def key(self, queue: str, priority: int = 0) -> str:
        """The list of messages with that priority."""
        step = step_of(priority, self.steps)
        return f"{queue}{self.separator}{step}" if step else queue

    def keys(self, queue: str) -> list[str]:
        """The lists of a queue, most urgent first."""
        return [self.key(queue, step) for step in self.steps]

    @staticmethod
    def binding_key(exchange: str) -> str:
        """The set of the queues that are bound to an exchange."""
        return f"{_BINDING}{exchange}"

    def bound_queue(self, bindings: Sequence[bytes], routing_key: str) -> str | None:
        """The first of an exchange's queues that receives a message with that routing key."""
        for binding in bindings:
            exact, pattern, queue = ([*binding.decode(errors="replace").split(self.separator), "", "", ""])[:3]
            if exact == routing_key or (pattern and _matches(pattern, routing_key)):
                return queue
        return None


def _matches(pattern: str, routing_key: str) -> bool:
    try:
        return re.match(pattern, routing_key) is not None
    except re.error:
        return False
