"""
Notes once a minute how long each queue is and how long its next job has waited, for the charts of the dashboard and for
handlers of telemetry.

One process of the fleet does, so that there is a history also of times when nobody looked.
"""

from sidekiq_py import clock
from sidekiq_py.errors import JsonParseError
from sidekiq_py.extension import Maintenance
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.reads import queue_trends
from sidekiq_py.redis_access.reads.queue_trends import Sample, Seen
from sidekiq_py.telemetry import QUEUE, latency_seconds
from sidekiq_py.wire.json_dialect import loads

_EVERY_SECONDS = 60.0


def note_sizes(pool: Pool, now: float | None = None) -> float:
    """
    Note the size of each queue that has jobs, or has had any lately; returns the seconds until the next minute.

    Args:
        now: Epoch s; the clock's time if it is left out.
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
    return minute + _EVERY_SECONDS - at


def _latency(seen: Seen, now: float) -> float:
    try:
        payload = loads(seen.oldest) if seen.oldest is not None else None
    except JsonParseError:
        return 0.0
    return (latency_seconds(payload, now) or 0.0) if isinstance(payload, dict) else 0.0


NOTE_SIZES = Maintenance("trends of queues", _EVERY_SECONDS, note_sizes)
