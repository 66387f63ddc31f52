"""Many calls of one task in a few jobs: map, starmap and chunks."""

from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from sidekiq_celery._workflow import kinds
from sidekiq_celery._workflow.signature import Signature
from sidekiq_celery.utils.functional import chunks as _chunks
from sidekiq_celery.utils.functional import dictfilter, regen
from sidekiq_celery.utils.text import truncate

if TYPE_CHECKING:
    from sidekiq_celery._workflow.group import group
    from sidekiq_celery.result import AsyncResult, GroupResult


class _basemap(Signature[list[Any]]):
    """A signature for a task that calls another one for each of many items."""

    _task_name: ClassVar[str]
    _unpack_args = itemgetter("task", "it")

    @classmethod
    def from_dict(cls, d: Any, app: Any = None) -> Any:
        """The signature that *d* was."""
        return cls(*cls._unpack_args(d["kwargs"]), app=app, **d["options"])

    def __init__(self, task: Any, it: Any, **options: Any) -> None:
        super().__init__(self._task_name, (), {"task": task, "it": regen(it)}, immutable=True, **options)

    def apply_async(  # type: ignore[override]
        self, args: Any = None, kwargs: Any = None, **opts: Any
    ) -> "AsyncResult[list[Any]]":
        """Send the task, by the route of the task that it calls."""
        options = {**self._merge(options=dictfilter(opts))[2]}
        task, it = self._unpack_args(self.kwargs)
        route_name = options.pop("route_name", None) or _name_of(task)
        result: AsyncResult[list[Any]] = self.type.apply_async(
            (), {"task": task, "it": list(it)}, route_name=route_name, **options
        )
        return result


@Signature.register_type()
class xmap(_basemap):
    """One task that calls another for each item."""

    _task_name = "celery.map"

    def __repr__(self) -> str:
        task, it = self._unpack_args(self.kwargs)
        return f"[{task.task}(x) for x in {truncate(repr(it), 100)}]"


@Signature.register_type()
class xstarmap(_basemap):
    """One task that calls another for each list of arguments."""

    _task_name = "celery.starmap"

    def __repr__(self) -> str:
        task, it = self._unpack_args(self.kwargs)
        return f"[{task.task}(*x) for x in {truncate(repr(it), 100)}]"


@Signature.register_type()
class chunks(Signature[Any]):
    """
    Calls with the arguments in *it*, *n* calls per job.

    Args:
        it: Lists of arguments.
    """

    _unpack_args = itemgetter("task", "it", "n")

    @classmethod
    def from_dict(cls, d: Any, app: Any = None) -> Any:
        """The signature that *d* was."""
        return cls(*cls._unpack_args(d["kwargs"]), app=app, **d["options"])

    def __init__(self, task: Any, it: Any, n: int, **options: Any) -> None:
        super().__init__("celery.chunks", (), {"task": task, "it": regen(it), "n": n}, immutable=True, **options)

    def __call__(self, **options: Any) -> "GroupResult":
        """Send all jobs."""
        return self.apply_async(**options)

    def apply_async(self, args: Any = None, kwargs: Any = None, **opts: Any) -> "GroupResult":  # type: ignore[override]
        """Send all jobs, by the route of the task that they call."""
        return self.group().apply_async(args or (), kwargs or {}, route_name=_name_of(self.kwargs.get("task")), **opts)

    def group(self) -> "group":
        """The jobs, as a group."""
        task, it, n = self._unpack_args(self.kwargs)
        parts = (xstarmap(task, items, app=self._app) for items in _chunks(iter(it), n))
        jobs: group = kinds.group_of(parts, app=self._app)
        return jobs

    @classmethod
    def apply_chunks(cls, task: Any, it: Any, n: int, app: Any = None) -> Any:
        """Send calls of *task*, *n* per job."""
        return cls(task, it, n, app=app)()


def _name_of(task: Any) -> Any:
    return getattr(task, "name", task)
