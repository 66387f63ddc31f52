"""The app: `Celery`."""

import os
import sys
import threading
from functools import cached_property
from types import GenericAlias
from typing import Any, cast

from sidekiq_celery import _state, platforms
from sidekiq_celery._config import effects
from sidekiq_celery.app.app_tasks import AppTasks
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.utils.imports import instantiate, symbol_by_name

__all__ = ("Celery",)

_OMITTED: Any = object()
"""An option of `send_task` that the caller left out, where None means none."""


class Celery(AppTasks):
    """
    An app: settings, tasks, and all that is bound to them.

    Args:
        main: Stands for `__main__` in the names of tasks.
        loader: Reads settings and imports modules; a class or its name.
        backend, broker, include: The settings `result_backend`, `broker_url` and `include`.
        amqp, events, log, control: Classes, or their names, of what the attributes are.
        set_as_current: The app becomes that of this thread.
        tasks: A registry, or its class.
        changes: Settings.
        config_source: As for `config_from_object`.
        fixups: Called with the app, by name.
        task_cls: What tasks derive from.
        autofinalize: Tasks may be used before `finalize` was called.
        namespace: Settings bear it in front, in capitals.
        strict_typing: Arguments are checked before a task is sent.
        kwargs: Further settings.
    """

    # By its name, as the parts of an app are: the command line knows apps.
    _command_line: Any = "sidekiq_celery.bin.celery:celery"

    def start(self, argv: list[str] | None = None) -> Any:
        """Run the command line with *argv*, else the process's own; returns its exit code."""
        from click.exceptions import Exit

        celery: Any = symbol_by_name(self._command_line)
        app_option = celery.params[0]
        app_option.default = self
        try:
            return celery.main(args=sys.argv if argv is None else argv, standalone_mode=False)
        except Exit as stopped:
            return stopped.exit_code
        finally:
            app_option.default = None

    def worker_main(self, argv: list[str] | None = None) -> None:
        """
        Run a worker with *argv*, else the process's own arguments.

        Raises:
            ValueError: They do not name the command `worker`.
        """
        given = sys.argv if argv is None else argv
        if "worker" not in given:
            raise ValueError(
                "The worker sub-command must be specified in argv.\n"
                "Use app.start() to programmatically start other commands."
            )
        self.start(argv=given)

    def setup_security(self, allowed_serializers: Any = None, *args: Any, **kwargs: Any) -> None:
        """
        Take messages in no serializer but JSON and those that are allowed; for all apps of the process.

        Raises:
            ImproperlyConfigured: Messages are to be signed.
        """
        from kombu.serialization import disable_insecure_serializers

        if args or kwargs or self.conf.task_serializer == "auth":
            raise ImproperlyConfigured(
                "messages cannot be signed here (serializer 'auth'); protect Redis by TLS and users of its own instead"
            )
        disable_insecure_serializers(allowed_serializers)

    def send_task(
        self,
        name: str,
        args: Any = None,
        kwargs: Any = None,
        countdown: float | None = None,
        eta: Any = None,
        task_id: str | None = None,
        producer: Any = None,
        connection: Any = None,
        router: Any = None,
        result_cls: Any = None,
        expires: Any = _OMITTED,
        publisher: Any = None,
        link: Any = None,
        link_error: Any = None,
        add_to_parent: bool = True,
        group_id: str | None = None,
        group_index: int | None = None,
        retries: int = 0,
        chord: Any = None,
        reply_to: str | None = None,
        time_limit: Any = _OMITTED,
        soft_time_limit: Any = _OMITTED,
        root_id: str | None = None,
        parent_id: str | None = None,
        route_name: str | None = None,
        shadow: str | None = None,
        chain: Any = None,
        task_type: Any = None,
        replaced_task_nesting: int = 0,
        **options: Any,
    ) -> Any:
        """
        Send a task by its name; its code need not be here. Options are those of `apply_async`.

        Returns:
            The result's handle.

        Raises:
            TypeError: *name* is no text.
        """
        # Not the module from its package: at each call that costs a microsecond, which is 2 % of `delay()`.
        from sidekiq_celery._send.plain_calls import Manner, Place, send

        omitted = {"expires": expires, "time_limit": time_limit, "soft_time_limit": soft_time_limit}
        options |= {key: value for key, value in omitted.items() if value is not _OMITTED}
        is_special = countdown or eta or link or link_error or shadow or retries or replaced_task_nesting
        if task_type is not None and not (is_special or router or route_name):
            place = Place(task_id, group_id, group_index, root_id, parent_id, chord, chain, reply_to)
            how = Manner(result_cls, producer or publisher, add_to_parent)
            sent = send(self, task_type, args, kwargs, place, options, how)
            if sent is not None:
                return sent
        from sidekiq_celery._send import publish

        if not isinstance(name, str):
            raise TypeError(f"send_task takes the name of a task, as in 'shop.tasks.pay', and was given {name!r}")
        return publish.send_task(
            self,
            name,
            args,
            kwargs,
            countdown=countdown,
            eta=eta,
            task_id=task_id,
            producer=producer or publisher,
            connection=connection,
            router=router,
            result_cls=result_cls,
            link=link,
            link_error=link_error,
            add_to_parent=add_to_parent,
            group_id=group_id,
            group_index=group_index,
            retries=retries,
            chord=chord,
            reply_to=reply_to,
            root_id=root_id,
            parent_id=parent_id,
            route_name=route_name,
            shadow=shadow,
            chain=chain,
            task_type=task_type,
            replaced_task_nesting=replaced_task_nesting,
            **options,
        )

    # By which `steps` sees whether a program or package has put something in its place.
    _own_send_task = send_task

    def signature(self, *args: Any, **kwargs: Any) -> Any:
        """A signature that is bound to this app."""
        kwargs["app"] = self
        return self._canvas.signature(*args, **kwargs)

    def connection_for_read(self, url: str | None = None, **kwargs: Any) -> Any:
        """A connection to where workers look for jobs."""
        return self._connection(url or self.conf.broker_read_url, **kwargs)

    def connection_for_write(self, url: str | None = None, **kwargs: Any) -> Any:
        """A connection to where jobs are sent."""
        return self._connection(url or self.conf.broker_write_url, **kwargs)

    def connection(self, hostname: str | None = None, **kwargs: Any) -> Any:
        """
        A connection to the broker, or to the URL *hostname*; keywords are those of `kombu.Connection`.
        """
        return self.connection_for_write(hostname or self.conf.broker_write_url, **kwargs)

    broker_connection = connection

    def _connection(self, url: str | None, **kwargs: Any) -> Any:
        from sidekiq_celery._config.connections import connect

        return connect(self, url, **kwargs)

    def _acquire_connection(self, pool: bool = True) -> Any:
        from sidekiq_celery._config.connections import acquire_connection

        return acquire_connection(self, pool)

    def connection_or_acquire(self, connection: Any = None, pool: bool = True, *_: Any, **__: Any) -> Any:
        """*connection*, or one of the pool, in a `with`."""
        from sidekiq_celery._config.connections import connection_or_acquire

        return connection_or_acquire(self, connection, pool)

    default_connection = connection_or_acquire

    def _acquire_producer(self, timeout: float | None = None) -> Any:
        from sidekiq_celery._config.connections import acquire_producer

        return acquire_producer(self, timeout)

    def producer_or_acquire(self, producer: Any = None) -> Any:
        """*producer*, or one of the pool, in a `with`."""
        from sidekiq_celery._config.connections import producer_or_acquire

        return producer_or_acquire(self, producer)

    default_producer = producer_or_acquire

    @property
    def pool(self) -> Any:
        """kombu's connections that are kept."""
        if self._pool is None:
            from sidekiq_celery._config.connections import pool_of

            self._pool = pool_of(self)
        return self._pool

    @property
    def producer_pool(self) -> Any:
        """kombu's producers that are kept."""
        return self.amqp.producer_pool

    @cached_property
    def amqp(self) -> Any:
        """Queues, routes and kombu's objects."""
        return instantiate(self.amqp_cls, app=self)

    @cached_property
    def control(self) -> Any:
        """Remote control of workers."""
        return instantiate(self.control_cls, app=self)

    @cached_property
    def events(self) -> Any:
        """Events, sent and received."""
        return instantiate(self.events_cls, app=self)

    @cached_property
    def log(self) -> Any:
        """The set-up of logging."""
        return instantiate(self.log_cls, app=self)

    @cached_property
    def _canvas(self) -> Any:
        from sidekiq_celery import canvas

        return canvas

    @cached_property
    def clock(self) -> Any:
        """The logical clock of events and remote control."""
        from kombu.clocks import LamportClock

        return LamportClock()

    @property
    def backend(self) -> Any:
        """Where results are."""
        found = self._backend
        if found is None:
            found = self._backend = self._get_backend()
        return found

    @property
    def _backend(self) -> Any:
        found = self._backend_cache
        return getattr(self._local, "backend", None) if found is None else found

    @_backend.setter
    def _backend(self, backend: Any) -> None:
        if backend.thread_safe:
            self._backend_cache = backend
        else:
            self._local.backend = backend

    def _get_backend(self) -> Any:
        from sidekiq_celery.app import backends

        backend, url = backends.by_url(self.backend_cls or self.conf.result_backend, self.loader)
        return backend(app=self, url=url)

    @cached_property
    def oid(self) -> str:
        """The id of this app in this process."""
        return platforms.unique_id(self)

    @property
    def thread_oid(self) -> str:
        """The id of this app in this thread."""
        if not hasattr(self._local, "oid"):
            self._local.oid = platforms.unique_id(self, threading.get_ident())
        oid: str = self._local.oid
        return oid

    def select_queues(self, queues: Any = None) -> Any:
        """Have the worker serve those queues alone."""
        return self.amqp.queues.select(queues)

    __class_getitem__: Any = classmethod(GenericAlias)


App = Celery


def _tell_apps_of_the_fork() -> None:
    for app in cast(tuple[Celery, ...], tuple(_state._get_active_apps())):
        app._after_fork()


os.register_at_fork(after_in_child=_tell_apps_of_the_fork)
effects.watch_workers()
