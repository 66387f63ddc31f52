"""A task's options: class attributes, with defaults from the settings."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from sidekiq_celery._state import get_current_app
from sidekiq_celery._wire.context import Context
from sidekiq_celery.app.annotations import resolve_all
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import MaxRetriesExceededError
from sidekiq_celery.local import class_property
from sidekiq_celery.utils.threads import LocalStack


class AppOfTask(App, Protocol):
    """The app of a task. Its class is built from parts of tasks, so type checkers only get this general description."""

    def __getattr__(self, name: str) -> Any: ...


class _OperationalError:
    """kombu's class, which is only imported when code catches it."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        from kombu.exceptions import OperationalError

        return OperationalError


class TaskOptions:
    """
    The attributes of tasks, and of the classes that tasks derive from.

    Attributes:
        name: The task's name in payloads.
        typing: Check a call against the parameters before it is sent; None for the app's default.
        max_retries: The number of retries after which `retry` gives up; None for no limit.
        default_retry_delay: Seconds before the next try.
        rate_limit: `"10/s"`, `"100/m"`, `"5/h"`, a number per second, or None.
        ignore_result: Do not store results. None here and in most other attributes means the setting decides.
        store_errors_even_if_ignored: Store failures even so.
        trail: Keep the tasks that it calls in the `children` of its result.
        time_limit, soft_time_limit: Seconds.
        acks_late: If the task or the settings say False, a job is acknowledged before it runs, so it runs at most once.
            Otherwise a job survives the process that runs it.
        throws: Expected errors: logged in one line, and not kept in the dead set.
        keep_failed: True to keep a failure in the dead set, where it can be inspected and run again; None for the app's
            default.
        expires: Seconds, or a datetime, after which it is no longer run.
        priority: 0 is the most urgent, as in Celery on Redis.
        unique_for: Seconds. A call is not sent while the same call waits, retries or runs, but for at most this long
            after that call was due. None, or 0 in a call: every call is sent.
        unique_until: `"success"` releases the lock when the task has ended for good, in whatever way; `"start"` when
            its run begins.
        unique_key: A function from positional and keyword arguments to a text: calls of this task with equal texts are
            the same. By default the arguments are compared.
    """

    __trace__: Any = None
    __v2_compat__ = False
    __bound__ = False
    __header__: Callable[..., Any]

    MaxRetriesExceededError = MaxRetriesExceededError
    OperationalError = _OperationalError()
    Strategy: Any = "celery.worker.strategy:default"
    Request: Any = "celery.worker.request:Request"

    _app: Any = None
    name: str = None  # type: ignore[assignment]
    typing: bool | None = None
    max_retries: int | None = 3
    default_retry_delay: float = 3 * 60
    rate_limit: Any = None
    ignore_result: Any = None
    trail: bool = True
    send_events: bool = True
    store_errors_even_if_ignored: Any = None
    store_eager_result: Any = None
    serializer: str | None = None
    time_limit: float | None = None
    soft_time_limit: float | None = None
    track_started: Any = None
    acks_late: Any = None
    acks_on_failure_or_timeout: Any = None
    acks_on_failure: Any = None
    acks_on_timeout: Any = None
    reject_on_worker_lost: Any = None
    retry_on_worker_lost: Any = None
    throws: Any = ()
    keep_failed: bool | None = None
    expires: Any = None
    priority: int | None = None
    unique_for: float | None = None
    unique_until: str = "success"
    unique_key: Callable[[Any, Any], str] | None = None
    resultrepr_maxsize: int | None = 1024
    abstract: bool = True

    request_stack: LocalStack[Context] = None  # type: ignore[assignment]
    _default_request: Context | None = None
    _exec_options: dict[str, Any] | None = None
    _dump_pydantic_arguments: Callable[..., tuple[Any, Any]] | None = None
    _is_acknowledged_early = False
    _configured: frozenset[str] = frozenset()
    _backend: Any = None

    from_config: tuple[tuple[str, str], ...] = (
        ("serializer", "task_serializer"),
        ("rate_limit", "task_default_rate_limit"),
        ("priority", "task_default_priority"),
        ("time_limit", "task_time_limit"),
        ("soft_time_limit", "task_soft_time_limit"),
        ("track_started", "task_track_started"),
        ("acks_late", "task_acks_late"),
        ("acks_on_failure_or_timeout", "task_acks_on_failure_or_timeout"),
        ("acks_on_failure", "task_acks_on_failure"),
        ("acks_on_timeout", "task_acks_on_timeout"),
        ("reject_on_worker_lost", "task_reject_on_worker_lost"),
        ("retry_on_worker_lost", "task_retry_on_worker_lost"),
        ("ignore_result", "task_ignore_result"),
        ("store_eager_result", "task_store_eager_result"),
        ("store_errors_even_if_ignored", "task_store_errors_even_if_ignored"),
    )

    @classmethod
    def bind(cls, app: Any) -> Any:
        """Make this a task of *app*, and apply the app's settings."""
        cls._complete_for(app)
        cls.on_bound(app)
        return app

    @classmethod
    def _complete_for(cls, app: Any) -> None:
        was_bound, cls.__bound__ = cls.__bound__, True
        cls._app = app
        conf = app.conf
        cls._exec_options = None
        if cls.typing is None:
            cls.typing = app.strict_typing
        configured = set(cls.__dict__.get("_configured", ()))
        for attribute, setting in cls.from_config:
            if getattr(cls, attribute, None) is None:
                setattr(cls, attribute, conf[setting])
                configured.add(attribute)
        cls._configured = frozenset(configured)
        is_given = cls._says_itself("acks_late") or conf.value_set_for("task_acks_late")
        cls._is_acknowledged_early = cls.acks_late is False and is_given
        for attribute in ("acks_on_failure", "acks_on_timeout"):
            if getattr(cls, attribute) is None:
                either = cls.acks_on_failure_or_timeout
                setattr(cls, attribute, True if either is None else either)
        if not was_bound:
            cls.annotate()
            cls.request_stack = LocalStack()

    @classmethod
    def _says_itself(cls, attribute: str) -> bool:
        """True if the program set the attribute on a class, and it did not come from a setting."""
        origin = next((one for one in cls.__mro__ if attribute in vars(one)), TaskOptions)
        return origin is not TaskOptions and attribute not in vars(origin).get("_configured", ())

    @classmethod
    def on_bound(cls, app: Any) -> None:
        """A hook for subclasses, called when the task has been bound to *app*."""

    @classmethod
    def _get_app(cls) -> AppOfTask:
        if cls._app is None:
            cls._app = get_current_app()
        if not cls.__bound__:
            cls.bind(cls._app)
        app: AppOfTask = cls._app
        return app

    if TYPE_CHECKING:
        app: AppOfTask
    else:
        app = class_property(_get_app, bind)

    @classmethod
    def annotate(cls) -> None:
        """Apply `task_annotations`."""
        for attributes in resolve_all(cls.app.annotations, cls):
            for key, value in attributes.items():
                if key.startswith("@"):
                    cls.add_around(key[1:], value)
                else:
                    setattr(cls, key, value)

    @classmethod
    def add_around(cls, attr: str, around: Callable[[Any], Any]) -> None:
        """Replace a method with what *around* makes of it."""
        original = getattr(cls, attr)
        original = getattr(original, "__wrapped__", None) or original
        method = around(original)
        method.__wrapped__ = original
        setattr(cls, attr, method)
