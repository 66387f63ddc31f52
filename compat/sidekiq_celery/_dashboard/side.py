"""An app for each Redis that a dashboard shows, and the last known state of its workers."""

from threading import Lock
from typing import Any, NamedTuple

from sidekiq_celery import _state
from sidekiq_celery._config.broker import redis_settings
from sidekiq_celery._dashboard.workers import DetailsWatch, WorkersSeen, worker_watch
from sidekiq_celery.app.base import Celery
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_py import Client
from sidekiq_py.errors import ConfigError
from sidekiq_py.extension import Pool, RedisSettings, is_same_database
from sidekiq_py.web import BackgroundValue

# Settings of the program's app: where it keeps results, and how to reach its workers.
_TAKEN_OVER = (
    *("broker_url", "broker_read_url", "broker_write_url", "broker_use_ssl", "broker_transport_options"),
    *("result_backend", "result_backend_transport_options", "redis_backend_use_ssl"),
    *("control_exchange", "control_queue_ttl", "control_queue_expires", "control_queue_durable"),
    "control_queue_exclusive",
)
_MOST_KEPT = 64

_sides: dict[tuple[str, str, str], "Side"] = {}
_lock = Lock()


class Side(NamedTuple):
    """
    The Celery side of one Redis.

    Args:
        app: Reads results and talks to workers; it runs no tasks. It only reads JSON, whatever the program's app
            accepts: anyone who can write to Redis must not be able to have pickles loaded where operators sign in.
        workers: The replies of its workers.
        details: What only the page of a worker shows.
    """

    app: Celery
    workers: BackgroundValue[WorkersSeen]
    details: DetailsWatch


def side_of(pool: Any) -> Side:
    """
    The Celery side of a Redis.

    Args:
        pool: As for `pool=` in the data API.

    Raises:
        ConfigError: It was given as anything but a URL.
    """
    settings = _settings(pool)
    theirs = _program_s_settings(settings)
    key = settings.url, settings.namespace, repr(theirs)
    with _lock:
        found = _sides.get(key)
        if found is None:
            app = _app(settings, theirs)
            found = _sides[key] = Side(app, worker_watch(app), DetailsWatch(app))
            while len(_sides) > _MOST_KEPT:
                _sides.pop(next(iter(_sides)))
        return found


def _settings(pool: Any) -> RedisSettings:
    ours = (Client() if pool is None else Client(pool=pool)).pool
    if type(ours) is not Pool:
        raise ConfigError(
            "the Celery pages need the URL of this Redis, but the dashboard was given a redis-py client; pass the URL "
            "to asgi_app as pool= or in servers="
        )
    return ours.settings


def _program_s_settings(settings: RedisSettings) -> dict[str, Any]:
    """The settings of the program's own app if its tasks are in that Redis, because it knows where results are."""
    app = _state.known_app()
    if app is None:
        return {}
    try:
        theirs = redis_settings(app)
    except ImproperlyConfigured:
        return {}
    if not is_same_database(theirs, settings) or theirs.namespace != settings.namespace:
        return {}
    known = {name: app.conf.get(name) for name in _TAKEN_OVER}
    return {name: value for name, value in known.items() if value}


def _app(settings: RedisSettings, theirs: dict[str, Any]) -> Celery:
    app = Celery("dashboard", set_as_current=False, fixups=[])
    prefix = {"global_keyprefix": f"{settings.namespace}:"} if settings.namespace else {}
    app.conf.update(
        broker_url=settings.url,
        result_backend=settings.url,
        broker_transport_options=prefix,
        result_backend_transport_options=prefix,
    )
    app.conf.update(theirs)
    app.conf.update(accept_content=["json"], result_accept_content=["json"], task_serializer="json")
    return app
