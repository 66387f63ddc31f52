"""
Priorities: separate queues that are served in order.

An app orders priorities if its `broker_transport_options` contain `{"queue_order_strategy": "priority"}`. Otherwise a
priority is only passed to the task, whereas Celery on Redis always orders by it: here each step is a queue that every
worker has to serve. 0 is the most urgent and uses the queue itself; the others use `<queue>:<step>`, each rounded down
to one of `priority_steps` (0, 3, 6, 9).
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from sidekiq_celery.contract import App

STEPS = (0, 3, 6, 9)


def steps(app: App) -> tuple[int, ...]:
    """The priority steps of *app*, most urgent first; empty if it does not order priorities."""
    return steps_of(app.conf.broker_transport_options or {})


def steps_of(options: Mapping[str, Any]) -> tuple[int, ...]:
    """The priority steps in `broker_transport_options`, most urgent first."""
    return configured_steps(options) if options.get("queue_order_strategy") == "priority" else ()


def configured_steps(options: Mapping[str, Any]) -> tuple[int, ...]:
    """The priority steps in `broker_transport_options`, or kombu's, most urgent first; even if they order nothing."""
    return tuple(sorted(int(step) for step in options.get("priority_steps") or STEPS))


def step_of(priority: int, ordered: tuple[int, ...]) -> int:
    """The step to which a priority is rounded down."""
    return ordered[max(bisect_right(ordered, priority) - 1, 0)]


def step_queue(queue: str, priority: float | str | None, ordered: tuple[int, ...]) -> str:
    """The queue for a task with that priority, given the steps."""
    if not priority or not ordered:
        return queue
    try:
        step = step_of(int(priority), ordered)
    except (OverflowError, TypeError, ValueError):  # No number: the check of the call's headers says so.
        return queue
    return f"{queue}:{step}" if step else queue


def levels(queue: str, ordered: tuple[int, ...]) -> list[str]:
    """All queues that *queue* stands for, given the steps."""
    return list(dict.fromkeys([queue, *(f"{queue}:{step}" for step in ordered if step)]))


def base_queue(queue: str, ordered: tuple[int, ...]) -> str:
    """The queue's name as the program knows it, for a name from `levels`."""
    name, _, step = queue.rpartition(":")
    return name if name and step.isdigit() and int(step) in ordered else queue
