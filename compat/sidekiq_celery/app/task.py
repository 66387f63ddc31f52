"""
`Task`: the object that a decorated function becomes, and the base class of class-based tasks.

`_send.publish` sends tasks, `_run.task_run` runs them, and `_run.retrying` retries them.
"""

import sys
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import iscoroutine
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, Generic, overload

from sidekiq_celery import states  # noqa: F401 - programs import it from here
from sidekiq_celery._state import _task_stack
from sidekiq_celery._type_variables import P, R_co, T
from sidekiq_celery._wire.context import Context, get_actual_ignore_result
from sidekiq_celery.app.bug_report import appstr
from sidekiq_celery.app.registry import _unpickle_task_v2
from sidekiq_celery.app.task_hooks import TaskHooks
from sidekiq_celery.app.task_options import TaskOptions
from sidekiq_celery.exceptions import Ignore, MaxRetriesExceededError, Retry  # noqa: F401 - the second likewise
from sidekiq_celery.utils import abstract
from sidekiq_celery.utils.functional import mattrgetter, maybe_list
from sidekiq_celery.utils.ids import uuid

if TYPE_CHECKING:
    from sidekiq_celery.canvas import Signature, chunks, xmap, xstarmap
    from sidekiq_celery.result import AsyncResult, EagerResult

__all__ = ("Context", "Task", "get_actual_ignore_result")

TaskType = type

extract_exec_options = mattrgetter(
    "queue",
    "routing_key",
    "exchange",
    "priority",
    "expires",
    "serializer",
    "delivery_mode",
    "compression",
    "time_limit",
    "soft_time_limit",
    "immediate",
    "mandatory",
)


def _reprtask(task: Any, fmt: str | None = None, flags: Iterable[str] | None = None) -> str:
    shown = f" ({', '.join(flags)})" if flags else ""
    app = appstr(task._app) if task._app else None
    text = fmt or ("<class {0.__name__} of {app}{flags}>" if task._app else "<unbound {0.__name__}{flags}>")
    return text.format(task, flags=shown, app=app)


if TYPE_CHECKING:

    class _Typed(Generic[P, R_co]): ...

else:

    class _Typed:
        # At run time the brackets take any number of types, and classes derived from it may be generic, as in Celery.
        __class_getitem__ = classmethod(GenericAlias)


