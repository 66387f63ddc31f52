"""For type checkers: the module, and what extensions add to the current job, which it cannot import."""

from typing import Any

from sidekiq_py.extensions.batches.batch import Batch
from sidekiq_py.registry import Payload

class CurrentJob:
    deadline: float | None
    payload: Payload
    queue: str
    def __init__(self, payload: Payload, queue: str, deadline: float | None) -> None: ...
    @property
    def jid(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def batch(self) -> Batch | None:
        """The batch that the job belongs to, or None."""
    @property
    def is_valid(self) -> bool:
        """False if the job's batch was invalidated, so that the job can end early."""
    def progress(
        self, at: float | None = None, total: float | None = None, message: str | None = None, **fields: Any
    ) -> None:
        """Report how much is done: *at* of *total*, which is 100 until given. The job needs `status=True`."""
    async def aprogress(
        self, at: float | None = None, total: float | None = None, message: str | None = None, **fields: Any
    ) -> None:
        """`progress` for `async def` jobs."""

def current_job() -> CurrentJob | None: ...
