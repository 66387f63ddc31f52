"""
Django in a worker: settings and apps are set up, every app's module `jobs` is found, and no job works on a connection
that the database has given up.

A worker does this by itself when `DJANGO_SETTINGS_MODULE` is set; other programs call `set_up`.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.db import connections

from sidekiq_py import program

JOBS = "jobs"


def set_up() -> None:
    """Make Django ready, import every app's jobs, and look after the database connections of each job."""
    django.setup()
    discover_jobs()
    if fresh_connections not in program.server_middleware:
        program.server_middleware.prepend(fresh_connections)


def discover_jobs() -> list[str]:
    """Import `<app>.jobs` of every installed app that has it; the names of the modules."""
    names = [f"{config.name}.{JOBS}" for config in apps.get_app_configs()]
    found = [name for name in names if find_spec(name) is not None]
    for name in found:
        import_module(name)
    return found


def close_old_connections() -> None:
    """
    As Django's function of this name, but for connections in an atomic block.

    A test case that runs jobs inline holds one; Django's own would close it under its feet.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


class FreshConnections:
    """
    Server middleware: before and after each job, close what has broken or is older than `CONN_MAX_AGE`.

    Django does the same around each request.
    """

    def __call__(self, job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        """Around a job in a thread: that thread's connections."""
        close_old_connections()
        try:
            return call_next()
        finally:
            close_old_connections()

    async def acall(self, job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        """Around an `async def` job: those of the thread in which Django runs what such jobs ask of the database."""
        close = sync_to_async(close_old_connections)
        await close()
        try:
            return await call_next()
        finally:
            await close()


fresh_connections = FreshConnections()
