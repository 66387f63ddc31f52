"""The stations of this process: one for each Redis, shared by all connections to it."""

import atexit
import os
import threading
from collections.abc import Callable
from functools import partial

from sidekiq_celery.transport.consumer_session import Station
from sidekiq_py.redis_access.connection.settings import RedisSettings

__all__ = ("enter",)

_Key = tuple[RedisSettings, str | None, float]
_stations: dict[_Key, Station] = {}
_stations_lock = threading.Lock()


def enter(
    settings: RedisSettings, sidekiq_version: str | None, lease_seconds: float
) -> tuple[Station, Callable[[], None]]:
    """
    The station of this process at that Redis, and what to call when it is used no longer.

    Args:
        sidekiq_version, lease_seconds: As of `Station`.
    """
    key = settings, sidekiq_version, lease_seconds
    with _stations_lock:
        station = _stations.get(key)
        if station is None:
            station = _stations[key] = Station(*key)
        station.visit()
    return station, partial(_leave, key, station)


def _leave(key: _Key, station: Station) -> None:
    with _stations_lock:
        if station.leave() and _stations.get(key) is station:
            del _stations[key]


def _forget_inherited() -> None:
    global _stations_lock
    _stations_lock = threading.Lock()
    _stations.clear()


def _leave_all() -> None:
    for station in list(_stations.values()):
        if not station.is_inherited:
            station.leave_for_good()


os.register_at_fork(after_in_child=_forget_inherited)
atexit.register(_leave_all)
