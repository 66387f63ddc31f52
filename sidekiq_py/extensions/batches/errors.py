"""The errors of batches."""

from typing import ClassVar

from sidekiq_py.errors import SidekiqError


class BatchError(SidekiqError):
    """A batch cannot do what was asked."""


class _RefusedError(BatchError):
    """A step that Redis refused because of the state of its batch."""

    _TEXT: ClassVar[str]

    def __init__(self, bid: str) -> None:
        super().__init__(self._TEXT.format(bid=bid))
        self.bid = bid


class BatchGoneError(_RefusedError, LookupError):
    """There is no such batch in Redis: it has expired, was deleted, or never existed."""

    _TEXT = "there is no batch {bid} in this Redis: it has expired, was deleted, or was never opened"


class BatchDoneError(_RefusedError):
    """The batch has succeeded: its `success` callbacks are enqueued."""

    _TEXT = "all jobs of batch {bid} have succeeded, and its callbacks are enqueued; make a new batch"


class BatchClosedError(_RefusedError):
    """The batch was closed by hand, or its block of jobs was left before this push."""

    _TEXT = (
        "batch {bid} takes no more jobs here: its block was left, or it was closed by hand. Push within "
        "`with batch.jobs():`, and wait there for the tasks that push"
    )


class BatchRolledBackError(_RefusedError):
    """Redis has lost its last writes to the batch, as in a failover. The job was not enqueued; push it again."""

    _TEXT = (
        "Redis has lost its last writes to batch {bid}, as in a failover, and other jobs have the number of this "
        "one. It was not enqueued: push it again"
    )


_BY_CODE: dict[str, type[_RefusedError]] = {
    "BATCHGONE": BatchGoneError,
    "BATCHDONE": BatchDoneError,
    "BATCHCLOSED": BatchClosedError,
    "BATCHROLLEDBACK": BatchRolledBackError,
}


def of_refusal(refusal: str) -> BatchError | None:
    """The error for a script's refusal; None if it is not one of a batch."""
    code, _, bid = refusal.partition(" ")
    kind = _BY_CODE.get(code)
    return None if kind is None else kind(bid.strip())
