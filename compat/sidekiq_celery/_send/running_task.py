"""Which run of a task is under way here, for those parts of a task that its end is to write."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol

from sidekiq_celery._wire.context import Context
from sidekiq_celery.exceptions import Retry
from sidekiq_celery.utils.einfo import ExceptionInfo
from sidekiq_py.extension import Outgoing

__all__ = ("Run", "RunDetails", "current", "payload_of", "running")


class Run(Protocol):
    """A run in a worker."""

    @property
    def request(self) -> Context:
        """Of the call."""

    @property
    def payload(self) -> dict[str, Any] | None:
        """Of the job."""

    @property
    def is_open(self) -> bool:
        """It has not ended."""

    def buffer(self, publish: Callable[[], Any]) -> None:
        """Call *publish*; what it sends is written with the end of this run."""

    def buffer_retry(self, publish: Callable[[], Any], again: Retry) -> None:
        """The same for the next try."""


class _Plan(Protocol):
    @property
    def task(self) -> Any:
        """What is run."""


class RunDetails(Protocol):
    """What events and signals tell of a run; `_run.task_run.TaskRun` says what each is."""

    task_id: str
    args: Any
    kwargs: Any
    state: str | None
    retval: Any
    einfo: ExceptionInfo | None
    runtime: float | None
    again: list[Outgoing]

    @property
    def is_unknown(self) -> bool:
        """Nobody has registered the task."""

    @property
    def plan(self) -> _Plan:
        """Of the task."""

    @property
    def request(self) -> Context:
        """Of the call."""


def payload_of(request: Context) -> dict[str, Any] | None:
    """The payload of the job that a worker runs for *request*; None where there is no job, as in an eager run."""
    run = running.get()
    return run.payload if run is not None and run.request is request else None


running: ContextVar[Run | None] = ContextVar("sidekiq_celery.running", default=None)


def current(request: Context) -> Run | None:
    """The run that a worker makes for *request*, or None: a plain call, an eager one, another thread."""
    run = running.get()
    return run if run is not None and run.is_open and run.request is request else None
