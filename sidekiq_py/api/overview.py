"""The whole system at one instant, and how much it does: what a live view shows."""

from collections import deque
from dataclasses import dataclass
from typing import Any

from sidekiq_py.api.job_record import JobRecord, latency
from sidekiq_py.api.processes import Process, Work, processes_of, works_of
from sidekiq_py.api.source import pool_for
from sidekiq_py.api.stats import QueueSummary
from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import now_seconds
from sidekiq_py.redis_access.reads import overview
from sidekiq_py.redis_access.reads.in_flight_counts import InFlightCount
from sidekiq_py.redis_access.reads.overview import Names

# Ruby's processes write what they have done every 10 s, Python's every 2 s: over less than this a rate would jump.
RATE_WINDOW_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Rates:
    """
    Attempts a second that ended.

    Args:
        processed: Failures included.
        failed: Those that raised.
        over_seconds: The time over which they were counted.
    """

    processed: float
    failed: float
    over_seconds: float


@dataclass(frozen=True, slots=True)
class Overview:
    """
    The system at one instant.

    Args:
        at: When it was read, epoch s.
        processed: How many attempts ended, those that failed included.
        failed: How many attempts raised.
        scheduled, retries, dead: The sizes of the sets.
        queues: By name.
        processes: By identity.
        works: What runs, the longest first.
        in_flight: Jobs that Python workers have taken and not settled, by owner and queue.
        rates: None at the first read of an `OverviewReader`.
    """

    at: float
    processed: int
    failed: int
    scheduled: int
    retries: int
    dead: int
    queues: tuple[QueueSummary, ...]
    processes: tuple[Process, ...]
    works: tuple[Work, ...]
    in_flight: tuple[InFlightCount, ...]
    rates: Rates | None

    @property
    def enqueued(self) -> int:
        """Jobs waiting in all queues."""
        return sum(queue.size for queue in self.queues)

    @property
    def concurrency(self) -> int:
        """How many jobs all processes can run at a time."""
        return sum(process.concurrency for process in self.processes)

    def in_flight_of(self, identity: str) -> int:
        """How many jobs a process has taken and not settled."""
        return sum(entry.count for entry in self.in_flight if entry.identity == identity)


class OverviewReader:
    """
    Reads again and again, in one round trip each but for the first, which takes two.

        reader = OverviewReader()
        reader.read().queues

    Args:
        window_seconds: Rates are counted over so long, once it has read for as long.
        pool: Whose Redis: a `Pool`, a redis-py client, or a URL. Without it and *client*, the program's.
        client: Instead of *pool*.
    """

    def __init__(
        self, *, window_seconds: float = RATE_WINDOW_SECONDS, pool: Any = None, client: Client | None = None
    ) -> None:
        self._pool = pool_for(pool, client)
        self._window_seconds = window_seconds
        self._names: Names | None = None
        self._counts: deque[tuple[float, int, int]] = deque()

    def __repr__(self) -> str:
        return f"<OverviewReader of {self._pool!r}>"

    def read_anew(self, now: float | None = None) -> Overview:
        """As `read`, but with the names that stand in Redis now instead of those of the last read: two round trips."""
        self._names = None
        return self.read(now)

    def read(self, now: float | None = None) -> Overview:
        """
        Everything, now.

        Args:
            now: Epoch s; the clock's time if it is left out.
        """
        found = overview.read(self._pool, self._names)
        self._names = found.names
        at = now_seconds() if now is None else now
        taken: dict[str, int] = {}
        for entry in found.in_flight:
            taken[entry.queue] = taken.get(entry.queue, 0) + entry.count
        sizes = {state.name: state for state in found.queues}
        queues = tuple(
            QueueSummary(
                name,
                state.size if (state := sizes.get(name)) else 0,
                latency(JobRecord(state.oldest).item, at) if state and state.oldest is not None else 0.0,
                name in found.names.paused,
                taken.get(name, 0),
            )
            for name in sorted({*sizes, *taken})
        )
        return Overview(
            at,
            found.processed,
            found.failed,
            found.scheduled,
            found.retries,
            found.dead,
            queues,
            tuple(processes_of(found.beats, self._pool)),
            tuple(works_of(found.running)),
            found.in_flight,
            self._rates(at, found.processed, found.failed),
        )

    def _rates(self, at: float, processed: int, failed: int) -> Rates | None:
        counts = self._counts
        if counts and processed < counts[-1][1]:
            # The counters were set to 0.
            counts.clear()
        counts.append((at, processed, failed))
        while len(counts) > 2 and counts[1][0] <= at - self._window_seconds:
            counts.popleft()
        since, processed_then, failed_then = counts[0]
        seconds = at - since
        if seconds <= 0:
            return None
        return Rates((processed - processed_then) / seconds, max(0, failed - failed_then) / seconds, seconds)
