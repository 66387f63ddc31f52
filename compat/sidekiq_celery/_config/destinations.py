"""
Finds the name of a call's queue, without kombu. `app.amqp.router` is Celery's, with kombu's queues.

Exchanges are resolved to queue names. A call that names an exchange and a routing key, but no queue, goes to the queue
in `task_queues` with that binding. If several match (topic, fan-out), it goes to the first, because a job is in only
one queue; this is logged once. A `Broadcast` is rejected, because its purpose is that every worker runs the task.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from sidekiq_celery._config.routes import Router
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.utils.nodenames import WORKER_DIRECT_EXCHANGE, WORKER_DIRECT_QUEUE_FORMAT

logger = logging.getLogger("celery.app.destinations")


class _Binding(NamedTuple):
    """A queue's binding to an exchange."""

    queue: str
    exchange: str
    kind: str
    routing_key: str

    def matches(self, exchange: str | None, routing_key: str | None) -> bool:
        """Whether a message with that exchange and routing key goes to this queue."""
        if exchange is not None and exchange != self.exchange:
            return False
        if self.kind == "fanout" or routing_key is None:
            return exchange is not None
        if self.kind == "topic":
            return bool(_topic(self.routing_key).fullmatch(f".{routing_key}"))
        return routing_key == self.routing_key


def _topic(pattern: str) -> re.Pattern[str]:
    """A regex for routing keys with a leading dot: `*` is one word, `#` any number of words."""
    words = {"*": r"\.[^.]+", "#": r"(?:\.[^.]+)*"}
    return re.compile("".join(words.get(word, rf"\.{re.escape(word)}") for word in pattern.split(".")))


class _Names(dict[str, str]):
    """Maps each name that a call may use for a queue to the queue's own name. An open one has every other name, too."""

    def __init__(self, names: dict[str, str], is_open: bool) -> None:
        super().__init__(names)
        self._is_open = is_open

    def __missing__(self, name: str) -> str:
        if self._is_open:
            return name
        raise KeyError(name)


