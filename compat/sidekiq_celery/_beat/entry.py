"""One periodic task: what to send, and when it was last sent."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from kombu.utils.functional import reprcall

from sidekiq_celery.schedules import maybe_schedule

_EDITABLE = ("task", "args", "kwargs", "options", "schedule")


class BeatLazyFunc:
    """
    An argument of a periodic task that is computed each time the task is sent.

    Args:
        func: Called with the other arguments.
    """

    def __init__(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._func = func
        self._args = args
        self._kwargs = kwargs

    def __call__(self) -> Any:
        return self.delay()

    def delay(self) -> Any:
        """Compute the argument."""
        return self._func(*self._args, **self._kwargs)


class ScheduleEntry:
    """
    An entry of a scheduler. Two entries are equal if they send the same task by the same schedule, whenever they last
    ran.

    Args:
        name: The entry's name.
        task: The task's name.
        last_run_at: When it was last sent; now by default.
        total_run_count: How many times it was sent.
        schedule: A schedule, seconds or a timedelta.
        args, kwargs, options: As for `apply_async`.
        relative: True to round the runs of an interval to its unit.

    Raises:
        TypeError: *schedule* is no schedule, *args* no list, or *kwargs* no dict.
    """

    # Subclasses that read databases set these without calling `__init__`.
    app: Any = None
    name: Any = None
    task: Any = None
    args: Any = None
    kwargs: Any = None
    options: Any = None
    schedule: Any = None
    last_run_at: Any = None
    total_run_count: int = 0

    def __init__(
        self,
        name: str | None = None,
        task: str | None = None,
        last_run_at: datetime | None = None,
        total_run_count: int | None = None,
        schedule: Any = None,
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
        relative: bool = False,
        app: Any = None,
    ) -> None:
        if args and not isinstance(args, Iterable):
            raise TypeError(f"args is {args!r}; give a list or tuple, such as ({args!r},)")
        for what, given in (("kwargs", kwargs), ("options", options)):
            if given and not isinstance(given, Mapping):
                raise TypeError(f"{what} is {given!r}; give a dict")
        self.app = app
        self.name = name
        self.task = task
        self.args = args
        self.kwargs = kwargs or {}
        self.options = options or {}
        self.schedule = maybe_schedule(schedule, relative, app=app)
        self.last_run_at = last_run_at or self.default_now()
        self.total_run_count = total_run_count or 0

    def default_now(self) -> datetime:
        """The current time by the schedule's clock."""
        now: datetime = (self.schedule or self.app).now()
        return now

    _default_now = default_now

    def _next_instance(self, last_run_at: datetime | None = None) -> "ScheduleEntry":
        """A copy with one more run counted."""
        fields = {**dict(self), "last_run_at": last_run_at or self.default_now()}
        return type(self)(**{**fields, "total_run_count": self.total_run_count + 1})

    __next__ = next = _next_instance

    def update(self, other: "ScheduleEntry") -> None:
        """Take over the schedule of *other* and what it sends."""
        for name in _EDITABLE:
            setattr(self, name, getattr(other, name))

    def is_due(self) -> Any:
        """Whether to send it now, and in how many seconds to check again."""
        return self.schedule.is_due(self.last_run_at)

    def editable_fields_equal(self, other: Any) -> bool:
        """Whether both send the same task by the same schedule."""
        return all(getattr(self, name) == getattr(other, name) for name in _EDITABLE)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(vars(self).items())

    def __reduce__(self) -> tuple[Any, ...]:
        when = (self.last_run_at, self.total_run_count, self.schedule)
        return type(self), (self.name, self.task, *when, self.args, self.kwargs, self.options)

    def __repr__(self) -> str:
        call = reprcall(self.task, self.args or (), self.kwargs or {})
        # Celery's text, which has no bracket at its end.
        return f"<{type(self).__name__}: {self.name} {call} {self.schedule}"

    def __lt__(self, other: object) -> bool:
        # Beat's heap compares entries if time and priority are equal. Any order will do, as long as it is stable.
        return id(self) < id(other) if isinstance(other, ScheduleEntry) else NotImplemented

    def __le__(self, other: object) -> bool:
        return id(self) <= id(other) if isinstance(other, ScheduleEntry) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return self.editable_fields_equal(other) if isinstance(other, ScheduleEntry) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def evaluated_args(args: Iterable[Any] | None) -> list[Any]:
    """The positional arguments to send."""
    return [one() if isinstance(one, BeatLazyFunc) else one for one in args or ()]


def evaluated_kwargs(kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """The keyword arguments to send."""
    return {key: one() if isinstance(one, BeatLazyFunc) else one for key, one in (kwargs or {}).items()}
