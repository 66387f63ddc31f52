"""`current_job()`: the running job, as an object for the program."""

from typing import Any

from sidekiq_py import program
from sidekiq_py.middleware.running import running_here
from sidekiq_py.registry import Payload


class CurrentJob:
    """
    The job that the calling thread or task is running.

    Args:
        payload: The live dict that middleware also sees.
        queue: The queue the job was fetched from.
        deadline: When the soft time limit is reached, in seconds since the epoch; None if there is no limit.
    """

    __slots__ = ("deadline", "payload", "queue")

    def __init__(self, payload: Payload, queue: str, deadline: float | None) -> None:
        self.payload = payload
        self.queue = queue
        self.deadline = deadline

    def __repr__(self) -> str:
        return f"<CurrentJob {self.payload.get('class')} jid={self.jid} queue={self.queue} attempt={self.attempt}>"

    @property
    def jid(self) -> str:
        """The job's id."""
        return str(self.payload.get("jid"))

    @property
    def attempt(self) -> int:
        """1 for the first run, 2 for the first retry."""
        count = self.payload.get("retry_count")
        return 1 if count is None else int(count) + 2

    def __getattr__(self, name: str) -> Any:
        """An attribute that an extension adds, such as `batch` or `progress`."""
        is_private = name.startswith("_")
        find = None if is_private else program.extensions.lookup(name, lambda extension: extension.job_attributes)
        if find is None:
            raise AttributeError(f"the current job has no attribute {name!r}, and no extension that is loaded adds it")
        return find(self)


def current_job() -> CurrentJob | None:
    """The job that the calling thread or task is running, or None."""
    current = running_here()
    return None if current is None else CurrentJob(*current)