@abstract.CallableTask.register
class Task(TaskOptions, TaskHooks, _Typed[P, R_co]):
    """
    A task. The decorator makes one from a function. Derive a class from it to add hooks, or state that lasts as long
    as the process. `TaskOptions` lists its attributes.

    To a type checker it has the function's parameters and return type. An `async def` function returns a coroutine;
    the result of a sent call then has the type that the coroutine returns.
    """

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the task in this process, as a function."""
        top = self.request_stack.top
        is_overridden = type(self).__call__ is not _CALL
        if is_overridden and top and not top.called_directly and not top._protected and len(self.request_stack) == 1:
            # A run goes through the overridden `__call__`, which ends up here: the task keeps its request.
            top._protected = 1
            return self._run(*args, **kwargs)
        with self._called_with(args, kwargs):
            returned = self._run(*args, **kwargs)
        # An `async def` task has only created its coroutine so far.
        return self._awaited(returned, args, kwargs) if iscoroutine(returned) else returned  # type: ignore[return-value]

    @contextmanager
    def _called_with(self, args: Any, kwargs: Any) -> Iterator[None]:
        _task_stack.push(self)
        self.push_request(args=args, kwargs=kwargs)
        try:
            yield
        finally:
            self.pop_request()
            _task_stack.pop()

    async def _awaited(self, coroutine: Any, args: Any, kwargs: Any) -> Any:
        with self._called_with(args, kwargs):
            return await coroutine

    def _run(self, *args: Any, **kwargs: Any) -> R_co:
        returned: R_co = self.run(*args, **kwargs)
        return returned

    def __reduce__(self) -> Any:
        module: str | None = type(self).__module__
        return _unpickle_task_v2, (self.name, module if module in sys.modules else None), None

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The body of the task."""
        raise NotImplementedError("Tasks must define the run method.")

    # ---- sending it

    @overload
    def delay(self: "Task[P, Coroutine[Any, Any, T]]", *args: P.args, **kwargs: P.kwargs) -> "AsyncResult[T]": ...
    @overload
    def delay(self, *args: P.args, **kwargs: P.kwargs) -> "AsyncResult[R_co]": ...
    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Send the task with these arguments."""
        return self.apply_async(args, kwargs)

    @overload
    def apply_async(
        self: "Task[P, Coroutine[Any, Any, T]]",
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        producer: Any = None,
        link: Any = None,
        link_error: Any = None,
        shadow: str | None = None,
        **options: Any,
    ) -> "AsyncResult[T]": ...
    @overload
    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        producer: Any = None,
        link: Any = None,
        link_error: Any = None,
        shadow: str | None = None,
        **options: Any,
    ) -> "AsyncResult[R_co]": ...
    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        producer: Any = None,
        link: Any = None,
        link_error: Any = None,
        shadow: str | None = None,
        **options: Any,
    ) -> Any:
        """
        Send the task.

        Args:
            task_id: The id of the task and of its job; by default a new one.
            link, link_error: Signatures to call after success, and after failure.
            shadow: The task's name in logs.
            options: `countdown` (seconds), `eta` (a datetime), `expires` (either), `queue`, `exchange`, `routing_key`,
                `priority`, `serializer`, `compression`, `headers`, `time_limit`, `soft_time_limit`, `ignore_result`,
                `retry`, `retry_policy`, `add_to_parent`, `reply_to`, `unique_for`, `unique_until`, `unique_key` (see
                `TaskOptions`), and others, which are sent along.

        Returns:
            The result handle. If the same call of a unique task is there already, the handle belongs to that call.

        Raises:
            TypeError: The arguments do not fit the task's parameters.
            ValueError: The soft time limit is above the time limit.
            kombu.exceptions.OperationalError: The task was not sent, or it is unknown whether it was.
            kombu.exceptions.EncodeError: An argument cannot be serialized.
        """
        self._check_call(args or (), kwargs or {})
        shadow = shadow or self.shadow_name(args, kwargs, options)
        options = {**self._get_exec_options(), **options}
        if self._dump_pydantic_arguments is not None and options.get("serializer") != "pickle":
            args, kwargs = self._dump_pydantic_arguments(args, kwargs)
        options.setdefault("ignore_result", self.ignore_result)
        app = self._get_app()
        if app.conf.task_always_eager:
            return self._apply_as_sent(args, kwargs, task_id, link, link_error, options)
        result: AsyncResult[R_co] = app.send_task(
            self.name,
            args,
            kwargs,
            task_id=task_id,
            producer=producer,
            link=link,
            link_error=link_error,
            result_cls=self.AsyncResult,
            shadow=shadow,
            task_type=self,
            **options,
        )
        return result

    def _check_call(self, args: Any, kwargs: Any) -> None:
        if self.soft_time_limit and self.time_limit and self.soft_time_limit > self.time_limit:
            raise ValueError("soft_time_limit must be less than or equal to time_limit")
        if self.typing:
            check = getattr(self, "__header__", None)
            if check is not None:
                check(*args, **kwargs)

    def _apply_as_sent(
        self, args: Any, kwargs: Any, task_id: str | None, link: Any, link_error: Any, options: dict[str, Any]
    ) -> Any:
        from sidekiq_celery._run.eager import round_trip
        from sidekiq_celery.result import denied_join_result

        args, kwargs = round_trip(self._get_app(), args, kwargs, options.get("serializer"))
        with denied_join_result():
            return self.apply(args, kwargs, task_id=task_id or uuid(), link=link, link_error=link_error, **options)

    def shadow_name(self, args: Any, kwargs: Any, options: Any) -> str | None:
        """A hook for subclasses: another name for this call in logs."""
        return None

    # `plan` compares with this to see what a program's class defines itself.
    _base_of_tasks: ClassVar[type[Any]]
    # `steps` compares with these to see if a program or package has replaced the methods.
    _own_apply_async = apply_async
    _own_shadow_name = shadow_name

    def signature_from_request(
        self, request: Context | None = None, args: Any = None, kwargs: Any = None, queue: Any = None, **extra: Any
    ) -> Any:
        """A signature that repeats the call of *request*, optionally with other arguments and options."""
        request = self.request if request is None else request
        options = {
            **request.as_execution_options(),
            "ignore_result": get_actual_ignore_result(self, request),
            **extra,
        }
        delivery_info = request.delivery_info or {}
        if delivery_info.get("priority") is not None:
            options["priority"] = delivery_info["priority"]
        if queue:
            options["queue"] = queue
        elif delivery_info.get("exchange") == "" and delivery_info.get("routing_key"):
            options["queue"] = delivery_info["routing_key"]
        else:
            options.update(delivery_info)
        return self.signature(
            request.args if args is None else args,
            request.kwargs if kwargs is None else kwargs,
            options,
            type=self,
            **extra,
        )

    subtask_from_request = signature_from_request

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: Any = None,
        throw: bool = True,
        eta: Any = None,
        countdown: Any = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Retry:
        """
        Let the task run again under the same id.

        Args:
            args, kwargs: New arguments; by default the task's own.
            exc: The exception to raise when no tries are left; by default `MaxRetriesExceededError`.
            throw: Raise `Retry` instead of returning it.
            eta: When to run again; a datetime.
            countdown: Seconds to wait; by default `default_retry_delay`.
            max_retries: For this attempt, in place of the task's own.
            options: As for `apply_async`.

        Raises:
            Retry: The task will run again.
            Reject: The next try cannot be sent.
        """
        from sidekiq_celery._run import retrying

        return retrying.retry(self, args, kwargs, exc, throw, eta, countdown, max_retries, options)

    @overload
    def apply(
        self: "Task[P, Coroutine[Any, Any, T]]",
        args: Any = None,
        kwargs: Any = None,
        link: Any = None,
        link_error: Any = None,
        task_id: str | None = None,
        retries: int | None = None,
        throw: bool | None = None,
        logfile: Any = None,
        loglevel: Any = None,
        headers: Any = None,
        **options: Any,
    ) -> "EagerResult[T]": ...
    @overload
    def apply(
        self,
        args: Any = None,
        kwargs: Any = None,
        link: Any = None,
        link_error: Any = None,
        task_id: str | None = None,
        retries: int | None = None,
        throw: bool | None = None,
        logfile: Any = None,
        loglevel: Any = None,
        headers: Any = None,
        **options: Any,
    ) -> "EagerResult[R_co]": ...
    def apply(
        self,
        args: Any = None,
        kwargs: Any = None,
        link: Any = None,
        link_error: Any = None,
        task_id: str | None = None,
        retries: int | None = None,
        throw: bool | None = None,
        logfile: Any = None,
        loglevel: Any = None,
        headers: Any = None,
        **options: Any,
    ) -> Any:
        """
        Run the task here and now, as a worker would.

        Args:
            throw: Raise the task's exception; by default `task_eager_propagates` decides.
            options: As for `apply_async`. Options that only concern sending have no effect.
        """
        from sidekiq_celery._run import eager
        from sidekiq_celery.app import trace

        call = {
            "id": task_id or uuid(),
            "args": args or (),
            "kwargs": kwargs or {},
            "callbacks": maybe_list(link),
            "errbacks": maybe_list(link_error),
            "retries": retries or 0,
            "logfile": logfile,
            "loglevel": loglevel or 0,
            "headers": headers,
        }
        return eager.apply(self, call, throw, options, trace.build_tracer)

    @overload
    def AsyncResult(self: "Task[P, Coroutine[Any, Any, T]]", task_id: str, **kwargs: Any) -> "AsyncResult[T]": ...
    @overload
    def AsyncResult(self, task_id: str, **kwargs: Any) -> "AsyncResult[R_co]": ...
    def AsyncResult(self, task_id: str, **kwargs: Any) -> Any:
        """The result handle of a call."""
        result: AsyncResult[R_co] = self._get_app().AsyncResult(
            task_id, backend=self.backend, task_name=self.name, **kwargs
        )
        return result

    # ---- signatures

    @overload
    def signature(
        self: "Task[P, Coroutine[Any, Any, T]]", args: Any = None, *starargs: Any, **starkwargs: Any
    ) -> "Signature[T]": ...
    @overload
    def signature(self, args: Any = None, *starargs: Any, **starkwargs: Any) -> "Signature[R_co]": ...
    def signature(self, args: Any = None, *starargs: Any, **starkwargs: Any) -> Any:
        """Make a signature of this task: the arguments and options of a call to be made later."""
        from sidekiq_celery.canvas import signature

        starkwargs.setdefault("app", self.app)
        return signature(self, args, *starargs, **starkwargs)

    subtask = signature

    @overload
    def s(self: "Task[P, Coroutine[Any, Any, T]]", *args: Any, **kwargs: Any) -> "Signature[T]": ...
    @overload
    def s(self, *args: Any, **kwargs: Any) -> "Signature[R_co]": ...
    def s(self, *args: Any, **kwargs: Any) -> Any:
        """Make a signature with these arguments. It may be partial: arguments of the later call come before these."""
        return self.signature(args, kwargs)

    @overload
    def si(self: "Task[P, Coroutine[Any, Any, T]]", *args: P.args, **kwargs: P.kwargs) -> "Signature[T]": ...
    @overload
    def si(self, *args: P.args, **kwargs: P.kwargs) -> "Signature[R_co]": ...
    def si(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Make an immutable signature: it is called with these arguments and no others."""
        return self.signature(args, kwargs, immutable=True)

    def chunks(self, it: Any, n: int) -> "chunks":
        """Split calls with the arguments in *it* into tasks that make *n* calls each."""
        from sidekiq_celery.canvas import chunks

        return chunks(self.s(), it, n, app=self.app)

    def map(self, it: Any) -> "xmap":
        """Make one task that calls this one with each item of *it*."""
        from sidekiq_celery.canvas import xmap

        return xmap(self.s(), it, app=self.app)

    def starmap(self, it: Any) -> "xstarmap":
        """Make one task that calls this one with each list of arguments in *it*."""
        from sidekiq_celery.canvas import xstarmap

        return xstarmap(self.s(), it, app=self.app)

    # ---- while it runs

    def send_event(self, type_: str, retry: bool = True, retry_policy: Any = None, **fields: Any) -> Any:
        """Send a custom event to monitors."""
        request = self.request
        if retry_policy is None:
            retry_policy = self.app.conf.task_publish_retry_policy
        with self.app.events.default_dispatcher(hostname=request.hostname) as dispatcher:
            return dispatcher.send(type_, uuid=request.id, retry=retry, retry_policy=retry_policy, **fields)

    def replace(self, sig: Any) -> Any:
        """
        Let *sig* replace this task: it runs under this id, with this task's callbacks and place in a workflow.

        Raises:
            Ignore: Always, in a worker; still write `return self.replace(...)`.
            ImproperlyConfigured: *sig* is part of a chord of its own, or is an empty chain.
        """
        from sidekiq_celery._workflow.replacing import replacement

        return self.on_replace(replacement(self, sig))

    def add_to_chord(self, sig: Any, lazy: bool = False) -> Any:
        """
        Add *sig* to the chord that this task is part of.

        Args:
            lazy: Only add it, without calling it.

        Raises:
            ValueError: The task is not part of a chord.
        """
        from sidekiq_celery._workflow.replacing import add_to_chord

        return add_to_chord(self, sig, lazy)

    def update_state(
        self, task_id: str | None = None, state: str | None = None, meta: Any = None, **kwargs: Any
    ) -> None:
        """
        Store a custom state.

        Args:
            task_id: By default the id of this call.
            meta: Shown by `AsyncResult.info`.
        """
        wanted = self.request.id if task_id is None else task_id
        self.backend.store_result(wanted, meta, state, request=self.request, **kwargs)

    def add_trail(self, result: Any) -> Any:
        """Add *result* to the children of this call."""
        if self.trail:
            self.request.children.append(result)
        return result

    def on_replace(self, sig: Any) -> Any:
        """Called by `replace` with the signature that replaces this task. Call `super().on_replace(sig)`."""
        from sidekiq_celery._send.running_task import current

        if self.request.is_eager:
            # The result of an eager call is there already, so this does not wait.
            return sig.apply().get(disable_sync_subtasks=False)
        run = current(self.request)
        if run is None:
            sig.delay()
        else:
            run.buffer(sig.delay)
        raise Ignore("Replaced by new task")

    # ---- the request

    def push_request(self, *args: Any, **kwargs: Any) -> None:
        """Show these fields in `request`, in addition to those that it has now."""
        self.request_stack.push(Context(*args, **{**vars(self.request), **kwargs}))

    def pop_request(self) -> None:
        """Restore the previous `request`."""
        self.request_stack.pop()

    @property
    def request(self) -> Context:
        """The call that is running in this thread. Outside of a call, an empty request that says so."""
        top = self.request_stack.top
        if top is not None:
            return top
        if self._default_request is None:
            self._default_request = Context()
        return self._default_request

    def _get_request(self) -> Context:
        return self.request

    def _get_exec_options(self) -> dict[str, Any]:
        if self._exec_options is None:
            self._exec_options = extract_exec_options(self)
        return self._exec_options

    @property
    def backend(self) -> Any:
        """The backend that keeps the task's results."""
        return self.app.backend if self._backend is None else self._backend

    @backend.setter
    def backend(self, value: Any) -> None:
        self._backend = value

    @property
    def __sidekiq_job__(self) -> Any:
        """Lets the engine's client accept a task: `Client().push({"class": task, "args": [1]})`."""
        from sidekiq_celery._send.clients import definition_of

        return definition_of(self)

    def __sidekiq_queue__(self, args: Any) -> str:
        """The queue for a push by the engine's client that names none, such as that of a batch's callback."""
        own = {key: value for key, value in self._get_exec_options().items() if value is not None}
        queue: str = self.app.amqp.destinations.find(own, self.name, args, {}, self)[0]
        return queue

    def __repr__(self) -> str:
        return _reprtask(self, "<@task: {0.name} of {app}{flags}>")

    @property
    def __name__(self) -> str:
        return str(type(self).__name__)


BaseTask = Task
Task._base_of_tasks = Task
# Kept, because a program may put a wrapper of its own in its place; that counts as overridden, too.
_CALL = Task.__call__
