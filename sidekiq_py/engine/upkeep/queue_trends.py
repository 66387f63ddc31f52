"""
Records, once a minute, the size of each queue and how long its next job has waited. The dashboard's charts and
telemetry handlers use it.

One process of the fleet does this, so that there is a history even of times when nobody watched the dashboard.
"""

from sidekiq_py import clock
from sidekiq_py.extension import Maintenance
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.reads import queue_trends
from sidekiq_py.redis_access.reads.queue_trends import Sample, Seen
from sidekiq_py.telemetry import QUEUE, latency_seconds
from sidekiq_py.wire.json_dialect import loads_or_none

_EVERY_SECONDS = 60.0
# How far into the minute a round aims: while the clock is being slowed down, a pause ends some milliseconds too early,
# and a round before the minute begins would record the last one twice.
_AFTER_SECONDS = 0.25


def note_sizes(pool: Pool, now: float | None = None) -> float:
    """
    Record the size of each queue that has jobs, or had any recently. Returns the seconds to wait for the next minute.

    Args:
        now: The time in seconds since the epoch; by default the clock's.
    """
    at = clock.now_seconds() if now is None else now
    minute = int(at // 60) * 60
    samples = [
        (seen.name, Sample(minute, seen.size, _latency(seen, at)))
        for seen in queue_trends.look(pool)
        if seen.size or seen.has_trend
    ]
    if QUEUE.handlers:
        for name, sample in samples:
            QUEUE.emit({"queue": name, "size": sample.size, "latency_seconds": sample.latency})
    queue_trends.keep(pool, samples)
    return minute + _EVERY_SECONDS + _AFTER_SECONDS - at


def _latency(seen: Seen, now: float) -> float:
    payload = loads_or_none(seen.oldest or b"")
    return (latency_seconds(payload, now) or 0.0) if isinstance(payload, dict) else 0.0


NOTE_SIZES = Maintenance("trends of queues", _EVERY_SECONDS + _AFTER_SECONDS, note_sizes)
