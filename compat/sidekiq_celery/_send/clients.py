"""The client of each app, and what its failures are raised as."""

from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from sidekiq_celery._config.broker import redis_settings
from sidekiq_celery.contract import App
from sidekiq_py.errors import RedisError
from sidekiq_py.extension import JobDefinition, Pool
from sidekiq_py.pushing import Client, current, for_job

__all__ = (
    "client_of",
    "close_client_of",
    "definition_of",
    "fail",
    "operational",
    "pushing_client",
    "refuse",
)

_clients: "WeakKeyDictionary[App, Client]" = WeakKeyDictionary()


def client_of(app: App) -> Client:
    """
    What pushes the tasks of *app*: to its broker; without one, to where the program is configured to push.

    Raises:
        ImproperlyConfigured: The broker is no Redis.
    """
    known = _clients.get(app)
    if known is not None:
        # As in Celery, where connections are kept too: another broker_url comes too late after the first use.
        return known
    if not app.conf.broker_write_url:
        return current()
    known = _clients[app] = Client(pool=Pool(redis_settings(app)))
    return known


def close_client_of(app: App) -> None:
    """Close the connections by which *app* pushes; a later push makes new ones."""
    known = _clients.pop(app, None)
    if known is not None:
        known.close()


def definition_of(task: Any) -> JobDefinition:
    """What the client knows of a task: its name, and where it is pushed to."""
    definition: JobDefinition | None = task.__dict__.get("_job_definition")
    if definition is None:
        definition = task.__dict__["_job_definition"] = JobDefinition(task.name, {}, task)
    definition.pool = client_of(task._get_app())
    return definition


def pushing_client(app: App, definition: JobDefinition | None = None) -> Client:
    """The client for a push: of `Client.via`, else of *definition*, else of *app*."""
    if definition is None or definition.pool is None:
        definition = JobDefinition("", {}, None, pool=client_of(app))
    return for_job(definition)


def fail(error: RedisError) -> NoReturn:
    """
    Say that Redis was not reached, or refused, as programs that come from Celery expect it.

    Raises:
        kombu.exceptions.OperationalError: In any case.
    """
    raise operational(error) from error


def operational(error: RedisError) -> Exception:
    """The error of `fail`."""
    from kombu.exceptions import OperationalError

    made: Exception = OperationalError(str(error))
    return made


def refuse(error: Exception) -> NoReturn:
    """
    Say that something cannot be sent, as programs that come from Celery expect it.

    Raises:
        kombu.exceptions.EncodeError: In any case.
    """
    from kombu.exceptions import EncodeError

    raise EncodeError(str(error)) from error
