"""
Priorities: queues of their own, served in order.

An app orders priorities if its `broker_transport_options` say so as Celery's do on Redis, by
`{"queue_order_strategy": "priority"}`; else a priority is only told to the task. 0 is the most urgent and stands in the
queue itself; the others in `<queue>:<step>`, each rounded down to one of `priority_steps` (0, 3, 6, 9).
"""

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidekiq_celery.app.base import Celery

__all__ = ("base_queue", "priority_queue", "priority_queues", "steps")

_STEPS = (0, 3, 6, 9)


def steps(app: "Celery") -> tuple[int, ...]:
    """The steps that *app* orders, the most urgent first; none if it orders none."""
    options: Any = app.conf.broker_transport_options or {}
    if options.get("queue_order_strategy") != "priority":
        return ()
    return tuple(sorted(int(step) for step in options.get("priority_steps") or _STEPS))


def priority_queue(app: "Celery", queue: str, priority: int | None) -> str:
    """The queue for a task of that priority."""
    if not priority:
        return queue
    ordered = steps(app)
    if not ordered:
        return queue
    step = ordered[max(bisect_right(ordered, int(priority)) - 1, 0)]
    return f"{queue}:{step}" if step else queue


def priority_queues(app: "Celery", queue: str) -> list[str]:
    """All queues for which *queue* stands, the most urgent first."""
    return list(dict.fromkeys([queue, *(f"{queue}:{step}" for step in steps(app) if step)]))


def base_queue(app: "Celery", queue: str) -> str:
    """The queue that a program names, of one that `priority_queues` gives."""
    name, _, step = queue.rpartition(":")
    return name if name and step.isdigit() and int(step) in steps(app) else queue
