"""
How often jobs ran, for how long, and how long they had waited: the layout of the row in which a thread counts that.

Two readers divide the same times differently: Sidekiq's Metrics page, and `sidekiq_py.metrics` for Prometheus. The
buckets of a row are bounded by both, so a run is counted once for both. Each counting for itself, as a handler of
`sidekiq.job.stop`, took 520 ns a run, of the 7,500 that a job takes which does nothing, and in rows of its own 260.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence

from sidekiq_py.wire.metrics_keys import BUCKET_BOUNDS_MS

PROMETHEUS_BOUNDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 120.0, 300.0, 1800.0, 3600.0, 21600.0),
)
"""In seconds; a bound belongs to its bucket. Those of yabeda-sidekiq."""

# In seconds. A bound is not of its own bucket there: the last one before it is.
_SIDEKIQ_BOUNDS = tuple(math.nextafter(bound / 1000, 0) for bound in BUCKET_BOUNDS_MS)

BOUNDS = tuple(sorted({*PROMETHEUS_BOUNDS, *_SIDEKIQ_BOUNDS}))
"""In seconds; a bound belongs to its bucket."""

BUCKETS = len(BOUNDS) + 1

# A row: buckets of the runtime, then these three, then buckets of the latency, by Prometheus' bounds.
FAILED = BUCKETS
RUNTIME = BUCKETS + 1
LATENCY = BUCKETS + 2
FIRST_LATENCY = BUCKETS + 3
ROW_LENGTH = FIRST_LATENCY + len(PROMETHEUS_BOUNDS) + 1

Row = list[float]
Rows = Mapping[str, Mapping[str, Row]]
"""By queue, then by job class."""

_LEAST = BOUNDS[0]
_LAST_LATENCY = ROW_LENGTH - 1
_LONGEST_SECONDS = 1e10
# Where each bucket of a row belongs.
_AT_PROMETHEUS = (*(bisect_left(PROMETHEUS_BOUNDS, bound) for bound in BOUNDS), len(PROMETHEUS_BOUNDS))
_AT_SIDEKIQ = (*(bisect_left(_SIDEKIQ_BOUNDS, bound) for bound in BOUNDS), len(_SIDEKIQ_BOUNDS) - 1)


def new_row() -> Row:
    """Of a job class that has not run."""
    return [0] * ROW_LENGTH


def added(one: Sequence[float], other: Sequence[float]) -> Row:
    """Both together."""
    return [a + b for a, b in zip(one, other, strict=True)]


def sidekiq_buckets(row: Sequence[float]) -> list[int]:
    """Its runs by `BUCKET_BOUNDS_MS`."""
    return _regrouped(row, _AT_SIDEKIQ)


def prometheus_buckets(row: Sequence[float]) -> list[int]:
    """Its runs by `PROMETHEUS_BOUNDS`, and one more for those beyond."""
    return _regrouped(row, _AT_PROMETHEUS)


def _regrouped(row: Sequence[float], places: Sequence[int]) -> list[int]:
    counts = [0] * (places[-1] + 1)
    for place, count in zip(places, row[:BUCKETS], strict=True):
        counts[place] += int(count)
    return counts


def add_run(row: Row, seconds: float) -> None:
    """Count a run of so many seconds."""
    row[RUNTIME] += seconds
    row[0 if seconds <= _LEAST else bisect_left(BOUNDS, seconds)] += 1


def add_latencies(row: Row, latencies: Iterable[float]) -> None:
    """Count how long jobs had waited, in seconds."""
    ordered = sorted(latencies)
    # From a time stamp such as -1e999: no moment, and a sum that it is part of would be none for ever.
    del ordered[bisect_left(ordered, _LONGEST_SECONDS) :]
    if not ordered:
        return
    # Where clocks of two machines differ: a job never waits for less than nothing.
    row[LATENCY] += sum(ordered[bisect_right(ordered, 0.0) :])
    counted = 0
    for place, bound in enumerate(PROMETHEUS_BOUNDS, FIRST_LATENCY):
        up_to_here = bisect_right(ordered, bound)
        row[place] += up_to_here - counted
        counted = up_to_here
    row[_LAST_LATENCY] += len(ordered) - counted


Keeper = Callable[[Callable[[], list[Rows]]], object]

_keeper: Keeper | None = None


def keep(keeper: Keeper | None) -> None:
    """
    Count latencies, too, in the workers of this process that are made from now on; None: no more.

    Args:
        keeper: Called by each of them, with what gives its rows, by thread.
    """
    global _keeper
    _keeper = keeper


def keeper() -> Keeper | None:
    """Who keeps latencies; None: nobody."""
    return _keeper
