"""A snapshot of the whole system with its rates, for live views."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from operator import attrgetter
from typing import Any

from sidekiq_py.api.processes import Process, Work, processes_of, works_of
from sidekiq_py.api.source import pool_for
from sidekiq_py.api.stats import QueueSummary, summary_of
from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import now_seconds
from sidekiq_py.redis_access.connection.server_info import ServerInfo
from sidekiq_py.redis_access.reads import overview
from sidekiq_py.redis_access.reads.in_flight_counts import InFlightCount, totals
from sidekiq_py.redis_access.reads.overview import EVERYTHING, Choice, Names, OverviewScope
from sidekiq_py.redis_access.reads.queues import QueueState

# Ruby's processes write their counters every 10 s, Python's every 5 s: over a shorter window a rate would jump.
RATE_WINDOW_SECONDS = 15.0

__all__ = ["Overview", "OverviewReader", "OverviewScope", "Rates", "ServerInfo", "TrendPoint"]


@dataclass(frozen=True, slots=True)
class Rates:
    """
    Attempts per second that ended.

    Args:
        processed: All, including failures.
        failed: Those that raised.
        over_seconds: The period over which they were counted.
    """

    processed: float
    failed: float
    over_seconds: float


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """
    A queue in one minute.

    Args:
        size: The number of waiting jobs.
        latency: Seconds since the next job to run was enqueued.
    """

    at: datetime
    size: int
    latency: float


# Without slots, for the cached property.
@dataclass(frozen=True)
class Overview:
    """
    The system at one instant.

    Args:
        at: When it was read, in epoch seconds.
        processed: The number of attempts that ended, including those that failed.
        failed: The number of attempts that raised.
        scheduled, retries, dead: The sizes of the sets.
        queue_names: The names of all queues, sorted, and then those of queues that were cleared while jobs of theirs
            were in flight.
        queues: All queues, or those in the scope of the read, sorted by name; always those that were cleared.
        processes: Sorted by identity.
        works: The running jobs, longest-running first.
        in_flight: Jobs that Python workers have fetched and not settled, by owner and queue.
        rates: None for the first read of an `OverviewReader`.
        trends: For the queues that were asked for: size and latency in each minute of the last two hours, oldest first.
            A Python worker of the fleet records them; minutes in which none was running are missing.
        server: What Redis says about itself; None if it was not asked for, or if this user may not use INFO.
    """

    at: float
    processed: int
    failed: int
    scheduled: int
    retries: int
    dead: int
    queue_names: tuple[str, ...]
    queues: tuple[QueueSummary, ...]
    processes: tuple[Process, ...]
    works: tuple[Work, ...]
    in_flight: tuple[InFlightCount, ...]
    rates: Rates | None
    trends: Mapping[str, tuple[TrendPoint, ...]] = field(default_factory=dict)
    server: ServerInfo | None = None

    @property
    def enqueued(self) -> int:
        """The number of jobs waiting in those of `queues` that can be read."""
        return sum(queue.size for queue in self.queues)

    @property
    def concurrency(self) -> int:
        """The number of jobs that all processes can run at a time."""
        return sum(process.concurrency for process in self.processes)

    def in_flight_of(self, identity: str) -> int:
        """The number of jobs that a process has fetched and not settled."""
        return self._in_flight_by_identity[identity]

    @cached_property
    def _in_flight_by_identity(self) -> Counter[str]:
        # Counted once: views ask for each process, and each process has an entry for each of its queues.
        return totals(self.in_flight, attrgetter("identity"))


class OverviewReader:
    """
    Reads the overview repeatedly. Each read takes one round trip; the first takes two.

        reader = OverviewReader()
        reader.read().queues

    Args:
        window_seconds: The period over which rates are counted, once it has read for that long.
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*.
    """

    def __init__(
        self, *, window_seconds: float = RATE_WINDOW_SECONDS, pool: Any = None, client: Client | None = None
    ) -> None:
        self._pool = pool_for(pool, client)
        self._window_seconds = window_seconds
        self._names: Names | None = None
        self._is_info_refused = False
        self._counts: deque[tuple[float, int, int]] = deque()

    def __repr__(self) -> str:
        return f"<OverviewReader of {self._pool!r}>"

    def read_anew(
        self, now: float | None = None, *, scope: OverviewScope = EVERYTHING, trends_of: Choice | None = None
    ) -> Overview:
        """Like `read`, but with the names now in Redis instead of those of the last read: two round trips."""
        self._names = None
        return self.read(now, scope=scope, trends_of=trends_of)

    def read(
        self, now: float | None = None, *, scope: OverviewScope = EVERYTHING, trends_of: Choice | None = None
    ) -> Overview:
        """
        Read everything.

        Args:
            now: Epoch seconds; the current time by default.
            scope: What to read, if not everything.
            trends_of: Called with the names of all queues; returns those whose trends are wanted. Without it, none are
                read.
        """
        at = now_seconds() if now is None else now
        if self._names is None:
            self._is_info_refused = False
        elif self._is_info_refused:
            # Redis would log a refusal each second.
            scope = replace(scope, server=False)
        found = overview.read(self._pool, self._names, now=at, scope=scope, trends_of=trends_of)
        self._names = found.names
        self._is_info_refused = self._is_info_refused or (scope.server and found.server is None)
        taken = totals(found.in_flight, attrgetter("queue"))
        cleared = sorted(taken.keys() - set(found.listed))
        empty = [QueueState(name, 0, None, name in found.names.paused) for name in cleared]
        states = {state.name: state for state in [*empty, *found.queues]}
        queues = tuple(summary_of(states[name], taken[name], at) for name in sorted(states))
        return Overview(
            at,
            *found.totals,
            (*found.listed, *cleared),
            queues,
            tuple(processes_of(found.beats, self._pool)),
            tuple(works_of(found.running)),
            found.in_flight,
            self._rates(at, found.totals.processed, found.totals.failed),
            {
                name: tuple(TrendPoint(datetime.fromtimestamp(one.minute, UTC), one.size, one.latency) for one in trend)
                for name, trend in found.trends.items()
            },
            found.server,
        )

    def _rates(self, at: float, processed: int, failed: int) -> Rates | None:
        counts = self._counts
        if counts and processed < counts[-1][1]:
            # The counters were reset.
            counts.clear()
        counts.append((at, processed, failed))
        while len(counts) > 2 and counts[1][0] <= at - self._window_seconds:
            counts.popleft()
        since, processed_then, failed_then = counts[0]
        seconds = at - since
        if seconds <= 0:
            return None
        return Rates((processed - processed_then) / seconds, max(0, failed - failed_then) / seconds, seconds)
