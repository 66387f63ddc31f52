"""
Pushes that are made together: a workflow's jobs, and what is kept of it, in one atomic step.

Inside of a task's end (`gathering`) they become part of what that writes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sidekiq_celery._send import pipeline_buffer
from sidekiq_celery.contract import App
from sidekiq_py import program
from sidekiq_py.errors import RedisError
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.redis_access.job_path.push import Outgoing

__all__ = ("keep", "send", "together")

# So that Redis is not kept from its other work by a group of a hundred thousand.
_MOST_WORDS = 10_000


@contextmanager
def together(app: App) -> Iterator[None]:
    """
    What is published within is sent at the end, and not at all if the block raises.

    Raises:
        kombu.exceptions.OperationalError: It was not sent, or nobody knows.
    """
    if pipeline_buffer.gathered() is not None:
        yield
        return
    with pipeline_buffer.gathering() as wanted:
        yield
    send(app, wanted)


def keep(app: App, commands: list[Command]) -> None:
    """Run *commands* before what is published next."""
    gathered = pipeline_buffer.gathered()
    if gathered is None:
        send(app, list(commands))
    else:
        gathered += commands


def send(app: App, wanted: list[Any]) -> None:
    """
    Send jobs and commands; after the commit where pushes wait for that.

    Raises:
        kombu.exceptions.OperationalError: They were not sent, or nobody knows.
    """
    if program.interceptor is not None and program.interceptor([one for one in wanted if isinstance(one, Outgoing)]):
        return
    if program.after_commit is None or not program.after_commit(lambda: _send_now(app, wanted)):
        _send_now(app, wanted)


def _send_now(app: App, wanted: list[Any]) -> None:
    from sidekiq_celery._send.clients import fail, pushing_client

    pool = pushing_client(app).pool
    commands = pipeline_buffer.commands(wanted)
    try:
        for some in _slices(commands):
            _write(pool, some)
    except RedisError as error:
        fail(error)


def _slices(commands: list[Command]) -> Iterator[list[Command]]:
    """All at once, but for what is very much."""
    some: list[Command] = []
    words = 0
    for command in commands:
        if some and words + len(command) > _MOST_WORDS:
            yield some
            some, words = [], 0
        some.append(command)
        words += len(command)
    if some:
        yield some


def _write(pool: Any, commands: list[Command]) -> None:
    pool.run(lambda link: in_flight.write(link, commands), idempotent=False)
