"""
Django in a worker: sets up settings and apps, imports every app's `jobs` module, and keeps jobs from using connections
that the database has dropped, or that belong to the process from which theirs was forked.

A worker does this by itself if `DJANGO_SETTINGS_MODULE` is set; other programs call `set_up`.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.db import Error, connections

from sidekiq_py import program

JOBS = "jobs"


def set_up() -> None:
    """Set up Django, import every app's jobs, and close stale database connections around each job."""
    django.setup()
    discover_jobs()
    if fresh_connections not in program.server_middleware:
        program.server_middleware.prepend(fresh_connections)


def discover_jobs() -> list[str]:
    """Import `<app>.jobs` of every installed app that has one; returns the names of the modules."""
    names = [f"{config.name}.{JOBS}" for config in apps.get_app_configs()]
    found = [name for name in names if find_spec(name) is not None]
    for name in found:
        import_module(name)
    return found


def close_old_connections() -> None:
    """
    Like Django's function of this name, but leaves connections in an atomic block open.

    A test case that runs jobs inline holds such a connection, and Django's function would close it in mid-use.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def _drop_inherited_connections() -> None:
    """
    Let a forked process open connections of its own. If two processes used one, each would read the other's rows.

    The file is closed first: otherwise, closing the connection would tell the database to end it for the parent, too.
    """
    for connection in connections.all(initialized_only=True):
        with suppress(AttributeError, OSError, connection.Database.Error):
            os.close(connection.connection.fileno())
        with suppress(Error):
            connection.close()
        if hasattr(connection, "close_pool"):  # Django 5.1 and later, with PostgreSQL
            connection.close_pool()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_drop_inherited_connections)


class FreshConnections:
    """
    Server middleware: before and after each job, closes connections that have broken or are older than `CONN_MAX_AGE`.

    Django does the same around each request.
    """

    def __call__(self, job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        """For a job in a thread: closes that thread's connections."""
        close_old_connections()
        try:
            return call_next()
        finally:
            close_old_connections()

    async def acall(self, job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        """For an `async def` job: closes those of the thread in which Django runs the database calls of such jobs."""
        close = sync_to_async(close_old_connections)
        await close()
        try:
            return await call_next()
        finally:
            await close()


fresh_connections = FreshConnections()
