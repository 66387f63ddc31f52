"""
What a fetcher is, and what it hands to a processor.

`ReliableFetcher` (`reliable.py`) keeps a job in Redis until it is settled; `BasicFetcher` (`basic.py`) is Ruby's BRPOP.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.ownership.owner import Owner, UnitOfWork
from sidekiq_py.engine.pulse import Pulse
from sidekiq_py.outcome import Question
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.redis_access.job_path.settle_script import Effect
from sidekiq_py.registry import OnNotices
from sidekiq_py.telemetry import FETCH


def claimed(
    link: Link,
    owner: Owner,
    number: str,
    queue: str,
    raw: bytes,
    on_notices: OnNotices | None,
    on_paused: Callable[[UnitOfWork], object],
) -> UnitOfWork | None:
    """
    A job that a plain move has put into an inbox, where a script has to look whether it may start.

    Args:
        on_paused: Handed the job if its queue is paused: to put it back, in order with others from there.

    Returns:
        None if it is not to start here, or went back to its queue. One that must run alone does: the fetch script takes
        it.
    """
    reply = in_flight.claim(link, owner.name, number, queue, raw)
    if reply == in_flight.PAUSED:
        field = f"{number}@{queue}".encode()
        on_paused(UnitOfWork(raw, queue, owner, field, False, monotonic(), is_listed=True))
        return None
    if reply is None:
        return None
    field, raw, notices = reply
    if on_notices is not None:
        on_notices(notices)
    return UnitOfWork(raw, queue, owner, field, in_flight.split_field(field)[1], monotonic())


def note_fetched(units: Collection[UnitOfWork]) -> None:
    """One round trip has brought these."""
    if FETCH.handlers and units:
        FETCH.emit({"count": len(units), "queues": dict(Counter(unit.queue for unit in units))})


def strike_off(units: Iterable[UnitOfWork]) -> None:
    """
    Nobody here has these jobs any more, as something went wrong on their way. What is in flight and not in its owner's
    table is an orphan, and goes back to its queue at the next comparison.
    """
    for unit in units:
        if unit.owner is not None:
            unit.owner.units.pop(unit.field, None)


class Fetcher(Protocol):
    """
    Where processors get their jobs and hand in the ends of them. All calls are safe from any thread.

    A job has one holder at a time: the fetcher, from `take` on the processor, from `submit` on the event loop, and the
    fetcher again when one of the calls below has returned. Where a call raises, the job is still the caller's.
    """

    def start(self) -> None:
        """Begin to fetch. Does not block."""

    def take(self) -> UnitOfWork | None:
        """The next job to run; waits for one. None: stop."""

    @property
    def pulse(self) -> Pulse:
        """Of fetching, while a processor is idle."""

    @property
    def reserved(self) -> list[UnitOfWork]:
        """What has been taken out of its queue and has not started."""

    @property
    def has_next(self) -> bool:
        """There is a job that has not started: a single processor's `take` need not wait."""

    def acknowledge(self, unit: UnitOfWork, seconds: float) -> None:
        """The job succeeded; it ran for *seconds*."""

    def acknowledge_early(self, unit: UnitOfWork, *, hard_limit_seconds: float | None = None) -> bool:
        """
        A job that may run at most once is about to start: it leaves Redis, and its end is written without condition.

        Args:
            hard_limit_seconds: It may be killed then and ended by another process: its bytes are kept aside, where
                nobody takes them for a job to run.

        Returns:
            False if it is not ours any more, or Redis cannot be asked: it is not to start.
        """

    def finish(
        self,
        unit: UnitOfWork,
        vital: Sequence[Effect],
        counters: Sequence[Effect],
        seconds: float,
        question: Question | None = None,
    ) -> None:
        """The job succeeded after *seconds*, and these commands are its end: handed in soon, with others."""

    def settle(self, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
        """The job ended otherwise: run these commands if it is still ours. True if it was."""

    def requeue(self, units: Sequence[UnitOfWork]) -> None:
        """Put jobs back that are not to be run to their end here. Does not raise: it is made good later if need be."""

    def note_async(self, queue: str) -> None:
        """*queue* brings `async def` jobs: leave it alone while the event loop is full."""

    def stop_serving(self, queue: str) -> None:
        """Take no more jobs from *queue*; what has come from it and not started goes back. Idempotent."""

    def serve(self, weights: Mapping[str, int]) -> None:
        """
        Take jobs from these queues, in this order, and from no others; what has come from others and not started goes
        back. Weights are all 0 or all above it, as they were.
        """

    def release(self, processors: int) -> None:
        """So many processors are to end, idle ones first: `take` gives them None."""

    def awaits(self, queue: str) -> bool:
        """A job of *queue*, which is served no more, may still be on its way here."""

    def quiet(self) -> None:
        """Fetch no more; give back what has not started. Idempotent."""

    def wake(self) -> None:
        """The event loop has room again."""

    def close(self) -> None:
        """Hand in what is due and let go of all connections."""
