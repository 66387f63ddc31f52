"""
What an app is made of before anything is bound to it: its state, being current, being pickled.
"""

import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, ClassVar, Protocol, Self, cast

from sidekiq_celery import _state, platforms
from sidekiq_celery._config import configuring
from sidekiq_celery._config.settings import KEY_CONVERTERS, PendingConfiguration, Settings
from sidekiq_celery.app.bug_report import appstr, bugreport
from sidekiq_celery.app.registry import TaskRegistry
from sidekiq_celery.app.task_making import Maker
from sidekiq_celery.utils.dispatch import Signal
from sidekiq_celery.utils.imports import symbol_by_name
from sidekiq_celery.utils.objects import mro_lookup

__all__ = ("AppState", "app_has_custom")


def app_has_custom(app: "AppState", attr: str) -> bool:
    """Whether a program's subclass of the app has changed *attr*."""
    return bool(mro_lookup(type(app), attr, stop={AppState, object}, monkey_patched=[__name__]))


class _Whole(configuring.Unread, Maker, Protocol):
    """What the classes above make of this."""

    _backend: Any


class AppState:
    """The state of an app; `Celery` says what the arguments are."""

    SYSTEM = platforms.SYSTEM
    IS_macOS = platforms.IS_macOS
    IS_WINDOWS = platforms.IS_WINDOWS

    main: str | None = None
    user_options: Any = None
    """Options for command lines: `user_options["worker"]` and so on."""
    steps: Any = None
    """Bootsteps; see `sidekiq_celery.bootsteps`."""
    builtin_fixups: ClassVar[Any] = frozenset({"sidekiq_celery.fixups.django:fixup"})

    amqp_cls: Any = "sidekiq_celery.app.amqp:AMQP"
    backend_cls: Any = None
    events_cls: Any = "sidekiq_celery.app.events:Events"
    loader_cls: Any = None
    log_cls: Any = "sidekiq_celery.app.log:Logging"
    control_cls: Any = "sidekiq_celery.app.control:Control"
    task_cls: Any = "sidekiq_celery.app.task:Task"
    registry_cls: Any = "sidekiq_celery.app.registry:TaskRegistry"

    on_configure: Any = None
    """Sent when settings are about to be read; a subclass may define it as a method."""

    tasks: Any
    loader: Any

    def __init__(
        self,
        main: str | None = None,
        loader: Any = None,
        backend: Any = None,
        amqp: Any = None,
        events: Any = None,
        log: Any = None,
        control: Any = None,
        set_as_current: bool = True,
        tasks: Any = None,
        broker: str | None = None,
        include: Any = None,
        changes: dict[str, Any] | None = None,
        config_source: Any = None,
        fixups: Any = None,
        task_cls: Any = None,
        autofinalize: bool = True,
        namespace: str | None = None,
        strict_typing: bool = True,
        config_source_silent: bool = False,
        **kwargs: Any,
    ) -> None:
        self._local = threading.local()
        self._backend_cache: Any = None
        self._pool: Any = None
        self.main = main
        self.amqp_cls = amqp or self.amqp_cls
        self.events_cls = events or self.events_cls
        self.loader_cls = loader or self._get_default_loader()
        self.log_cls = log or self.log_cls
        self.control_cls = control or self.control_cls
        self._custom_task_cls_used = bool(task_cls) or app_has_custom(self, "task_cls")
        self.task_cls = task_cls or self.task_cls
        self.set_as_current = set_as_current
        self.registry_cls = symbol_by_name(self.registry_cls)
        self.user_options = defaultdict(set)
        self.steps = defaultdict(set)
        self.autofinalize = autofinalize
        self.namespace = namespace
        self.strict_typing = strict_typing
        self.use_fast_trace_task = False

        self.configured = False
        self._config_source = config_source
        self._config_source_silent = config_source_silent
        self._pending_defaults: deque[Callable[[], Any]] = deque()
        self._pending_periodic_tasks: deque[tuple[str, dict[str, Any], str | None]] = deque()

        self.finalized = False
        self._finalize_mutex = threading.RLock()
        self._pending: deque[Any] = deque()
        self._duplicate_task_names_warned: set[str] = set()
        self._tasks: Any = tasks if isinstance(tasks, TaskRegistry) else self.registry_cls(tasks or {})

        self._preconf: dict[str, Any] = changes or {}
        self._preconf_set_by_auto: set[str] = set()
        for key, value in {"broker_url": broker, "result_backend": backend, "include": include, **kwargs}.items():
            self._autoset(key, value)
        self._conf: Settings | None = Settings(
            PendingConfiguration(self._preconf, lambda: configuring.load_pending(self._app)),
            prefix=self.namespace,
            keys=KEY_CONVERTERS,
        )

        self.fixups = set(self.builtin_fixups) if fixups is None else fixups
        self._fixups = [symbol_by_name(fixup)(self) for fixup in self.fixups]
        if self.set_as_current:
            self.set_current()

        if self.on_configure is None:
            self.on_configure = Signal(name="app.on_configure")
        self.on_after_configure = Signal(name="app.on_after_configure", providing_args={"source"})
        self.on_after_finalize = Signal(name="app.on_after_finalize")
        self.on_after_fork = Signal(name="app.on_after_fork")
        self.on_init()
        _state._register_app(self._app)

    @property
    def _app(self) -> _Whole:
        return cast(_Whole, self)

    def _get_default_loader(self) -> Any:
        return os.environ.get("CELERY_LOADER") or self.loader_cls or "sidekiq_celery.loaders.app:AppLoader"

    def _autoset(self, key: str, value: Any) -> None:
        if value is not None:
            self._preconf[key] = value
            self._preconf_set_by_auto.add(key)

    def on_init(self) -> None:
        """For subclasses: the app has been made."""

    def set_current(self) -> None:
        """Make this the app of this thread."""
        _state._set_current_app(self._app)

    def set_default(self) -> None:
        """Make this the app of every thread that has none."""
        _state.set_default_app(self._app)

    def close(self) -> None:
        """Close connections; shared tasks are no longer added. What is used later connects anew."""
        from sidekiq_celery._send.clients import close_client_of

        self._pool = None
        close_client_of(self._app)
        backend = self._app._backend
        if backend is not None:
            backend.close()
        _state._deregister_app(self._app)

    @property
    def conf(self) -> Settings:
        """The settings; read when one is first asked for."""
        if self._conf is None:
            return self._load_config()
        return self._conf

    @conf.setter
    def conf(self, d: Any) -> None:
        self._conf = d

    def _load_config(self) -> Settings:
        return configuring.load(self._app)

    def prepare_config(self, c: Any) -> Any:
        """For subclasses: the settings as they were read."""
        return c

    def bugreport(self) -> str:
        """What to put into a report of a bug."""
        return bugreport(self._app)

    def _after_fork(self) -> None:
        self._pool = None
        self.__dict__.pop("oid", None)
        self._local = threading.local()
        amqp = self.__dict__.get("amqp")
        if amqp is not None:
            amqp._producer_pool = None
        self.on_after_fork.send(sender=self)

    def _rgetattr(self, path: str) -> Any:
        return attrgetter(path)(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {appstr(self._app)}>"

    def __reduce__(self) -> Any:
        return _unpickle_app_v2, (type(self), self.__reduce_keys__())

    def __reduce_keys__(self) -> Mapping[str, Any]:
        """The arguments with which a pickled app is made again."""
        return {
            "main": self.main,
            "changes": self.conf.changes if self.configured else self._preconf,
            "loader": self.loader_cls,
            "backend": self.backend_cls,
            "amqp": self.amqp_cls,
            "events": self.events_cls,
            "log": self.log_cls,
            "control": self.control_cls,
            "fixups": self.fixups,
            "config_source": self._config_source,
            "config_source_silent": self._config_source_silent,
            "task_cls": self.task_cls,
            "namespace": self.namespace,
        }


def _unpickle_app_v2(cls: Any, kwargs: dict[str, Any]) -> Any:
    """An app as it was pickled. It does not become current."""
    return cls(**{**kwargs, "set_as_current": False})
