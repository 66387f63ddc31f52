"""The task run that is in progress here, so that its pushes and retries can be written with its end."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol

from sidekiq_celery._wire.context import Context
from sidekiq_celery.exceptions import Retry
from sidekiq_celery.utils.einfo import ExceptionInfo
from sidekiq_py.extension import Effect, Outgoing


class Run(Protocol):
    """A run in a worker."""

    effects: list[Effect]
    """What the end of this run writes."""

    @property
    def request(self) -> Context:
        """The call's request."""

    @property
    def payload(self) -> dict[str, Any] | None:
        """The job's payload."""

    @property
    def is_open(self) -> bool:
        """True while the run has not ended."""

    def buffer(self, publish: Callable[[], Any]) -> None:
        """Call *publish*, and write the jobs it sends together with the end of this run."""

    def buffer_retry(self, publish: Callable[[], Any], again: Retry) -> None:
        """Do the same for the next attempt."""


class RunDetails(Protocol):
    """The details of a run that events and signals use; see `_run.task_run.TaskRun` for each."""

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
        """True if the task is not registered."""

    @property
    def plan(self) -> Any:
        """The task's plan; its `task` is the task to run."""

    @property
    def request(self) -> Context:
        """The call's request."""


def payload_of(request: Context) -> dict[str, Any] | None:
    """The payload of the job that a worker runs for *request*; None if there is no job, as in an eager run."""
    run = running.get()
    return run.payload if run is not None and run.request is request else None


running: ContextVar[Run | None] = ContextVar("sidekiq_celery.running", default=None)


def current(request: Context) -> Run | None:
    """The worker's run for *request*, or None in a plain call, an eager one or another thread."""
    run = running.get()
    return run if run is not None and run.is_open and run.request is request else None
