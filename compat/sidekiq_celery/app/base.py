"""The app: `Celery`."""

import logging
import os
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from datetime import datetime
from operator import attrgetter
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Literal, Self, cast, overload

from sidekiq_celery import _state, platforms, signals
from sidekiq_celery._config import configuring, connections, effects
from sidekiq_celery._config.settings import KEY_CONVERTERS, PendingConfiguration, Settings
from sidekiq_celery._send.call import Call, WorkflowPosition
from sidekiq_celery._type_variables import P, T
from sidekiq_celery.app import builtins as _builtins  # noqa: F401 - registers the tasks that every app has
from sidekiq_celery.app import task_making
from sidekiq_celery.app.bug_report import appstr, bugreport
from sidekiq_celery.app.registry import TaskRegistry
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.loaders import get_loader_cls
from sidekiq_celery.local import PromiseProxy, maybe_evaluate
from sidekiq_celery.utils.dispatch import Signal
from sidekiq_celery.utils.functional import first, head_from_fun, maybe_list
from sidekiq_celery.utils.imports import gen_task_name, instantiate, symbol_by_name
from sidekiq_celery.utils.objects import FallbackContext, cached_property, mro_lookup
from sidekiq_celery.utils.time import timezone

if TYPE_CHECKING:
    from sidekiq_celery.app.control import Control
    from sidekiq_celery.app.task import Task
    from sidekiq_celery.app.typing_of_tasks import TaskOfClass

__all__ = ("Celery", "app_has_custom")

# Programs log to it.
logger = logging.getLogger("celery.app.base")

_OMITTED: Any = object()
"""Marks an option of `send_task` that the caller left out, because None means no limit or expiry."""


def app_has_custom(app: "Celery", attr: str) -> bool:
    """True if a program's subclass of the app overrides *attr*."""
    return bool(mro_lookup(type(app), attr, stop={Celery, object}, monkey_patched=[__name__]))


def _unpickle_appattr(reverse_name: str, args: Any) -> Any:
    """Call a class that was bound to an app, after unpickling; it is bound to the current app."""
    app: Any = _state.get_current_app()
    return attrgetter(reverse_name)(app)(*args)


def _unpickle_app_v2(cls: Any, kwargs: dict[str, Any]) -> Any:
    """Rebuild a pickled app. It does not become current."""
    return cls(**{**kwargs, "set_as_current": False})


def _bound(path: str, doc: str) -> Any:
    """A class that is bound to the app when it is first used."""
    bound = cached_property(lambda app: app.subclass_with_self(path))
    bound.__doc__ = doc
    return bound


def _part(setting: str, doc: str) -> Any:
    """The part that the app's class or its caller names in *setting*, created when it is first used."""
    part = cached_property(lambda app: instantiate(getattr(app, setting), app=app))
    part.__doc__ = doc
    return part


