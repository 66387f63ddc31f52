"""The Active Job that runs here: what it was enqueued with, and what it passes on to jobs that it enqueues."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CurrentActiveJob:
    """
    A run, as `current_active_job()` shows it.

    Args:
        job: The job object, with this run counted in `executions`.
        jid: Sidekiq's id of this try; Active Job's retries bear others.
    """

    job: Mapping[str, Any]
    jid: str

    @property
    def job_class(self) -> str:
        """The Ruby class that it stands for."""
        return str(self.job["job_class"])

    @property
    def job_id(self) -> str | None:
        """Active Job's own id, the same through its retries."""
        return self.job.get("job_id")

    @property
    def executions(self) -> int:
        """1 in the first run."""
        return int(self.job["executions"])

    @property
    def exception_executions(self) -> Mapping[str, int]:
        """How often each `retry_on` ended a run."""
        return self.job.get("exception_executions") or {}

    @property
    def locale(self) -> str:
        """`I18n.locale` where it was enqueued."""
        return self.job.get("locale") or "en"

    @property
    def timezone(self) -> str | None:
        """The name of `Time.zone` where it was enqueued."""
        return self.job.get("timezone")

    @property
    def priority(self) -> int | None:
        """Its priority."""
        return self.job.get("priority")

    @property
    def enqueued_at(self) -> str | None:
        """When it was enqueued, in ISO 8601."""
        return self.job.get("enqueued_at")


running: ContextVar[CurrentActiveJob | None] = ContextVar("sidekiq_current_active_job", default=None)


def current_active_job() -> CurrentActiveJob | None:
    """The Active Job that the calling thread or task runs, or None."""
    return running.get()