class NameRouter(Router):
    """
    Routes calls to names of queues.

    Args:
        app: The app whose settings to use.
        routes: `task_routes`, as returned by `prepare`.
    """

    def __init__(self, app: App, routes: Any) -> None:
        conf = app.conf
        queues = _declared(conf.task_queues)
        names = {name: name for name, _ in queues} or {conf.task_default_queue: conf.task_default_queue}
        aliases = {_alias(queue): name for name, queue in queues}
        is_open = bool(conf.task_create_missing_queues)
        names.update((alias, name) for alias, name in aliases.items() if alias)
        super().__init__(routes, _Names(names, is_open), is_open, app=app)
        self._bindings = [binding for name, queue in queues for binding in _bindings(name, queue, conf)]
        self._broadcasts = {name: queue.alias for name, queue in queues if _is_broadcast(queue)}
        self._logged: set[str] = set()
        self._default_queue = conf.task_default_queue
        # A routing key by itself belongs to the default exchange, where a direct one knows no key but the queue's name.
        self._is_default_direct = conf.task_default_exchange_type == "direct"

    def route(
        self, options: Any, name: str, args: Any = (), kwargs: Any = None, task_type: Any = None
    ) -> dict[str, Any]:
        """
        *options* with the additions of routes. They always include `queue`, a name or one of kombu's queues.

        Raises:
            QueueNotFound: There is no such queue, and `task_create_missing_queues` is off.
        """
        given = self.expand_destination(options)
        bound = self._bound(given)
        if bound is not None:
            return {**given, "queue": bound}
        routed = super().route(given, name, args, kwargs, task_type)
        if "queue" not in given and (routed.get("exchange") or not (routed.get("queue") or self._is_default_direct)):
            routed["queue"] = self._bound({**routed, "queue": None}) or routed.get("queue")
        if not routed.get("queue"):
            # The route names an exchange or a key that lead to no queue.
            routed |= self.expand_destination(self._default_queue)
        return routed

    def find(
        self,
        options: Mapping[str, Any],
        name: str,
        args: Any = (),
        kwargs: Any = None,
        task_type: Any = None,
        router: Router | None = None,
    ) -> tuple[str, dict[str, Any]]:
        """
        The name of a call's queue, and its other options with the additions of routes.

        Args:
            router: A router to use instead of this one.

        Raises:
            QueueNotFound: There is no such queue, and `task_create_missing_queues` is off.
            ImproperlyConfigured: The queue is a broadcast.
        """
        routed = (router or self).route(dict(options), name, args, kwargs, task_type)
        queue = routed.pop("queue")
        wanted = getattr(queue, "name", queue)
        if wanted in self._broadcasts or (queue is not wanted and _is_broadcast(queue)):
            alias = self._broadcasts.get(wanted) or queue.alias
            raise ImproperlyConfigured(
                f"{name} is sent to the broadcast {alias!r}, which is not known here: a job is run once. To reach "
                "every worker use a control command (sidekiq_celery.worker.control.control_command)"
            )
        return wanted, routed

    def _bound(self, options: Mapping[str, Any]) -> str | None:
        """The queue whose binding matches *options*. Returns None if they name a queue, or neither exchange nor key."""
        exchange, key = options.get("exchange"), options.get("routing_key")
        if options.get("queue") or not (exchange or key):
            return None
        wanted = getattr(exchange, "name", exchange) or None
        if wanted == WORKER_DIRECT_EXCHANGE and key:
            # The key is the node name of a worker, whose queue of its own is not among those of the settings.
            return WORKER_DIRECT_QUEUE_FORMAT.format(hostname=key)
        found = [binding.queue for binding in self._bindings if binding.matches(wanted, key)]
        if len(set(found)) > 1:
            self._log_ambiguous(wanted or "", found)
        return found[0] if found else None

    def _log_ambiguous(self, exchange: str, queues: list[str]) -> None:
        if exchange not in self._logged:
            self._logged.add(exchange)
            logger.warning(
                "the exchange %r leads to the queues %s; a job goes to the first of them only, as it is in one queue",
                *(exchange, ", ".join(dict.fromkeys(queues))),
            )


def _declared(queues: Any) -> list[tuple[str, Any]]:
    if isinstance(queues, Mapping):
        return list(queues.items())
    return [(queue.name, queue) for queue in queues or ()]


def _alias(queue: Any) -> str | None:
    return queue.get("alias") if isinstance(queue, Mapping) else getattr(queue, "alias", None)


def _is_broadcast(queue: Any) -> bool:
    """Whether *queue* is kombu's `Broadcast`: a queue for each process, under one alias."""
    return any((kind.__module__, kind.__name__) == ("kombu.common", "Broadcast") for kind in type(queue).__mro__)


def _bindings(name: str, queue: Any, conf: Any) -> list[_Binding]:
    """The queue's bindings: usually one, or several if it is bound with several keys."""
    several = getattr(queue, "bindings", None) or [queue]
    return [_binding(name, each, conf) for each in several]


def _binding(name: str, queue: Any, conf: Any) -> _Binding:
    if isinstance(queue, Mapping):
        exchange, kind = queue.get("exchange"), queue.get("exchange_type")
        key = queue.get("routing_key") or queue.get("binding_key")
    else:
        exchange, key, kind = queue.exchange, queue.routing_key, None
    exchange_name = getattr(exchange, "name", exchange)
    if not exchange_name:
        # As in Celery, this is the default exchange, with its type. Kombu says that one without a name is direct.
        exchange_name, kind = conf.task_default_exchange, conf.task_default_exchange_type
    # As in kombu; `task_default_exchange_type` is the type of the default exchange alone.
    kind = kind or getattr(exchange, "type", None) or "direct"
    return _Binding(name, exchange_name, kind, key or name)
