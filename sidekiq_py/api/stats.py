"""Counters and sizes, current and by day."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from operator import attrgetter
from typing import Any

from sidekiq_py.api.job_record import JobRecord, latency
from sidekiq_py.api.processes import ProcessSet
from sidekiq_py.api.source import pool_for
from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import now_seconds
from sidekiq_py.redis_access.processes import process_set
from sidekiq_py.redis_access.reads import in_flight_counts, queues, stats
from sidekiq_py.redis_access.reads.in_flight_counts import InFlightCount
from sidekiq_py.redis_access.reads.queues import QueueState

MAX_DAYS = 5 * 365
_COUNTERS = ("failed", "processed")


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """
    A queue at one instant.

    Args:
        size: The number of waiting jobs.
        latency: Seconds since the next job to run was enqueued; 0.0 if the queue is empty.
        paused: True if workers do not fetch from it.
        in_flight: Jobs that Python workers have fetched and not settled; Ruby's workers do not report theirs.
        error: Why Redis did not let the queue be read (its key is not a list, or this user may not read it); what could
            not be read is then 0. None if it was read.
    """

    name: str
    size: int
    latency: float
    paused: bool
    in_flight: int
    error: str | None = None


def summary_of(state: QueueState, in_flight: int, now: float) -> QueueSummary:
    """The summary of a queue as it was read at *now*."""
    waiting_for = 0.0 if state.oldest is None else latency(JobRecord(state.oldest).item, now)
    return QueueSummary(state.name, state.size, waiting_for, state.is_paused, in_flight, state.error)


def known_queues(*, pool: Any = None) -> tuple[str, ...]:
    """
    The names of `Stats.known_queues`, found without reading any queue.

    Args:
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
    """
    links = pool_for(pool, None)
    found = {*queues.names(links), *(entry.queue for entry in in_flight_counts.counts(links)), *queues.paused(links)}
    serving = ProcessSet(clean=False, pool=links)
    return tuple(sorted(found.union(*(process.queues for process in serving))))


class Stats:
    """
    The state of the system when this object was created. `processed` to `default_queue_latency` cost one round trip;
    everything that depends on the number of queues and processes is read when it is first asked for.

    Args:
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*.

    Attributes:
        processed: The number of attempts that ended, including those that failed.
        failed: The number of attempts that raised.
        scheduled_size: The number of scheduled jobs.
        retry_size: The number of jobs that wait for their next retry.
        dead_size: The number of jobs in the dead set, which are not retried.
        processes_size: The number of registered processes.
    """

    def __init__(self, *, pool: Any = None, client: Client | None = None) -> None:
        self._pool = pool_for(pool, client)
        totals, self.processes_size, self._oldest_default = stats.totals(self._pool)
        self.processed, self.failed, self.scheduled_size, self.retry_size, self.dead_size = totals

    def __repr__(self) -> str:
        return f"<Stats processed={self.processed} failed={self.failed}>"

    @cached_property
    def default_queue_latency(self) -> float:
        """Seconds since the next job of the queue `default` was enqueued; 0.0 if it is empty or cannot be read."""
        oldest = self._oldest_default
        return 0.0 if oldest is None else latency(JobRecord(oldest).item, now_seconds())

    @cached_property
    def queues(self) -> dict[str, int]:
        """Waiting jobs by queue, longest queue first; 0 for one that cannot be read (see `queue_summaries`)."""
        names = queues.names(self._pool)
        sizes = queues.sizes(self._pool, names)
        return dict(sorted(zip(names, sizes, strict=True), key=lambda pair: (-pair[1], pair[0])))

    @property
    def enqueued(self) -> int:
        """The number of jobs waiting in all queues that can be read."""
        return sum(self.queues.values())

    @cached_property
    def workers_size(self) -> int:
        """The number of jobs that all processes were running at their last heartbeat."""
        return process_set.busy(self._pool)

    @cached_property
    def in_flight(self) -> tuple[InFlightCount, ...]:
        """
        Jobs that Python workers have fetched and not settled, by owner and queue. They are kept in Redis, so they
        survive a crash of their worker; Ruby's Web UI does not show them.
        """
        return tuple(in_flight_counts.counts(self._pool))

    @cached_property
    def known_queues(self) -> tuple[str, ...]:
        """
        The sorted names of queues that exist in any way: pushed to, paused, with jobs in flight, or served by a
        process. A queue whose jobs were put in by a program that does not list it is missing.
        """
        return known_queues(pool=self._pool)

    @cached_property
    def queue_summaries(self) -> list[QueueSummary]:
        """All queues by name, including those that are empty because their jobs are in flight."""
        taken = in_flight_counts.totals(self.in_flight, attrgetter("queue"))
        names = sorted({*queues.names(self._pool), *taken})
        now = now_seconds()
        return [summary_of(state, taken[state.name], now) for state in queues.states(self._pool, names)]

    def reset(self, *names: str) -> None:
        """
        Set the counters `processed` and `failed`, or only the named ones, to 0 in Redis. This object keeps its numbers.

        Raises:
            ValueError: There is no such counter.
        """
        unknown = set(names) - set(_COUNTERS)
        if unknown:
            raise ValueError(f"{', '.join(sorted(unknown))} cannot be reset; the counters are processed and failed")
        stats.reset(self._pool, names or _COUNTERS)


class History:
    """
    Attempts by UTC day, latest first.

        History(7).processed     # {"2025-02-14": 120, "2025-02-13": 98, …}

    Args:
        days: The number of days, up to five years.
        start_date: The latest day; today by default.
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*.

    Raises:
        ValueError: *days* is not a whole number from 1 to 1825, or *start_date* has a time.
    """

    def __init__(
        self, days: int, start_date: date | None = None, *, pool: Any = None, client: Client | None = None
    ) -> None:
        if not isinstance(days, int) or not 1 <= days <= MAX_DAYS:
            raise ValueError(f"days is {days!r}; Redis keeps 1 to {MAX_DAYS}")
        if start_date is not None and (not isinstance(start_date, date) or isinstance(start_date, datetime)):
            raise ValueError(f"start_date is {start_date!r}; give a date, such as date(2030, 1, 31)")
        self._pool = pool_for(pool, client)
        latest = start_date or datetime.fromtimestamp(now_seconds(), UTC).date()
        self._days = [(latest - timedelta(days=back)).isoformat() for back in range(days)]

    def __repr__(self) -> str:
        return f"<History {self._days[-1]} to {self._days[0]}>"

    @property
    def processed(self) -> dict[str, int]:
        """Maps each day to the attempts that ended, including those that failed."""
        return self._counts[0]

    @property
    def failed(self) -> dict[str, int]:
        """Maps each day to the attempts that raised."""
        return self._counts[1]

    @cached_property
    def _counts(self) -> tuple[dict[str, int], dict[str, int]]:
        processed, failed = stats.on_days(self._pool, self._days)
        return dict(zip(self._days, processed, strict=True)), dict(zip(self._days, failed, strict=True))
