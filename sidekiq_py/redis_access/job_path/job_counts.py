"""Sidekiq's counters: how many jobs were processed, and how many failed."""

from functools import lru_cache

from sidekiq_py.clock import utc_day
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.redis_access.job_path.settle_script import Counted, Held, write
from sidekiq_py.wire import keys

_DAY_SECONDS = 24 * 3600
STAT_TTL_SECONDS = 5 * 365 * 24 * 3600
_COUNTED_TTL_SECONDS = 3600


def begin_count(link: Link, key: str, before: str) -> None:
    """Prepare *key* for `count_processed_once`. May be repeated until that is sent."""
    link.command("SET", key, before, "EX", _COUNTED_TTL_SECONDS)


def count_processed_once(link: Link, day: str, count: int, *, key: str, before: str, mark: str) -> None:
    """
    Add to the counters of processed jobs. Safe to send again after a lost reply: the text at *key* says which count was
    written last. A counter whose key has the wrong type is not changed.

    Args:
        day: A UTC date as `YYYY-MM-DD`.
        before: The text there if this count is not written yet.
        mark: The text there afterwards.
    """
    commands: tuple[Command, ...] = (
        ("INCRBY", keys.STAT_PROCESSED, count),
        ("COUNT", keys.stat_processed_on(day), count, STAT_TTL_SECONDS),
        ("SET", key, mark, "EX", _COUNTED_TTL_SECONDS),
    )
    write(link, (), [Held(key, before, commands)])


def count_commands(now: float, *, failed: bool) -> Counted:
    """
    The commands that count one finished attempt as Sidekiq does: a failure counts as processed and as failed.

    Args:
        now: Seconds since the epoch.
    """
    return _count_commands(int(now // _DAY_SECONDS), failed)


@lru_cache(maxsize=4)
def _count_commands(day_number: int, failed: bool) -> Counted:
    day = utc_day(day_number * _DAY_SECONDS)
    counts = [("INCRBY", keys.STAT_PROCESSED, 1), ("COUNT", keys.stat_processed_on(day), 1, STAT_TTL_SECONDS)]
    if failed:
        counts += [("INCRBY", keys.STAT_FAILED, 1), ("COUNT", keys.stat_failed_on(day), 1, STAT_TTL_SECONDS)]
    return Counted(counts)
