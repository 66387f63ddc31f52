"""The counters of finished attempts and the sizes of everything."""

from collections.abc import Sequence
from typing import Any, NamedTuple

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


class Totals(NamedTuple):
    """
    What `TOTALS` reads.

    Args:
        processed: How many attempts ended, including failures.
        failed: How many attempts raised.
    """

    processed: int
    failed: int
    scheduled: int
    retries: int
    dead: int


def totals_of(replies: Sequence[Any]) -> Totals:
    """The replies to `TOTALS` as numbers."""
    return Totals(*map(number, replies))


def number(reply: Any) -> int:
    """A length, or a counter's text, as an int; 0 for anything else."""
    return reply if isinstance(reply, int) else to_i(reply)


def totals(pool: Pool) -> tuple[Totals, int, bytes | None]:
    """
    What one round trip can read, whatever the number of queues and processes: the totals, the number of processes, and
    the bytes of the next job to run in the queue `default`, or None if it cannot be read, too.

    Source: Sidekiq 8.1.7, api.rb, `Stats#fetch_stats_fast!`.
    """
    commands: list[Command] = [*TOTALS, ("SCARD", keys.PROCESSES), ("LINDEX", keys.queue("default"), -1)]
    *numbers, oldest = pool.replies(commands)
    *found, processes = raise_first(numbers)
    return totals_of(found), processes, readable([oldest])[0]


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
