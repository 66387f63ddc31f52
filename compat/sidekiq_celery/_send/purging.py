"""Emptying queues."""

from collections.abc import Iterable

from sidekiq_celery._send.clients import client_of, fail
from sidekiq_celery._send.emptying import empty
from sidekiq_celery._wire.priorities import levels, steps
from sidekiq_celery.contract import App
from sidekiq_py.errors import RedisError

__all__ = ("purge",)


def purge(app: App, names: Iterable[str]) -> int:
    """
    Remove all waiting jobs from queues, and return their number. Running and scheduled jobs stay.

    Raises:
        kombu.exceptions.OperationalError: Redis cannot be reached, or refused.
    """
    queues = (level for name in names for level in levels(name, steps(app)))
    try:
        return sum(empty(client_of(app).pool, queue) for queue in queues)
    except RedisError as error:
        fail(error)
