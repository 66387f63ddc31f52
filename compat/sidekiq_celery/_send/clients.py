"""The client of each app, and the errors that its failures become."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from sidekiq_celery._config.broker import redis_settings
from sidekiq_celery.contract import App
from sidekiq_py.errors import RedisError
from sidekiq_py.extension import JobDefinition, Pool
from sidekiq_py.pushing import Client, current, for_pool

_clients: "WeakKeyDictionary[App, Client]" = WeakKeyDictionary()


def client_of(app: App) -> Client:
    """
    The client that pushes the tasks of *app*: to its broker or, without one, to the program's configured Redis.

    Raises:
        ImproperlyConfigured: The broker is not Redis.
    """
    known = _clients.get(app)
    if known is not None:
        # As in Celery, which also keeps its connections: changing broker_url after the first use has no effect.
        return known
    if not app.conf.broker_write_url:
        return current()
    known = _clients[app] = Client(pool=Pool(redis_settings(app)))
    return known


def close_client_of(app: App) -> None:
    """Close the connections that *app* pushes through; a later push opens new ones."""
    known = _clients.pop(app, None)
    if known is not None:
        known.close()


def definition_of(task: Any) -> JobDefinition:
    """The task as the client sees it: its name, and the Redis it is pushed to."""
    definition: JobDefinition | None = task.__dict__.get("_job_definition")
    if definition is None:
        definition = task.__dict__["_job_definition"] = JobDefinition(task.name, {}, task)
    definition.pool = client_of(task._get_app())
    return definition


def pushing_client(app: App, definition: JobDefinition | None = None) -> Client:
    """The client for a push: that of `Client.via`, or else of *definition*, or else of *app*."""
    return for_pool(client_of(app) if definition is None or definition.pool is None else definition.pool)


def fail(error: RedisError) -> NoReturn:
    """
    Report that Redis could not be reached or refused a command, in the way that Celery programs expect.

    Raises:
        kombu.exceptions.OperationalError: Always.
    """
    raise operational(error) from error


@contextmanager
def as_operational() -> Iterator[None]:
    """
    Report Redis errors of the block in the way that Celery programs expect.

    Raises:
        kombu.exceptions.OperationalError: Redis cannot be reached, or refused.
    """
    try:
        yield
    except RedisError as error:
        fail(error)


def operational(error: RedisError) -> Exception:
    """The error that `fail` raises."""
    from kombu.exceptions import OperationalError

    return OperationalError(str(error))


def refuse(error: Exception, text: str | None = None) -> NoReturn:
    """
    Report that something cannot be sent, in the way that Celery programs expect.

    Args:
        text: The reason, if it is not that of *error*.

    Raises:
        kombu.exceptions.EncodeError: Always. Without *text*, its argument is *error*, as when kombu encodes a message.
    """
    from kombu.exceptions import EncodeError

    raise EncodeError(text or error) from error
