"""
The keys of execution metrics: a hash per minute, one per ten minutes (8.0), and a histogram per job class and minute.

All times are UTC. Source: Sidekiq 7.3.2 and 8.1.7, metrics/tracking.rb, shared.rb and query.rb.
"""

from datetime import UTC, datetime

MINUTE_TTL_SECONDS = 8 * 3600
TEN_MINUTES_TTL_SECONDS = 3 * 24 * 3600

# A job counts in the first bucket whose bound, in ms, is above its run time. Laid out as in Ruby's source.
BUCKET_BOUNDS_MS = (
    20, 30, 45, 65, 100,
    150, 225, 335, 500, 750,
    1100, 1700, 2500, 3800, 5750,
    8500, 13_000, 20_000, 30_000, 45_000,
    65_000, 100_000, 150_000, 225_000, 335_000,
    1e20,
)  # fmt: skip


def minute(epoch_seconds: float, generation: int) -> str:
    """
    The hash of a minute: `<class>|p` (attempts), `<class>|f` (failures), `<class>|ms` (run time of successes).

    Args:
        generation: 7 or 8, as `Dialect.metrics_generation`: `j|20250214|8:3` or `j|250214|8:03`.
    """
    at = datetime.fromtimestamp(epoch_seconds, UTC)
    if generation == 7:
        return f"j|{at:%Y%m%d}|{at.hour}:{at.minute}"
    return f"j|{at:%y%m%d}|{at.hour}:{at.minute:02}"


def ten_minutes(epoch_seconds: float) -> str:
    """The hash of ten minutes, written since 8.0: `j|250214|8:0` covers 8:00 to 8:09."""
    return minute(epoch_seconds, 8)[:-1]


def histogram(job_class: str, epoch_seconds: float, generation: int) -> str:
    """The counts of a class's job times by bucket, as 16-bit fields: `HardJob-14-08:3` or `h|HardJob-14-8:3`."""
    at = datetime.fromtimestamp(epoch_seconds, UTC)
    if generation == 7:
        return f"{job_class}-{at:%d-%H}:{at.minute}"
    return f"h|{job_class}-{at.day}-{at.hour}:{at.minute}"


def marks(epoch_seconds: float) -> str:
    """The hash of a day's deploys: maps a time, in ISO 8601 to the minute, to a label."""
    return f"{datetime.fromtimestamp(epoch_seconds, UTC):%Y%m%d}-marks"


def mark_lock(label: str) -> str:
    """A key that exists for a minute after a deploy was marked, so that many machines leave only one mark."""
    return f"deploylock-{label}"
