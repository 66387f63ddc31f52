"""The errors of batches."""

from sidekiq_py.errors import SidekiqError


class BatchError(SidekiqError):
    """A batch cannot do what was asked."""


class BatchGoneError(BatchError, LookupError):
    """There is no such batch in Redis: it has expired, was deleted, or never existed."""

    def __init__(self, bid: str) -> None:
        super().__init__(f"there is no batch {bid} in this Redis: it has expired, was deleted, or was never opened")
        self.bid = bid


class BatchDoneError(BatchError):
    """The batch has succeeded: its `success` callbacks are enqueued."""

    def __init__(self, bid: str) -> None:
        super().__init__(f"all jobs of batch {bid} have succeeded, and its callbacks are enqueued; make a new batch")
        self.bid = bid


class BatchClosedError(BatchError):
    """The batch was closed by hand, or its block of jobs was left before this push."""

    def __init__(self, bid: str) -> None:
        super().__init__(
            f"batch {bid} takes no more jobs here: its block was left, or it was closed by hand. Push within "
            "`with batch.jobs():`, and wait there for the tasks that push"
        )
        self.bid = bid


class BatchRolledBackError(BatchError):
    """Redis has lost its last writes to the batch, as in a failover. The job was not enqueued; push it again."""

    def __init__(self, bid: str) -> None:
        super().__init__(
            f"Redis has lost its last writes to batch {bid}, as in a failover, and other jobs have the number of this "
            "one. It was not enqueued: push it again"
        )
        self.bid = bid


_BY_CODE: dict[str, type[BatchGoneError | BatchDoneError | BatchClosedError | BatchRolledBackError]] = {
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
