"""The tasks that a worker is running, for bootsteps that act on them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from sidekiq_celery.worker import state
from sidekiq_py.errors import PayloadError
from sidekiq_py.payloads import parse_job


class ActiveRequest(NamedTuple):
    """A task that a worker is running."""

    id: str
    name: str

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self.id

    @property
    def task_name(self) -> str:
        """The task's name."""
        return self.name


class State:
    """
    `worker.state`; for other names it has what `sidekiq_celery.worker.state` has.

    Attributes:
        should_stop: True once the worker has been asked to stop.
        should_terminate: True once it has been asked not to wait for tasks.
        running_jobs: Returns the payloads of the jobs that all processes of the worker run.
    """

    def __init__(self) -> None:
        self.should_stop = self.should_terminate = False
        self.running_jobs: Callable[[], list[bytes]] = list

    @property
    def active_requests(self) -> set[ActiveRequest]:
        """
        The tasks that all processes of this worker run. With prefork they are read from Redis; there, a task with
        `acks_late=False` is missing.
        """
        found = set()
        for raw in self.running_jobs():
            try:
                job = parse_job(raw)
            except PayloadError:
                continue
            found.add(ActiveRequest(str(job.get("jid")), str(job.get("wrapped") or job["class"])))
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(state, name)
