"""
How long successful jobs ran and had waited, for whoever keeps it: the layout of a row, and who makes rows.

`sidekiq_py.metrics` keeps them, with `--probe-port`. It could count by the event `sidekiq.job.stop`, and did: the
event, the look for the class and the look for its row took 520 ns, of the 7,500 that a job takes which does nothing. So
the count of each run that the engine keeps anyway (`ExecutionMetrics`) fills these rows on its way, in 230.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from time import time
from typing import Any

from sidekiq_py.telemetry import latency_seconds

BOUNDS_SECONDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 120.0, 300.0, 1800.0, 3600.0, 21600.0),
)
BUCKETS = len(BOUNDS_SECONDS) + 1

# A row: buckets of the runtime, then these three, then buckets of the latency.
FAILED = BUCKETS
RUNTIME = BUCKETS + 1
LATENCY = BUCKETS + 2
FIRST_LATENCY = BUCKETS + 3
LAST_LATENCY = FIRST_LATENCY + BUCKETS - 1
ROW_LENGTH = FIRST_LATENCY + BUCKETS

Row = list[float]
NewRow = Callable[[object, str], Row]

_LEAST, _MOST = BOUNDS_SECONDS[0], BOUNDS_SECONDS[-1]

_new_row: NewRow | None = None


def keep(new_row: NewRow | None) -> None:
    """
    For the workers of this process that are made from now on; None: for nobody.

    Args:
        new_row: Gives the calling thread's row of a job class, as its payload names it, and a queue.
    """
    global _new_row
    _new_row = new_row


def keeper() -> NewRow | None:
    """Who makes rows; None where nobody wants any."""
    return _new_row


def add(row: Row, payload: Mapping[str, Any], seconds: float) -> None:
    """
    Count a job that has just ended.

    Args:
        payload: As parsed.
        seconds: How long it ran.
    """
    row[RUNTIME] += seconds
    row[0 if seconds <= _LEAST else bisect_left(BOUNDS_SECONDS, seconds)] += 1
    stamp = payload.get("enqueued_at")
    if stamp.__class__ is float:
        # What Sidekiq up to 7 writes costs no call.
        latency = time() - seconds - stamp
    else:
        found = latency_seconds(payload, time() - seconds)
        if found is None:
            return
        latency = found
    if latency > _LEAST:
        row[LATENCY] += latency
        row[LAST_LATENCY if latency > _MOST else FIRST_LATENCY + bisect_left(BOUNDS_SECONDS, latency)] += 1
    else:
        # Clocks of two machines differ: a job never waits for less than nothing.
        row[LATENCY] += max(0.0, latency)
        row[FIRST_LATENCY] += 1
