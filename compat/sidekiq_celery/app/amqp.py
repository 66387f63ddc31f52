"""`app.amqp`: queues, routes and kombu's classes. kombu is not imported until one of them is used."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sidekiq_celery._config import routes as _routes
from sidekiq_celery._config.destinations import NameRouter
from sidekiq_celery.contract import App
from sidekiq_celery.utils.objects import cached_property

if TYPE_CHECKING:
    from sidekiq_celery._config.queues import Queues

__all__ = ("AMQP", "Queues")

_ROUTING = ("task_routes", "task_queues", "task_default_queue", "task_create_missing_queues")


def __getattr__(name: str) -> Any:
    if name == "Queues":
        from sidekiq_celery._config.queues import Queues

        return Queues
    raise AttributeError(f"module 'sidekiq_celery.app.amqp' has no attribute {name!r}")


def _of_kombu(name: str, module: str) -> property:
    # kombu replaces its own module during its import. A thread that imports it at the same moment gets the one that it
    # has replaced, which lacks the class.
    return property(lambda self: getattr(import_module(module), name), doc=f"kombu's `{name}` class.")


class AMQP:
    """
    An app's queues and routes.

    Args:
        app: The app.
    """

    autoexchange: Any = None
    """Makes the exchange of a queue that is added by name."""
    argsrepr_maxsize = 1024
    kwargsrepr_maxsize = 1024

    def __init__(self, app: App) -> None:
        self.app = app
        self._producer_pool: Any = None
        self._rtable: Any = None
        # Routes may change with the settings while the program runs.
        app.conf.bind_to(self._handle_conf_update)

    def _handle_conf_update(self, *args: Any, **kwargs: Any) -> None:
        changed = {**(args[0] if args else {}), **kwargs}
        names = (name for setting in _ROUTING for name in self.app.conf.names_of(setting))
        if any(name in changed for name in names):
            self.flush_routes()

    Connection = _of_kombu("Connection", "kombu.connection")
    Consumer = _of_kombu("Consumer", "kombu.messaging")
    Producer = _of_kombu("Producer", "kombu.messaging")

    @cached_property
    def queues(self) -> Any:
        """`task_queues`, or the default queue, as kombu's queues."""
        return self.Queues(self.app.conf.task_queues)

    def Queues(self, queues: Any, create_missing: bool | None = None, **given: Any) -> Any:
        """Make a set of queues. Options that are not given come from the settings."""
        from kombu.entity import Queue

        from sidekiq_celery._config.queues import Queues

        conf = self.app.conf
        options = {
            "create_missing": conf.task_create_missing_queues,
            "create_missing_queue_type": conf.task_create_missing_queue_type,
            "create_missing_queue_exchange_type": conf.task_create_missing_queue_exchange_type,
            "max_priority": conf.task_queue_max_priority,
            "autoexchange": self.autoexchange,
            **{key: value for key, value in given.items() if value is not None},
            **({} if create_missing is None else {"create_missing": create_missing}),
        }
        if not queues and conf.task_default_queue:
            quorum = conf.task_default_queue_type == "quorum"
            queues = (
                Queue(
                    conf.task_default_queue,
                    exchange=self.default_exchange,
                    routing_key=conf.task_default_routing_key,
                    queue_arguments={"x-queue-type": "quorum"} if quorum else None,
                ),
            )
        return Queues(
            queues,
            default_exchange=self.default_exchange,
            default_routing_key=conf.task_default_routing_key,
            **options,
        )

    def Router(self, queues: Any = None, create_missing: bool | None = None) -> Any:
        """Make a router that follows `task_routes`."""
        missing = self.app.either("task_create_missing_queues", create_missing)
        return _routes.Router(self.routes, queues or self.queues, missing, app=self.app)

    @cached_property
    def destinations(self) -> NameRouter:
        """Chooses the name of the queue for a call, without kombu."""
        return NameRouter(self.app, self.routes)

    @cached_property
    def router(self) -> Any:
        """Tells which of kombu's queues a call goes to."""
        return self.Router()

    def flush_routes(self) -> None:
        """Read `task_routes` and `task_queues` again."""
        self._rtable = _routes.prepare(self.app.conf.task_routes)
        for name in ("queues", "router", "destinations"):
            self.__dict__.pop(name, None)

    @property
    def routes(self) -> Any:
        """`task_routes` as routers."""
        if self._rtable is None:
            self._rtable = _routes.prepare(self.app.conf.task_routes)
        return self._rtable

    def TaskConsumer(self, channel: Any, queues: Any = None, accept: Any = None, **kw: Any) -> Any:
        """Make a kombu consumer of the queues that are served."""
        return self.Consumer(
            channel,
            accept=self.app.conf.accept_content if accept is None else accept,
            queues=queues or list(self.queues.consume_from.values()),
            **kw,
        )

    @property
    def default_queue(self) -> Any:
        """The queue of tasks that no route sends elsewhere."""
        return self.queues[self.app.conf.task_default_queue]

    @cached_property
    def default_exchange(self) -> Any:
        """The exchange of the default queue."""
        from kombu.entity import Exchange

        conf = self.app.conf
        return Exchange(conf.task_default_exchange, conf.task_default_exchange_type)

    @property
    def producer_pool(self) -> Any:
        """The pool of kombu producers."""
        if self._producer_pool is None:
            from kombu import pools

            self._producer_pool = pools.producers[self.app.connection_for_write()]
            self._producer_pool.limit = self.app.pool.limit
        return self._producer_pool

    publisher_pool = producer_pool

    @cached_property
    def create_task_message(self) -> Callable[..., Any]:
        """Builds the message of a call; see `message.as_task_v2`."""
        from sidekiq_celery._wire.message import as_task_v2

        return partial(as_task_v2, self.app)

    @property
    def as_task_v2(self) -> Callable[..., Any]:
        """`create_task_message`, under the name of the protocol."""
        return self.create_task_message

    @cached_property
    def as_task_v1(self) -> Callable[..., Any]:
        """Builds the message of a call in protocol 1, for programs that ask for it."""
        from sidekiq_celery._wire.message import as_task_v1

        return partial(as_task_v1, self.app)

    @property
    def task_protocols(self) -> dict[int, Callable[..., Any]]:
        """The functions that build messages, by the number of their protocol."""
        return {1: self.as_task_v1, 2: self.as_task_v2}

    @cached_property
    def utc(self) -> bool:
        """`enable_utc`."""
        return bool(self.app.conf.enable_utc)
