"""What can be wrong with a batch."""

from sidekiq_py.errors import SidekiqError


class BatchError(SidekiqError):
    """A batch cannot do what it is asked for."""


class BatchGoneError(BatchError, LookupError):
    """There is no such batch in Redis: it has expired, was deleted, or never was."""

    def __init__(self, bid: str) -> None:
        super().__init__(f"there is no batch {bid} in this Redis: it has expired, was deleted, or was never opened")
        self.bid = bid


class BatchDoneError(BatchError):
    """Its `success` has been enqueued."""

    def __init__(self, bid: str) -> None:
        super().__init__(f"all jobs of batch {bid} have succeeded, and its callbacks are enqueued; make a new batch")
        self.bid = bid


class BatchClosedError(BatchError):
    """Somebody has closed it, or the block of its jobs was left before this push."""

    def __init__(self, bid: str) -> None:
        super().__init__(
            f"batch {bid} takes no job here: its block was left, or somebody has closed it. Push within "
            "`with batch.jobs():`, and wait there for the tasks that push"
        )
        self.bid = bid


_BY_CODE: dict[str, type[BatchGoneError | BatchDoneError | BatchClosedError]] = {
    "BATCHGONE": BatchGoneError,
    "BATCHDONE": BatchDoneError,
    "BATCHCLOSED": BatchClosedError,
}


def of_refusal(refusal: str) -> BatchError | None:
    """The error that a script's refusal stands for, or None."""
    code, _, bid = refusal.partition(" ")
    kind = _BY_CODE.get(code)
    return None if kind is None else kind(bid.strip())