class Celery(_state.AppType):
    """
    An app: settings, tasks, and everything bound to them.

    Args:
        main: Replaces `__main__` in the names of tasks.
        loader: Reads settings and imports modules; a class or its name.
        backend, broker, include: The settings `result_backend`, `broker_url` and `include`.
        amqp, events, log, control: Classes, or their names, for the attributes of the same names.
        set_as_current: Make this the current app of the thread.
        tasks: A registry, or its class.
        changes: Settings.
        config_source: As for `config_from_object`.
        fixups: Names of functions to call with the app.
        task_cls: The base class of tasks.
        autofinalize: Allow tasks to be used before `finalize` was called.
        namespace: A prefix of the settings' names, in capitals.
        strict_typing: Check a task's arguments before it is sent.
        kwargs: Further settings.
    """

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
    """Sent before settings are read. A subclass may define it as a method."""

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
        default_loader = os.environ.get("CELERY_LOADER") or self.loader_cls or "sidekiq_celery.loaders.app:AppLoader"
        self.loader_cls = loader or default_loader
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
        # Settings may use tasks, and tasks read the settings: with two locks, two threads could hold up each other.
        self._finalize_mutex = self._configuring = threading.RLock()
        self._pending: deque[Any] = deque()
        self._duplicate_task_names_warned: set[str] = set()
        self._tasks: Any = tasks if isinstance(tasks, TaskRegistry) else self.registry_cls(tasks or {})

        settings = {"broker_url": broker, "result_backend": backend, "include": include, **kwargs}
        given = {key: value for key, value in settings.items() if value is not None}
        self._preconf: dict[str, Any] = changes or {}
        self._preconf.update(given)
        self._preconf_set_by_auto = set(given)
        self._conf: Settings | None = Settings(
            PendingConfiguration(self._preconf, lambda: configuring.load_pending(self)),
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
        _state._register_app(self)

    def on_init(self) -> None:
        """A hook for subclasses, called when the app has been created."""

    def set_current(self) -> None:
        """Make this the current app of this thread."""
        _state._set_current_app(self)

    def set_default(self) -> None:
        """Make this the app of every thread that has no current one."""
        _state.set_default_app(self)

    def close(self) -> None:
        """Close connections, and stop adding shared tasks. Later use reconnects."""
        from sidekiq_celery._send.clients import close_client_of

        self._pool = None
        close_client_of(self)
        backend = self._backend
        if backend is not None:
            backend.close()
        _state._deregister_app(self)

    @property
    def conf(self) -> Settings:
        """The settings, read when the first one is used."""
        if self._conf is None:
            return self._load_config()
        return self._conf

    @conf.setter
    def conf(self, d: Any) -> None:
        self._conf = d

    def _load_config(self) -> Settings:
        return configuring.load(self)

    def prepare_config(self, c: Any) -> Any:
        """A hook for subclasses: receives and returns the settings that were read."""
        return c

    def bugreport(self) -> str:
        """Details for a bug report."""
        return bugreport(self)

    def _after_fork(self) -> None:
        # A thread that held it does not go on here.
        self._finalize_mutex = self._configuring = threading.RLock()
        self._pool = None
        self.__dict__.pop("oid", None)
        self._local = threading.local()
        amqp = self.__dict__.get("amqp")
        if amqp is not None:
            amqp._producer_pool = None
        self.on_after_fork.send(sender=self)

    # ---- settings, modules, time

    def add_defaults(self, fun: Any) -> None:
        """Add settings that apply where the program sets none: a mapping, or a function that returns one."""
        given = fun if callable(fun) else lambda: fun
        if self.configured:
            self.conf.add_defaults(given())
        else:
            self._pending_defaults.append(given)

    def config_from_object(
        self, obj: Any, silent: bool = False, force: bool = False, namespace: str | None = None
    ) -> Any:
        """
        Take settings from *obj*: an object, a dict, or the name of a module or of an object in one.

        Args:
            silent: Ignore a missing module.
            force: Read the settings now, not when the first one is used.
            namespace: A prefix of the settings' names, in capitals.
        """
        self._config_source = obj
        self._config_source_silent = silent
        self.namespace = namespace or self.namespace
        if (force or self.configured) and self.loader.config_from_object(obj, silent=silent):
            self._conf = None
            return self.conf
        return None

    def config_from_envvar(self, variable_name: str, silent: bool = False, force: bool = False) -> Any:
        """
        Take settings from the module that an environment variable names.

        Raises:
            ImproperlyConfigured: The variable is not set, and *silent* is false.
        """
        module_name = os.environ.get(variable_name)
        if module_name:
            return self.config_from_object(module_name, silent=silent, force=force)
        if silent:
            return False
        raise ImproperlyConfigured(
            f"The environment variable {variable_name!r} is not set, and as such the configuration could not be loaded."
            f' Please set it to a module of settings, as in {variable_name}="proj.celeryconfig"'
        )

    def config_from_cmdline(self, argv: list[str], namespace: str = "celery") -> None:
        """Take settings from `key=value` arguments of a command line."""
        self.conf.update(self.loader.cmdline_config_parser(argv, namespace))

    def either(self, default_key: str, *defaults: Any) -> Any:
        """Return the first of *defaults* that is not None, or else the setting."""
        given = first(None, defaults)
        return self.conf.get(default_key) if given is None else given

    def add_periodic_task(
        self, schedule: Any, sig: Any, args: Any = (), kwargs: Any = (), name: str | None = None, **opts: Any
    ) -> str:
        """
        Let beat send *sig* on *schedule*.

        Args:
            name: The entry's name; by default the signature's text, so that adding the same one twice makes one entry.

        Returns:
            The entry's name.
        """
        key, entry = configuring.periodic_entry(self, schedule, sig, args, kwargs, name, opts)
        if self.configured:
            configuring.put_periodic_task(self, key, entry, name)
        else:
            self._pending_periodic_tasks.append((key, entry, name))
        return key

    def autodiscover_tasks(self, packages: Any = None, related_name: str | None = "tasks", force: bool = False) -> Any:
        """
        Import `<package>.<related_name>` of each package when a worker starts or default modules are imported.

        Args:
            packages: A list, or a function that returns one; by default Django's INSTALLED_APPS.
            related_name: None to import the packages themselves.
            force: Import now.
        """
        if force:
            return self._autodiscover_tasks(packages, related_name)

        def discover(**_: Any) -> Any:
            return self._autodiscover_tasks(packages, related_name)

        signals.import_modules.connect(discover, weak=False, sender=self)
        return None

    def _autodiscover_tasks(self, packages: Any, related_name: str | None, **kwargs: Any) -> Any:
        wanted = packages or self._packages_of_fixups()
        return self._autodiscover_tasks_from_names(wanted, related_name=related_name)

    def _autodiscover_tasks_from_names(self, packages: Any, related_name: str | None) -> Any:
        return self.loader.autodiscover_tasks(packages() if callable(packages) else packages, related_name)

    def _packages_of_fixups(self) -> list[str]:
        discovering = [fixup for fixup in self._fixups if hasattr(fixup, "autodiscover_tasks")]
        return [package for fixup in discovering for package in fixup.autodiscover_tasks()]

    @cached_property
    def loader(self) -> Any:
        """Reads settings and imports modules."""
        return get_loader_cls(self.loader_cls)(app=self)

    @cached_property
    def annotations(self) -> Any:
        """`task_annotations`, expanded."""
        from sidekiq_celery.app.annotations import prepare

        return prepare(self.conf.task_annotations)

    @cached_property
    def timezone(self) -> Any:
        """The time zone from the settings; by default UTC, or the machine's if `enable_utc` is off."""
        wanted = self.conf.timezone
        if wanted:
            return timezone.get_timezone(wanted)
        return timezone.utc if self.conf.enable_utc else timezone.local

    def uses_utc_timezone(self) -> bool:
        """True if the app's time zone is UTC."""
        return bool(self.timezone == timezone.utc)

    def now(self) -> datetime:
        """The current time in the app's time zone."""
        return datetime.now(self.timezone)

    # ---- tasks, and classes bound to the app

    @overload
    def task(self, fun: Callable[Concatenate[Any, P], T], /, *, bind: Literal[True], **opts: Any) -> "Task[P, T]": ...
    @overload
    def task(self, fun: Callable[P, T], /, **opts: Any) -> "Task[P, T]": ...
    @overload
    def task(self, /, *, pydantic: Literal[True], **opts: Any) -> "Callable[[Callable[..., Any]], TaskOfClass]": ...
    @overload
    def task(
        self, /, *, bind: Literal[True], base: type[Any], **opts: Any
    ) -> "Callable[[Callable[Concatenate[Any, P], T]], TaskOfClass[P, T]]": ...
    @overload
    def task(self, /, *, base: type[Any], **opts: Any) -> "Callable[[Callable[P, T]], TaskOfClass[P, T]]": ...
    @overload
    def task(
        self, /, *, bind: Literal[True], **opts: Any
    ) -> "Callable[[Callable[Concatenate[Any, P], T]], Task[P, T]]": ...
    @overload
    def task(self, /, **opts: Any) -> "Callable[[Callable[P, T]], Task[P, T]]": ...
    def task(self, /, *args: Any, **opts: Any) -> Any:
        """
        Make a function a task. Also works as a decorator with options, which become the task's attributes.

        Returns:
            A proxy. The task is created when the app is finalized, or on first use.
        """
        if len(args) == 1 and callable(args[0]):
            return self._decorate(args[0], **opts)
        if len(args) == 1:
            raise TypeError("argument 1 to @task() must be a callable")
        if args:
            raise TypeError(f"@task() takes exactly 1 argument ({len(args) + len(opts)} given)")
        return lambda fun: self._decorate(fun, **opts)

    def _decorate(
        self, fun: Callable[..., Any], shared: bool = True, filter: Any = None, lazy: bool = True, **opts: Any
    ) -> Any:
        if shared:
            # Apps created later get the task, too.
            _state.connect_on_app_finalize(lambda app: app._task_from_fun(fun, **opts))
        task: Any
        if not lazy or self.finalized:
            task = self._task_from_fun(fun, **opts)
        else:
            task = PromiseProxy(self._task_from_fun, (fun,), opts, __doc__=fun.__doc__)
            self._pending.append(task)
            if self.finalized:
                # By another thread, which may not have seen it.
                maybe_evaluate(task)  # type: ignore[unreachable]
        return filter(task) if filter else task

    def type_checker(self, fun: Callable[..., Any], bound: bool = False) -> Any:
        """Return the function that checks the arguments of calls of *fun* before they are sent."""
        return staticmethod(head_from_fun(fun, bound=bound))

    def _task_from_fun(self, fun: Callable[..., Any], name: str | None = None, **options: Any) -> Any:
        return task_making.make_task(self, fun, name, **options)

    def register_task(self, task: Any, **options: Any) -> Any:
        """Register a task given as a class or an instance."""
        return task_making.register_class(self, task, options)

    def gen_task_name(self, name: str, module: str) -> str:
        """The default name of a task."""
        return gen_task_name(self, name, module)

    def finalize(self, auto: bool = False) -> None:
        """
        Create all decorated tasks, and those that every app has.

        Raises:
            RuntimeError: *auto* is true, but the app must not finalize itself.
        """
        with self._finalize_mutex:
            if self.finalized:
                return
            if auto and not self.autofinalize:
                raise RuntimeError("Contract breach: app not finalized")
            self.finalized = True
            _state._announce_app_finalized(self)
            while self._pending:
                maybe_evaluate(self._pending.popleft())
            # Other threads may add tasks meanwhile, which they bind themselves.
            for task in tuple(self._tasks.values()):
                task.bind(self)
            self.on_after_finalize.send(sender=self)

    @cached_property
    def tasks(self) -> Any:
        """All tasks by name. Finalizes the app."""
        self.finalize(auto=True)
        return self._tasks

    def create_task_cls(self) -> Any:
        """Create the base class for tasks bound to this app."""
        return self.subclass_with_self(self.task_cls, name="Task", attribute="_app", keep_reduce=True, abstract=True)

    def subclass_with_self(
        self,
        Class: Any,
        name: str | None = None,
        attribute: str = "app",
        reverse: str | None = None,
        keep_reduce: bool = False,
        **kw: Any,
    ) -> Any:
        """
        Create a subclass of *Class* whose *attribute* is this app.

        Args:
            Class: A class, or its name.
            name: The name of the subclass.
            reverse: The app's attribute under which a pickled instance finds the class again.
            keep_reduce: Pickle instances as *Class* does.
        """
        base = symbol_by_name(Class)
        found_as = reverse or base.__name__

        def __reduce__(instance: Any) -> Any:
            return _unpickle_appattr, (found_as, instance.__reduce_args__())

        attributes = {attribute: self, "__module__": base.__module__, "__doc__": base.__doc__, **kw}
        if not keep_reduce:
            attributes["__reduce__"] = __reduce__
        return type(name or base.__name__, (base,), attributes)

    @cached_property
    def Task(self) -> Any:
        """The base class of this app's tasks."""
        return self.create_task_cls()

    AsyncResult = _bound("sidekiq_celery.result:AsyncResult", "The class of result handles.")
    ResultSet = _bound("sidekiq_celery.result:ResultSet", "Several results.")
    GroupResult = _bound("sidekiq_celery.result:GroupResult", "The results of a group.")
    Worker = _bound("sidekiq_celery.apps.worker:Worker", "The worker as a program.")
    WorkController = _bound("sidekiq_celery.worker:WorkController", "The worker as a part of a program.")
    Beat = _bound("sidekiq_celery.apps.beat:Beat", "Beat as a program.")

    @property
    def current_task(self) -> Any:
        """The task that is being called in this thread, or None."""
        return _state.get_current_task()

    @property
    def current_worker_task(self) -> Any:
        """The task that a worker is running in this thread, or None."""
        return _state.get_current_worker_task()

    # ---- sending, connections, parts of the app
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
        Send a task by name; its code does not have to exist here. The options are those of `apply_async`.

        Returns:
            The result handle.

        Raises:
            TypeError: *name* is not text.
        """
        # `from package import module` would cost a microsecond per call, which is 2 % of `delay()`.
        from sidekiq_celery._send.plain_calls import send

        omitted = {"expires": expires, "time_limit": time_limit, "soft_time_limit": soft_time_limit}
        options |= {key: value for key, value in omitted.items() if value is not _OMITTED}
        message: dict[str, Any] = {}
        if countdown or eta or link or link_error or shadow or retries or replaced_task_nesting:
            message = {
                "countdown": countdown,
                "eta": eta,
                "callbacks": maybe_list(link),
                "errbacks": maybe_list(link_error),
                "shadow": shadow,
                "retries": retries,
                "replaced_task_nesting": replaced_task_nesting,
            }
        position = WorkflowPosition(task_id, group_id, group_index, root_id, parent_id, chord, chain, reply_to)
        producer = producer or publisher
        call = Call(
            name,
            args,
            kwargs,
            task_type,
            position,
            options,
            message,
            result_cls,
            producer,
            add_to_parent,
            route_name,
            router,
        )
        if task_type is not None and not (message or router or route_name):
            sent = send(self, call)
            if sent is not None:
                return sent
        from sidekiq_celery._send import publish

        if not isinstance(name, str):
            raise TypeError(f"send_task takes the name of a task, as in 'shop.tasks.pay', and was given {name!r}")
        return publish.send_task(self, call)

    # `steps` compares with this to see if a program or package has replaced the method.
    _own_send_task = send_task

    def signature(self, *args: Any, **kwargs: Any) -> Any:
        """Make a signature bound to this app."""
        kwargs["app"] = self
        return self._canvas.signature(*args, **kwargs)

    def connection_for_read(self, url: str | None = None, **kwargs: Any) -> Any:
        """Connect to the broker from which workers fetch jobs."""
        return connections.connect(self, url or self.conf.broker_read_url, **kwargs)

    def connection_for_write(self, url: str | None = None, **kwargs: Any) -> Any:
        """Connect to the broker to which jobs are sent."""
        return connections.connect(self, url or self.conf.broker_write_url, **kwargs)

    def connection(
        self,
        hostname: str | None = None,
        userid: str | None = None,
        password: str | None = None,
        virtual_host: str | None = None,
        port: int | None = None,
        ssl: Any = None,
        connect_timeout: float | None = None,
        transport: Any = None,
        transport_options: Any = None,
        heartbeat: float | None = None,
        login_method: str | None = None,
        failover_strategy: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Connect to the broker, or to the URL *hostname*. The other arguments are those of `kombu.Connection`."""
        return self.connection_for_write(
            hostname or self.conf.broker_write_url,
            userid=userid,
            password=password,
            virtual_host=virtual_host,
            port=port,
            ssl=ssl,
            connect_timeout=connect_timeout,
            transport=transport,
            transport_options=transport_options,
            heartbeat=heartbeat,
            login_method=login_method,
            failover_strategy=failover_strategy,
            **kwargs,
        )

    broker_connection = connection

    def _acquire_connection(self, pool: bool = True) -> Any:
        return connections.acquire_connection(self, pool)

    def connection_or_acquire(self, connection: Any = None, pool: bool = True, *_: Any, **__: Any) -> Any:
        """*connection*, or one from the pool that is returned after the `with` block."""
        return FallbackContext(connection, self._acquire_connection, pool=pool)

    default_connection = connection_or_acquire

    def _acquire_producer(self, timeout: float | None = None) -> Any:
        return connections.acquire_producer(self, timeout)

    def producer_or_acquire(self, producer: Any = None) -> Any:
        """*producer*, or one from the pool that is returned after the `with` block."""
        return FallbackContext(producer, self._acquire_producer, timeout=self.conf.broker_pool_acquire_timeout)

    default_producer = producer_or_acquire

    @property
    def pool(self) -> Any:
        """The pool of kombu connections."""
        if self._pool is None:
            self._pool = connections.pool_of(self)
        return self._pool

    @property
    def producer_pool(self) -> Any:
        """The pool of kombu producers."""
        return self.amqp.producer_pool

    amqp = _part("amqp_cls", "Queues, routes and kombu's objects.")
    control: "Control" = _part("control_cls", "Remote control of workers.")
    events = _part("events_cls", "Events, sent and received.")
    log = _part("log_cls", "Sets up logging.")

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
        """The result backend."""
        found = self._backend
        if found is None:
            made = self._get_backend()
            with self._configuring:
                # Another thread may have been faster.
                found = self._backend
                if found is None:
                    found = self._backend = made
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
        """Let the worker serve only those queues."""
        return self.amqp.queues.select(queues)

    __class_getitem__: Any = classmethod(GenericAlias)

    # ---- programs

    # Given by name, like the app's other parts, because the command line itself imports apps.
    _command_line: Any = "sidekiq_celery.bin.celery:celery"

    def start(self, argv: list[str] | None = None) -> Any:
        """Run the command line with *argv*, by default the process's own, and return its exit code."""
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
        Run a worker with *argv*, by default the process's own arguments.

        Raises:
            ValueError: The arguments do not name the command `worker`.
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
        Accept only messages in JSON and the allowed serializers. This applies to all apps of the process.

        Raises:
            ImproperlyConfigured: The arguments or settings ask for signed messages.
        """
        from kombu.serialization import disable_insecure_serializers

        if args or kwargs or self.conf.task_serializer == "auth":
            raise ImproperlyConfigured(
                "messages cannot be signed here (serializer 'auth'); protect Redis with TLS and Redis users instead"
            )
        disable_insecure_serializers(allowed_serializers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {appstr(self)}>"

    def _another(self, main: str, changes: dict[str, Any]) -> "Celery":
        """Create a separate app with these settings. It does not become current."""
        return Celery(main, set_as_current=False, changes=changes)

    def __reduce__(self) -> Any:
        return _unpickle_app_v2, (type(self), self.__reduce_keys__())

    def __reduce_keys__(self) -> Mapping[str, Any]:
        """The arguments that rebuild a pickled app."""
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


App = Celery


def _notify_apps_of_fork() -> None:
    for app in cast(tuple[Celery, ...], tuple(_state._get_active_apps())):
        app._after_fork()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_notify_apps_of_fork)
effects.watch_workers()
