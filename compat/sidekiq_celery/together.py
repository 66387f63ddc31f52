"""
Pushes that are made together: a workflow's jobs, and what is kept of it, in one atomic step.

Inside of a task's end (`gathering`) they become part of what that writes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sidekiq_celery import gathering
from sidekiq_py import program
from sidekiq_py.errors import RedisError
from sidekiq_py.program import Outgoing
from sidekiq_py.redis_access import in_flight
from sidekiq_py.redis_access.failed_jobs import Command

if TYPE_CHECKING:
    from sidekiq_celery.app.base import Celery

__all__ = ("keep", "send", "together")

# So that Redis is not kept from its other work by a group of a hundred thousand.
_SLICE = 2000


@contextmanager
def together(app: "Celery") -> Iterator[None]:
    """
    What is published within is sent at the end, and not at all if the block raises.

    Raises:
        kombu.exceptions.OperationalError: It was not sent, or nobody knows.
    """
    if gathering.gathered() is not None:
        yield
        return
    with gathering.gathering() as wanted:
        yield
    send(app, wanted)


def keep(app: "Celery", commands: list[Command]) -> None:
    """Run *commands* before what is published next."""
    gathered = gathering.gathered()
    if gathered is None:
        send(app, list(commands))
    else:
        gathered += commands


def send(app: "Celery", wanted: list[Any]) -> None:
    """
    Send jobs and commands; after the commit where pushes wait for that.

    Raises:
        kombu.exceptions.OperationalError: They were not sent, or nobody knows.
    """
    if program.interceptor is not None and program.interceptor([one for one in wanted if isinstance(one, Outgoing)]):
        return
    if program.after_commit is None or not program.after_commit(lambda: _send_now(app, wanted)):
        _send_now(app, wanted)


def _send_now(app: "Celery", wanted: list[Any]) -> None:
    from sidekiq_celery.app.publish import pushing_client

    pool = pushing_client(app).pool
    commands = gathering.commands(wanted)
    try:
        for start in range(0, len(commands), _SLICE):
            _write(pool, commands[start : start + _SLICE])
    except RedisError as error:
        from kombu.exceptions import OperationalError

        raise OperationalError(str(error)) from error


def _write(pool: Any, commands: list[Command]) -> None:
    pool.run(lambda link: in_flight.write(link, commands), idempotent=False)
