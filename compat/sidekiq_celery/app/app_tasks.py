"""The tasks of an app, and the classes that are bound to it."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Literal, overload

from sidekiq_celery import _state
from sidekiq_celery._type_variables import P, T
from sidekiq_celery.app import builtins as _builtins  # noqa: F401 - registers the tasks that every app has
from sidekiq_celery.app import task_making
from sidekiq_celery.app.app_settings import AppSettings
from sidekiq_celery.local import PromiseProxy, maybe_evaluate
from sidekiq_celery.utils.imports import gen_task_name, symbol_by_name

if TYPE_CHECKING:
    from sidekiq_celery.app.task import Task
    from sidekiq_celery.app.typing_of_tasks import TaskOfClass

__all__ = ("AppTasks",)


def _unpickle_appattr(reverse_name: str, args: Any) -> Any:
    """A class that was bound to an app, called, now of the current app."""
    app: Any = _state.get_current_app()
    return app._rgetattr(reverse_name)(*args)


class AppTasks(AppSettings):
    """The tasks of an app."""

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
        Make a task of a function; also as a decorator with options, which become its attributes.

        Returns:
            A stand-in; the task is made when the app is finalized, or when it is first used.
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
            # Apps that are made later have the task as well.
            _state.connect_on_app_finalize(lambda app: app._task_from_fun(fun, **opts))
        task: Any
        if not lazy or self.finalized:
            task = self._task_from_fun(fun, **opts)
        else:
            task = PromiseProxy(self._task_from_fun, (fun,), opts, __doc__=fun.__doc__)
            self._pending.append(task)
        return filter(task) if filter else task

    def type_checker(self, fun: Callable[..., Any], bound: bool = False) -> Any:
        """What checks the arguments of calls of *fun*."""
        return task_making.type_checker(fun, bound)

    def _task_from_fun(self, fun: Callable[..., Any], name: str | None = None, **options: Any) -> Any:
        return task_making.make_task(self._app, fun, name, **options)

    def register_task(self, task: Any, **options: Any) -> Any:
        """Register a task that is a class or an instance."""
        return task_making.register_class(self._app, task, options)

    def gen_task_name(self, name: str, module: str) -> str:
        """The name of a task that is given none."""
        return gen_task_name(self._app, name, module)

    def finalize(self, auto: bool = False) -> None:
        """
        Make all tasks that were decorated, and those that every app has.

        Raises:
            RuntimeError: *auto* is true and the app is not to finalize itself.
        """
        with self._finalize_mutex:
            if self.finalized:
                return
            if auto and not self.autofinalize:
                raise RuntimeError("Contract breach: app not finalized")
            self.finalized = True
            _state._announce_app_finalized(self._app)
            while self._pending:
                maybe_evaluate(self._pending.popleft())
            for task in self._tasks.values():
                task.bind(self)
            self.on_after_finalize.send(sender=self)

    @cached_property
    def tasks(self) -> Any:
        """The tasks by name; finalizes the app."""
        self.finalize(auto=True)
        return self._tasks

    def create_task_cls(self) -> Any:
        """A class of tasks that are bound to this app."""
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
        A subclass of *Class* whose *attribute* is this app.

        Args:
            Class: A class, or its name.
            name: Of the subclass.
            reverse: By which attribute of an app it is found again when an instance was pickled.
            keep_reduce: Instances are pickled as *Class* says.
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
        """What this app's tasks derive from."""
        return self.create_task_cls()

    @cached_property
    def AsyncResult(self) -> Any:
        """Handles of results."""
        return self.subclass_with_self("sidekiq_celery.result:AsyncResult")

    @cached_property
    def ResultSet(self) -> Any:
        """Several results."""
        return self.subclass_with_self("sidekiq_celery.result:ResultSet")

    @cached_property
    def GroupResult(self) -> Any:
        """The results of a group."""
        return self.subclass_with_self("sidekiq_celery.result:GroupResult")

    @cached_property
    def Worker(self) -> Any:
        """The worker as a program."""
        return self.subclass_with_self("sidekiq_celery.apps.worker:Worker")

    @cached_property
    def WorkController(self) -> Any:
        """The worker as a part of one."""
        return self.subclass_with_self("sidekiq_celery.worker:WorkController")

    @cached_property
    def Beat(self) -> Any:
        """Beat as a program."""
        return self.subclass_with_self("sidekiq_celery.apps.beat:Beat")

    @property
    def current_task(self) -> Any:
        """The task that is being called here, or None."""
        return _state.get_current_task()

    @property
    def current_worker_task(self) -> Any:
        """The task that a worker runs here, or None."""
        return _state.get_current_worker_task()
