"""`task_routes`: finding the queue for a task."""

import fnmatch
import re
from collections.abc import Mapping
from typing import Any

from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import ImproperlyConfigured, QueueNotFound
from sidekiq_celery.utils.collections import lpmerge
from sidekiq_celery.utils.functional import maybe_evaluate, mlazy
from sidekiq_celery.utils.imports import symbol_by_name


def _as_route(value: Any) -> dict[str, Any]:
    try:
        return {"queue": value} if isinstance(value, str) else dict(value)
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(
            f"task_routes has {value!r} as a route; give the queue's name, or options, as in {{'queue': 'low'}}"
        ) from error


def _pairs(routes: Any) -> list[tuple[Any, Any]]:
    try:
        return [(key, route) for key, route in (routes.items() if isinstance(routes, Mapping) else routes)]
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(
            f"task_routes has {routes!r}, which is neither a dict, as in {{'proj.tasks.*': {{'queue': 'low'}}}}, nor a "
            "list of pairs; a list of pairs is one router, so put it into a list of routers: [[(name, route), …]]"
        ) from error


class MapRoute:
    """A router made from task names, globs and patterns. An exact name takes precedence, then the others in order."""

    def __init__(self, map: Any) -> None:
        self.map: dict[str, Any] = {}
        self.patterns: dict[re.Pattern[str], Any] = {}
        for key, route in _pairs(map):
            if isinstance(key, re.Pattern):
                self.patterns[key] = route
            elif "*" in key:
                self.patterns[re.compile(fnmatch.translate(key))] = route
            else:
                self.map[key] = route

    @property
    def queues(self) -> list[Any]:
        """The queues that its routes name, as they are given: names, or kombu's queues."""
        routes = map(_as_route, (*self.map.values(), *self.patterns.values()))
        return [route["queue"] for route in routes if route.get("queue")]

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        if name in self.map:
            return _as_route(self.map[name])
        found = (route for pattern, route in self.patterns.items() if pattern.match(name))
        route = next(found, None)
        return None if route is None else _as_route(route)


class Router:
    """
    Chooses the options that determine a call's queue.

    Args:
        routes: As returned by `prepare`; the first one that returns a route decides.
        queues: A mapping from name to queue.
        create_missing: Only stored, for callers that read it; *queues* decides.
    """

    def __init__(
        self, routes: Any = None, queues: Any = None, create_missing: bool = False, app: App | None = None
    ) -> None:
        self.app = app
        self.queues = {} if queues is None else queues
        self.routes = [] if routes is None else routes
        self.create_missing = create_missing

    def route(
        self, options: Any, name: str, args: Any = (), kwargs: Any = None, task_type: Any = None
    ) -> dict[str, Any]:
        """
        *options* with the additions of routes and the default queue. The caller's own options take precedence.

        Raises:
            QueueNotFound: There is no such queue.
        """
        given: dict[str, Any] = self.expand_destination(options)
        if self.routes:
            found = self.lookup_route(name, args, kwargs or {}, given, task_type)
            if found:
                merged: dict[str, Any] = lpmerge(self.expand_destination(found), given)
                return merged
        if "queue" not in given and self.app is not None:
            given = lpmerge(self.expand_destination(self.app.conf.task_default_queue), given)
        return given

    def expand_destination(self, route: Any) -> Any:
        """
        A route in which the queue's name is replaced with the queue.

        Raises:
            QueueNotFound: There is no such queue.
        """
        queue, expanded = (route, {}) if isinstance(route, str) else (route.pop("queue", None), route)
        if queue and isinstance(queue, str):
            try:
                queue = self.queues[queue]
            except KeyError:
                raise QueueNotFound(f"Queue {queue!r} missing from task_queues") from None
        if queue:
            expanded["queue"] = queue
        return expanded

    def lookup_route(
        self, name: str, args: Any = None, kwargs: Any = None, options: Any = None, task_type: Any = None
    ) -> Any:
        """The first route that is not None, asking one router after another."""
        for router in self.routes:
            route = self.query_router(router, name, args, kwargs, options, task_type)
            if route is not None:
                return route
        return None

    def query_router(self, router: Any, task: str, args: Any, kwargs: Any, options: Any, task_type: Any) -> Any:
        """The route that one router returns."""
        router = maybe_evaluate(router)
        if hasattr(router, "route_for_task"):
            return router.route_for_task(task, args, kwargs)
        return router(task, args, kwargs, options, task=task_type)


def expand_router_string(router: Any) -> Any:
    """The router with that import path; an old-style router class is instantiated."""
    found = symbol_by_name(router)
    return found() if hasattr(found, "route_for_task") else found


def prepare(routes: Any) -> Any:
    """The setting as a list of routers."""

    def expand(route: Any) -> Any:
        if isinstance(route, str):
            return mlazy(expand_router_string, route)
        is_router = callable(route) or hasattr(route, "route_for_task")
        return route if is_router and not isinstance(route, Mapping) else MapRoute(route)

    if routes is None:
        return ()
    return [expand(route) for route in (routes if isinstance(routes, list | tuple) else (routes,))]
