"""One job that a fake mode has collected."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class EnqueuedJob:
    """
    One waiting job.

    Args:
        raw: The bytes that Redis would have received.
        payload: The parsed payload.
        at: When it is due, in seconds since the epoch; None if it is in its queue.
    """

    raw: bytes
    payload: dict[str, Any]
    at: float | None = None

    @property
    def jid(self) -> str:
        """The job's id."""
        return str(self.payload["jid"])

    @property
    def queue(self) -> str:
        """The job's queue."""
        return str(self.payload["queue"])

    @property
    def job_class(self) -> str:
        """The job's name; for an Active Job, the name of its own class."""
        return str(self.payload.get("wrapped") or self.payload["class"])

    @property
    def args(self) -> list[Any]:
        """The job's arguments; for an Active Job, Python values with keyword arguments in a dict at the end."""
        args = list(self.payload.get("args") or [])
        if "wrapped" in self.payload and args and isinstance(args[0], dict) and "job_class" in args[0]:
            from sidekiq_py.active_job.arguments import deserialize  # imported here because only Active Jobs need it

            return deserialize(args[0].get("arguments") or [])
        return args

    @property
    def line(self) -> str:
        """The job on one line."""
        due = "" if self.at is None else f", due {utc_text(self.at)}"
        return f"{self.job_class}({', '.join(map(repr, self.args))}) on queue {self.queue!r}{due}"

    def __repr__(self) -> str:
        return f"<EnqueuedJob {self.line}>"


def utc_text(seconds: float) -> str:
    """Format seconds since the epoch for people."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="milliseconds")
