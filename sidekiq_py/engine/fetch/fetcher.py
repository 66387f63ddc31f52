"""
The `Fetcher` protocol, and helpers that its implementations share.

`ReliableFetcher` (`reliable.py`) keeps each job in Redis until it is settled. `BasicFetcher` (`basic.py`) uses BRPOP,
as Ruby does.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
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
    Claim a job that a plain move has put into an inbox, when only a script can tell whether it may start.

    Args:
        on_paused: Called with the job if its queue is paused. It has to put the job back, in order with other jobs from
            that queue.

    Returns:
        None if the job must not start here or went back to its queue. A job that must run alone always goes back; the
        fetch script takes it from there.
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
    """Emit the telemetry event for the jobs that one round trip brought."""
    if FETCH.handlers and units:
        FETCH.emit({"count": len(units), "queues": dict(Counter(unit.queue for unit in units))})


class Fetcher(Protocol):
    """
    Gives processors their jobs, and acknowledges, settles or requeues them afterwards. Safe to call from any thread.

    A job has one holder at a time: first the fetcher, then the processor that called `take`, then the event loop once
    it is submitted there, and the fetcher again as soon as one of the calls below returns. If a call raises, the caller
    still holds the job.
    """

    def start(self) -> None:
        """Start fetching. Does not block."""

    def take(self, before_waiting: Callable[[], None] | None = None) -> UnitOfWork | None:
        """
        Wait for the next job and return it. Returns None when the processor should exit.

        Args:
            before_waiting: Called in this thread each time it is about to wait, unless only for a reply from Redis.
        """

    @property
    def pulse(self) -> Pulse:
        """The pulse of the fetch loop while a processor is idle."""

    @property
    def reserved(self) -> list[UnitOfWork]:
        """The jobs that have left their queues and not started yet."""

    @property
    def is_waiting_for_redis(self) -> bool:
        """
        True while what the end of a job writes is not in Redis, which may accept it before long. If the process ended
        now, the job would run again, or with the basic fetcher be lost.
        """

    def acknowledge(self, unit: UnitOfWork, seconds: float) -> None:
        """Acknowledge a job that succeeded after *seconds*."""

    def acknowledge_early(self, unit: UnitOfWork, *, hard_limit_seconds: float | None = None) -> bool:
        """
        Remove a job that may run at most once from Redis just before it starts. Its end is then written
        unconditionally.

        Args:
            hard_limit_seconds: After this long the job may be killed and settled by another process. Its bytes are
                therefore kept under another key, where no worker mistakes them for a job to run.

        Returns:
            False if the job is no longer ours or Redis cannot be reached. The job must not start then.
        """

    def finish(
        self,
        unit: UnitOfWork,
        vital: Sequence[Effect],
        counters: Sequence[Effect],
        seconds: float,
        question: Question | None = None,
    ) -> None:
        """Settle a job that succeeded after *seconds*: these commands are sent soon, together with other jobs'."""

    def settle(self, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
        """
        Settle a job that did not simply succeed: run these commands if the job is still ours. Returns True if it was.
        """

    def requeue(self, units: Sequence[UnitOfWork]) -> None:
        """Requeue jobs that will not finish here. Does not raise: after a failure the fetcher tries again later."""

    def note_async(self, queue: str) -> None:
        """Record that *queue* brings `async def` jobs, so that it is skipped while the event loop is full."""

    def stop_serving(self, queue: str) -> None:
        """Stop fetching from *queue* and requeue its jobs that have not started. Idempotent."""

    def serve(self, weights: Mapping[str, int]) -> None:
        """
        Fetch from exactly these queues, in this order, and requeue jobs from other queues that have not started. The
        weights are either all 0 or all positive, as before the call.
        """

    def release(self, processors: int) -> None:
        """Ask this many processors to exit, idle ones first: their `take` returns None."""

    def awaits(self, queue: str) -> bool:
        """True while a job from *queue*, which is no longer served, may still arrive here."""

    def begin_quiet(self) -> None:
        """Let no more jobs start, whatever still arrives. Does not block; `quiet`, which does the rest, may."""

    def quiet(self) -> None:
        """Stop fetching and requeue the jobs that have not started. Idempotent."""

    def wake(self) -> None:
        """Tell the fetcher that the event loop has room again."""

    def close(self) -> None:
        """Send what is still pending and close all connections."""
