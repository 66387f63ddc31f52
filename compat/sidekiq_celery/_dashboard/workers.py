"""The state that workers report, queried in the background while someone views a page."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

from sidekiq_celery._config.rights import with_rights_hint
from sidekiq_celery.app.base import Celery
from sidekiq_py.web import BackgroundValue

_log = logging.getLogger("sidekiq.web")

# Celery's clients wait this long for replies by default.
_PATIENCE_SECONDS = 1.0
_KEPT_SECONDS = 10.0
_LIMITS = ("rate_limit", "soft_time_limit", "time_limit")
# What only the page of a worker shows; the type of a reply that is not an error.
_DETAILS: Mapping[str, type] = {"reserved": list, "scheduled": list, "revoked": list, "conf": dict}
_MOST_WATCHED = 64


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
    def uptime_seconds(self) -> float | None:
        """For how long it has been running; None if it does not say."""
        seconds = self.stats.get("uptime")
        return float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < 2**40 else None

    @property
    def autoscale(self) -> str:
        """The bounds of its pool, as in `3 to 10`; empty if it has none."""
        bounds = _mapping(self.stats.get("autoscaler"))
        return f"{bounds.get('min')} to {bounds.get('max')}" if bounds else ""

    @property
    def totals(self) -> Mapping[str, Any]:
        """A mapping from task to the number of its runs since the worker started."""
        return _mapping(self.stats.get("total"))

    @property
    def processed(self) -> int:
        """The number of tasks that it has run since it started."""
        return sum(count for count in self.totals.values() if type(count) is int)


class Answer(NamedTuple):
    """
    A worker's reply to one query.

    Args:
        value: The reply; None if there is none.
        trouble: Why there is none; empty otherwise.
    """

    value: Any = None
    trouble: str = ""


Details = Mapping[str, Answer]
"""The replies to `reserved`, `scheduled`, `revoked` and `conf`, by these names."""


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


class DetailsWatch:
    """
    What single workers say of themselves, each asked only while someone views its page.

    Args:
        app: Talks to the workers.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lock = Lock()
        self._watched: dict[str, BackgroundValue[Details]] = {}

    def look(self, name: str) -> Details | None:
        """The last replies of the worker *name*, at most ten seconds old; None if there are none yet."""
        with self._lock:
            watch = self._watched.pop(name, None) or self._watch(name)
            self._watched[name] = watch
            while len(self._watched) > _MOST_WATCHED:
                self._watched.pop(next(iter(self._watched)))
        return watch.look()

    def _watch(self, name: str) -> BackgroundValue[Details]:
        def ask(_before: Details | None) -> Details:
            try:
                return _ask_one(self._app, name)
            except Exception as error:  # noqa: BLE001 - from kombu, redis-py or our own code; the page shows it
                trouble = f"It could not be asked: {type(error).__name__}: {with_rights_hint(error)}"
                _log.warning("a worker of Celery could not be asked: %s", trouble)
                return dict.fromkeys(_DETAILS, Answer(trouble=trouble))

        return BackgroundValue("sidekiq.web/celery-worker", ask, _KEPT_SECONDS)


def _ask_one(app: Celery, name: str) -> Details:
    with app.connection_for_write() as connection:
        inspect = app.control.inspect([name], timeout=_PATIENCE_SECONDS, limit=1, connection=connection)
        return {
            command: _answer(_mapping(getattr(inspect, command)()).get(name), kind)
            for command, kind in _DETAILS.items()
        }


def _answer(reply: Any, kind: type) -> Answer:
    if reply is None:
        return Answer(trouble="It has not answered. It is too busy, or has stopped.")
    if isinstance(reply, Mapping) and reply.keys() == {"error"}:
        return Answer(trouble=f"It cannot say: {reply['error']}")
    return Answer(reply) if isinstance(reply, kind) else Answer(trouble="Its answer cannot be read.")


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
