"""The counters of finished attempts and the sizes of everything."""

from collections.abc import Sequence
from dataclasses import dataclass

from sidekiq_py.redis_access.connection.link import Command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import raise_first, readable
from sidekiq_py.wire import keys
from sidekiq_py.wire.number_text import to_i

TOTALS: tuple[Command, ...] = (
    ("GET", keys.STAT_PROCESSED),
    ("GET", keys.STAT_FAILED),
    ("ZCARD", keys.SCHEDULE),
    ("ZCARD", keys.RETRY),
    ("ZCARD", keys.DEAD),
)
"""They read the counters of finished and of failed attempts, and the sizes of the three sets."""

_COUNTERS = {"processed": keys.STAT_PROCESSED, "failed": keys.STAT_FAILED}


@dataclass(frozen=True, slots=True)
class Totals:
    """
    The totals that one round trip can read, whatever the number of queues and processes.

    Args:
        processed: How many attempts ended, including failures.
        failed: How many attempts raised.
        oldest_default: The bytes of the next job to run in the queue `default`; None if it cannot be read, too.
    """

    processed: int
    failed: int
    scheduled_size: int
    retry_size: int
    dead_size: int
    processes_size: int
    oldest_default: bytes | None


def totals(pool: Pool) -> Totals:
    """The counters and sizes. Source: Sidekiq 8.1.7, api.rb, `Stats#fetch_stats_fast!`."""
    commands: list[Command] = [*TOTALS, ("SCARD", keys.PROCESSES), ("LINDEX", keys.queue("default"), -1)]
    *numbers, oldest = pool.replies(commands)
    processed, failed, *sizes = raise_first(numbers)
    return Totals(to_i(processed), to_i(failed), *sizes, *readable([oldest]))


def on_days(pool: Pool, days: Sequence[str]) -> tuple[list[int], list[int]]:
    """
    How many attempts ended, and how many raised, on each day.

    Args:
        days: UTC dates as `YYYY-MM-DD`.
    """
    names = [*map(keys.stat_processed_on, days), *map(keys.stat_failed_on, days)]
    counts = [to_i(value) for value in pool.command("MGET", *names)]
    return counts[: len(days)], counts[len(days) :]


def reset(pool: Pool, names: Sequence[str]) -> None:
    """Set counters to 0: `processed`, `failed`. The counts of days stay. Source: Sidekiq 8.1.7, `Stats#reset`."""
    pairs = [part for name in names for part in (_COUNTERS[name], 0)]
    if pairs:
        pool.command("MSET", *pairs)
