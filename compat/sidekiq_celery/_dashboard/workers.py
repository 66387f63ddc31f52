"""The state that workers report, queried in the background while someone views a page."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sidekiq_celery._config.rights import with_rights_hint
from sidekiq_celery.app.base import Celery
from sidekiq_py.web import BackgroundValue

_log = logging.getLogger("sidekiq.web")

# Celery's clients wait this long for replies by default.
_PATIENCE_SECONDS = 1.0
_KEPT_SECONDS = 10.0
_LIMITS = ("rate_limit", "soft_time_limit", "time_limit")


@dataclass(frozen=True, slots=True)
class Worker:
    """
    A worker that has answered.

    Args:
        name: The name of its node.
        stats: As in `inspect().stats()`.
        queues: The names of the queues that it serves.
        active: The tasks that it is running, as in `inspect().active()`.
        registered: A mapping from its tasks to the limits that are set, as text: `rate_limit`, and in seconds
            `soft_time_limit` and `time_limit`.
    """

    name: str
    stats: Mapping[str, Any]
    queues: tuple[str, ...]
    active: tuple[Mapping[str, Any], ...]
    registered: Mapping[str, Mapping[str, str]]

    @property
    def pool(self) -> Mapping[str, Any]:
        """The details of its pool."""
        return _mapping(self.stats.get("pool"))

    @property
    def totals(self) -> Mapping[str, Any]:
        """A mapping from task to the number of its runs since the worker started."""
        return _mapping(self.stats.get("total"))

    @property
    def processed(self) -> int:
        """The number of tasks that it has run since it started."""
        return sum(count for count in self.totals.values() if type(count) is int)


class TaskLimit(NamedTuple):
    """
    The limits of a task that workers have registered.

    Args:
        rates: Its rate limits, empty for none; more than one if workers run different releases of the program.
        soft, hard: Its time limits in seconds, likewise.
        workers: The number of workers that have registered it.
    """

    name: str
    rates: tuple[str, ...]
    soft: tuple[str, ...]
    hard: tuple[str, ...]
    workers: int


@dataclass(frozen=True, slots=True)
class WorkersSeen:
    """
    The workers' last replies.

    Args:
        workers: The workers by name.
        trouble: Why the workers could not be queried; empty if there was no error.
    """

    workers: Mapping[str, Worker] = field(default_factory=dict)
    trouble: str = ""

    @property
    def limits(self) -> list[TaskLimit]:
        """The limits of all registered tasks, by name."""
        known: dict[str, list[Mapping[str, str]]] = {}
        for worker in self.workers.values():
            for name, limits in worker.registered.items():
                known.setdefault(name, []).append(limits)

        def each(reports: list[Mapping[str, str]], kind: str) -> tuple[str, ...]:
            return tuple(sorted({limits.get(kind, "") for limits in reports}))

        return [
            TaskLimit(
                name,
                each(reports, "rate_limit"),
                each(reports, "soft_time_limit"),
                each(reports, "time_limit"),
                len(reports),
            )
            for name, reports in sorted(known.items())
        ]


def worker_watch(app: Celery) -> BackgroundValue[WorkersSeen]:
    """The replies of all workers of *app* to remote control, at most ten seconds old."""

    def ask(_before: WorkersSeen | None) -> WorkersSeen:
        try:
            return WorkersSeen(_ask_all(app))
        except Exception as error:  # noqa: BLE001 - from kombu, redis-py or our own code; the page shows it
            trouble = f"{type(error).__name__}: {with_rights_hint(error)}"
            _log.warning("the workers of Celery could not be asked: %s", trouble)
            return WorkersSeen(trouble=trouble)

    return BackgroundValue("sidekiq.web/celery", ask, _KEPT_SECONDS)


def _ask_all(app: Celery) -> dict[str, Worker]:
    with app.connection_for_write() as connection:
        stats = app.control.inspect(timeout=_PATIENCE_SECONDS, connection=connection).stats() or {}
        if not stats:
            return {}
        # The other queries do not have to wait for the timeout: it is known who will answer.
        names = list(stats)
        inspect = app.control.inspect(names, timeout=_PATIENCE_SECONDS, limit=len(names), connection=connection)
        queues, active = _mapping(inspect.active_queues()), _mapping(inspect.active())
        registered = _mapping(inspect.registered(*_LIMITS))
    return {
        name: Worker(
            name,
            _mapping(stats[name]),
            tuple(_names(queues.get(name))),
            tuple(one for one in _items(active.get(name)) if isinstance(one, Mapping)),
            dict(_limits(one) for one in _items(registered.get(name)) if isinstance(one, str)),
        )
        for name in sorted(stats)
    }


def _names(queues: Any) -> list[str]:
    return [str(queue.get("name")) for queue in _items(queues) if isinstance(queue, Mapping)]


def _limits(text: str) -> tuple[str, dict[str, str]]:
    """Parse `shop.add [rate_limit=10/m time_limit=30]` into the task's name and its limits by name."""
    name, _, more = text.partition(" [")
    pairs = (part.partition("=") for part in more.rstrip("]").split())
    return name, {kind: value for kind, _, value in pairs if kind in _LIMITS}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
