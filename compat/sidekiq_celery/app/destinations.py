"""
From a call to the name of its queue, as `publish` needs it: the routes of `routes`, on names alone.

Exchanges resolve to names: a route that names an exchange and a routing key goes to the queue of `task_queues` that is
bound so; of several that match (topic, fan-out) to the first, as a job is in one queue.
"""

import fnmatch
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from sidekiq_celery.app.routes import Router

if TYPE_CHECKING:
    from sidekiq_celery.app.base import Celery

__all__ = ("Destination", "Destinations")


class Binding(NamedTuple):
    """How a queue hangs on an exchange."""

    queue: str
    exchange: str
    kind: str
    routing_key: str

    def matches(self, exchange: str | None, routing_key: str | None) -> bool:
        """Whether a message with that exchange and key comes here."""
        if exchange is not None and exchange != self.exchange:
            return False
        if self.kind == "fanout" or routing_key is None:
            return exchange is not None
        if self.kind == "topic":
            return bool(_topic(self.routing_key).fullmatch(routing_key))
        return routing_key == self.routing_key


def _topic(pattern: str) -> re.Pattern[str]:
    """`*` is one word, `#` any number of them."""
    words = [{"*": r"[^.]+", "#": r".*"}.get(word, re.escape(word)) for word in pattern.split(".")]
    return re.compile(r"\.".join(words).replace(r"\..*", r"(?:\..*)?").replace(r".*\.", r"(?:.*\.)?"))


class Destination(NamedTuple):
    """The name of a queue, and the options of the call with what routes add."""

    queue: str
    options: dict[str, Any]


class _Names(Mapping[str, str]):
    """The names of the queues that there may be."""

    def __init__(self, names: set[str], aliases: dict[str, str], is_open: bool) -> None:
        self._names, self._aliases, self._is_open = names, aliases, is_open

    def __getitem__(self, name: str) -> str:
        if name in self._aliases:
            return self._aliases[name]
        if self._is_open or name in self._names:
            return name
        raise KeyError(name)

    def __iter__(self) -> Any:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Destinations:
    """
    Chooses queues by name.

    Args:
        app: Whose settings.
        routes: `task_routes`, prepared.
    """

    def __init__(self, app: "Celery", routes: Any) -> None:
        conf = app.conf
        self._app = app
        self._default: str = conf.task_default_queue
        self._bindings = _bindings(conf)
        names = {binding.queue for binding in self._bindings} or {self._default}
        self._router = Router(routes, _Names(names, _aliases(conf), bool(conf.task_create_missing_queues)), app=app)
        self._has_routes = bool(routes)

    def find(
        self,
        options: dict[str, Any],
        name: str,
        args: Any = (),
        kwargs: Any = None,
        task_type: Any = None,
        router: Any = None,
    ) -> Destination:
        """
        Where a call goes.

        Args:
            options: Of the call and of its task; `queue` may be a name or one of kombu's queues.
            name: Of the task.
            router: Instead of the app's.

        Raises:
            QueueNotFound: There is no such queue, and `task_create_missing_queues` is off.
        """
        if router is None and not self._has_routes and not options:
            return Destination(self._router.queues[self._default], {})
        given = self._router.expand_destination(dict(options))
        by_exchange = "queue" not in given and ("exchange" in given or "routing_key" in given)
        if not by_exchange:
            given = (router or self._router).route(given, name, args, kwargs, task_type)
        queue = given.pop("queue", None)
        if queue is None or ("queue" not in options and given.get("exchange")):
            queue = self._bound(given) or queue or self._default
        return Destination(getattr(queue, "name", queue), given)

    def _bound(self, options: Mapping[str, Any]) -> str | None:
        """The queue that is bound to the options' exchange and key."""
        exchange, key = options.get("exchange"), options.get("routing_key")
        exchange = getattr(exchange, "name", exchange) or None
        if exchange is None and key is None:
            return None
        found = (binding.queue for binding in self._bindings if binding.matches(exchange, key))
        return next(found, None)


def _queues(conf: Any) -> list[tuple[str, Any]]:
    given = conf.task_queues or ()
    return list(given.items()) if isinstance(given, Mapping) else [(queue.name, queue) for queue in given]


def _aliases(conf: Any) -> dict[str, str]:
    found = ((getattr(queue, "alias", None), name) for name, queue in _queues(conf))
    return {alias: name for alias, name in found if alias}


def _bindings(conf: Any) -> list[Binding]:
    default, kind = conf.task_default_exchange, conf.task_default_exchange_type

    def binding(name: str, queue: Any) -> Binding:
        if isinstance(queue, Mapping):
            exchange, key = queue.get("exchange"), queue.get("routing_key") or queue.get("binding_key")
            of_type = queue.get("exchange_type")
        else:
            exchange, key, of_type = queue.exchange, queue.routing_key, None
        of_type = of_type or getattr(exchange, "type", None) or kind
        return Binding(name, getattr(exchange, "name", exchange) or default, of_type, key or name)

    return [binding(name, queue) for name, queue in _queues(conf)]
