"""Adds execution metrics to the hashes and histograms that Ruby's Web UI reads."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sidekiq_py.redis_access.connection.link import Command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.slices import slices_of
from sidekiq_py.wire import metrics_keys

# Commands in one round trip.
_SLICE = 500


class ClassCounts(NamedTuple):
    """
    The counts of one job class since the last flush.

    Args:
        failed: How many attempts raised.
        milliseconds: The total run time of the successes.
        buckets: The number of successes in each bucket of `metrics_keys.BUCKET_BOUNDS_MS`.
    """

    failed: int
    milliseconds: int
    buckets: tuple[int, ...]

    @property
    def succeeded(self) -> int:
        """How many attempts did not raise."""
        return sum(self.buckets)


def add_counts(pool: Pool, changes: Mapping[str, ClassCounts], *, now: float, generation: int) -> None:
    """
    Add the counts of all classes.

    Args:
        changes: The counts by job class.
        now: Seconds since the epoch; decides the minute to count in.
        generation: 7 or 8, as `Dialect.metrics_generation`.

    Raises:
        RedisError: Nothing or a part was written; after a `ReplyLostError`, perhaps everything.

    Source: Sidekiq 7.3.2 and 8.1.7, metrics/tracking.rb `flush`, metrics/shared.rb `persist`.
    """
    commands = [*_histograms(changes, now, generation), *_hashes(changes, now, generation)]
    for part in slices_of(commands, _SLICE):
        pool.batch(part, idempotent=False)


def _histograms(changes: Mapping[str, ClassCounts], now: float, generation: int) -> Iterator[Command]:
    for job_class, counts in changes.items():
        if counts.succeeded:
            key = metrics_keys.histogram(job_class, now, generation)
            filled = [(number, count) for number, count in enumerate(counts.buckets) if count]
            steps = [part for number, count in filled for part in ("INCRBY", "u16", f"#{number}", count)]
            yield ("BITFIELD", key, "OVERFLOW", "SAT", *steps)
            yield ("EXPIRE", key, metrics_keys.MINUTE_TTL_SECONDS)


def _hashes(changes: Mapping[str, ClassCounts], now: float, generation: int) -> Iterator[Command]:
    if generation >= 8:
        yield from _hash(changes, metrics_keys.ten_minutes(now), metrics_keys.TEN_MINUTES_TTL_SECONDS)
    yield from _hash(changes, metrics_keys.minute(now, generation), metrics_keys.MINUTE_TTL_SECONDS)


def _hash(changes: Mapping[str, ClassCounts], key: str, ttl_seconds: int) -> Iterator[Command]:
    for job_class, counts in changes.items():
        # Without a success if the run's time was read just before the run was counted.
        if counts.succeeded or counts.milliseconds:
            yield ("HINCRBY", key, f"{job_class}|ms", counts.milliseconds)
        if counts.failed:
            yield ("HINCRBY", key, f"{job_class}|f", counts.failed)
        yield ("HINCRBY", key, f"{job_class}|p", counts.succeeded + counts.failed)
    yield ("EXPIRE", key, ttl_seconds)
