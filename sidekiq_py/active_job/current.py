"""The Active Job that is running: its attributes, and those that it passes on to jobs that it enqueues."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CurrentActiveJob:
    """
    The current run, as returned by `current_active_job()`.

    Args:
        job: The job object, with this run counted in `executions`.
        jid: Sidekiq's id for this attempt; retries by Active Job get new ones.
    """

    job: Mapping[str, Any]
    jid: str

    @property
    def job_class(self) -> str:
        """The Ruby class of the job."""
        return str(self.job["job_class"])

    @property
    def job_id(self) -> str | None:
        """Active Job's own id, which stays the same through its retries."""
        return self.job.get("job_id")

    @property
    def executions(self) -> int:
        """1 in the first run."""
        return int(self.job["executions"])

    @property
    def exception_executions(self) -> Mapping[str, int]:
        """How many runs each `retry_on` rule has ended."""
        return self.job.get("exception_executions") or {}

    @property
    def locale(self) -> str:
        """The `I18n.locale` of the program that enqueued it."""
        return self.job.get("locale") or "en"

    @property
    def timezone(self) -> str | None:
        """The name of the `Time.zone` of the program that enqueued it."""
        return self.job.get("timezone")

    @property
    def priority(self) -> int | None:
        """Its priority, if it has one."""
        return self.job.get("priority")

    @property
    def enqueued_at(self) -> str | None:
        """When it was enqueued, in ISO 8601."""
        return self.job.get("enqueued_at")


running: ContextVar[CurrentActiveJob | None] = ContextVar("sidekiq_current_active_job", default=None)


def current_active_job() -> CurrentActiveJob | None:
    """The Active Job that the calling thread or task is running, or None."""
    return running.get()
