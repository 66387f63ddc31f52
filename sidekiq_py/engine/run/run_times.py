"""
The layout of the row in which a thread counts how often jobs ran, for how long, and how long they had waited.

There are two readers, Sidekiq's Metrics page and `sidekiq_py.metrics` for Prometheus, and each has its own buckets. A
row has the bounds of both, so a run is counted once for both readers. Counting separately cost more: of the 7,500 ns
that a no-op job takes, 520 ns as a handler of `sidekiq.job.stop`, and 260 ns in separate rows.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence

from sidekiq_py.wire.metrics_keys import BUCKET_BOUNDS_MS

PROMETHEUS_BOUNDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 120.0, 300.0, 1800.0, 3600.0, 21600.0),
)
"""In seconds; each bound is inclusive. The bounds are those of yabeda-sidekiq."""

# In seconds. Sidekiq's bounds are exclusive, so each becomes the largest float below it.
_SIDEKIQ_BOUNDS = tuple(math.nextafter(bound / 1000, 0) for bound in BUCKET_BOUNDS_MS)

BOUNDS = tuple(sorted({*PROMETHEUS_BOUNDS, *_SIDEKIQ_BOUNDS}))
"""In seconds; each bound is inclusive."""

BUCKETS = len(BOUNDS) + 1

# A row holds the buckets of the runtime, then these three numbers, then the buckets of the latency, by Prometheus'
# bounds.
FAILED = BUCKETS
RUNTIME = BUCKETS + 1
LATENCY = BUCKETS + 2
FIRST_LATENCY = BUCKETS + 3
ROW_LENGTH = FIRST_LATENCY + len(PROMETHEUS_BOUNDS) + 1

Row = list[float]
Rows = Mapping[str, Mapping[str, Row]]
"""By queue, then by job class."""

_LEAST = BOUNDS[0]
_LONGEST_SECONDS = 1e10
# For each bucket of a row, the reader's bucket that it belongs to.
_AT_PROMETHEUS = (*(bisect_left(PROMETHEUS_BOUNDS, bound) for bound in BOUNDS), len(PROMETHEUS_BOUNDS))
_AT_SIDEKIQ = (*(bisect_left(_SIDEKIQ_BOUNDS, bound) for bound in BOUNDS), len(_SIDEKIQ_BOUNDS) - 1)


def new_row() -> Row:
    """The row of a job class that has not run."""
    return [0] * ROW_LENGTH


def added(one: Sequence[float], other: Sequence[float]) -> Row:
    """The sum of two rows."""
    return [a + b for a, b in zip(one, other, strict=True)]


def sidekiq_buckets(row: Sequence[float]) -> list[int]:
    """The row's runs by `BUCKET_BOUNDS_MS`."""
    return _regrouped(row, _AT_SIDEKIQ)


def prometheus_buckets(row: Sequence[float]) -> list[int]:
    """The row's runs by `PROMETHEUS_BOUNDS`, and a last bucket for those above."""
    return _regrouped(row, _AT_PROMETHEUS)


def _regrouped(row: Sequence[float], places: Sequence[int]) -> list[int]:
    counts = [0] * (places[-1] + 1)
    for place, count in zip(places, row[:BUCKETS], strict=True):
        counts[place] += int(count)
    return counts


def add_run(row: Row, seconds: float) -> None:
    """Count a run that took *seconds*."""
    row[RUNTIME] += seconds
    row[0 if seconds <= _LEAST else bisect_left(BOUNDS, seconds)] += 1


def add_latencies(row: Row, latencies: Iterable[float], offset: float = 0.0) -> None:
    """
    Count how long jobs had waited, in seconds.

    Args:
        offset: What to add to each latency. It is added to sums, because adding it to each took as long as the rest.
    """
    ordered = sorted(latencies)
    # A time stamp such as -1e999 is not a point in time, and it would make the sum infinite forever.
    del ordered[bisect_left(ordered, _LONGEST_SECONDS - offset) :]
    # A negative latency counts as 0: it comes from machines whose clocks differ.
    counted = bisect_right(ordered, -offset)
    row[FIRST_LATENCY] += counted
    positive = ordered[counted:] if counted else ordered
    # Rounding may make the sum of tiny ones negative, and a reader takes a sum that decreases for a new process.
    row[LATENCY] += max(0.0, sum(positive) + offset * len(positive))
    # Usually all of them belong to the same bucket.
    while counted < len(ordered):
        place = bisect_left(PROMETHEUS_BOUNDS, ordered[counted] + offset)
        # At least the one that was looked up: rounding may put it just above its own bound.
        up_to_here = len(ordered)
        if place < len(PROMETHEUS_BOUNDS):
            up_to_here = bisect_right(ordered, PROMETHEUS_BOUNDS[place] - offset, counted + 1)
        row[FIRST_LATENCY + place] += up_to_here - counted
        counted = up_to_here


Keeper = Callable[[Callable[[], list[Rows]]], object]

_keeper: Keeper | None = None


def keep(keeper: Keeper | None) -> None:
    """
    Also count latencies in the workers that this process creates from now on.

    Args:
        keeper: Called by each worker, with a function that returns its rows, one table per thread. None stops counting
            latencies in new workers.
    """
    global _keeper
    _keeper = keeper


def keeper() -> Keeper | None:
    """The callback set by `keep`, or None if latencies are not counted."""
    return _keeper
