"""
Bulk runs, visible to everyone: each time someone changes many jobs, a hash describes the run, and a sorted set lists
the runs by their start.

Both expire a day after the last change.
"""

from collections.abc import Mapping
from typing import Any

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import flat, texts
from sidekiq_py.wire import keys
from sidekiq_py.wire.payload import score_text

_KEPT_SECONDS = 86_400
_MOST_RUNS = 100


def start(pool: Pool, run_id: str, started_at: float, fields: Mapping[str, Any]) -> None:
    """Record a new run, and remove the oldest ones."""
    key = keys.bulk_run(run_id)
    pool.batch(
        [
            ("HSET", key, *flat(fields)),
            ("EXPIRE", key, _KEPT_SECONDS),
            ("ZADD", keys.BULK_RUNS, score_text(started_at), run_id),
            ("ZREMRANGEBYRANK", keys.BULK_RUNS, 0, -_MOST_RUNS - 1),
            ("EXPIRE", keys.BULK_RUNS, _KEPT_SECONDS),
        ]
    )


def update(pool: Pool, run_id: str, fields: Mapping[str, Any]) -> bool:
    """Record a run's progress. Returns True if someone has asked to stop it."""
    key = keys.bulk_run(run_id)
    replies = pool.batch([("HSET", key, *flat(fields)), ("EXPIRE", key, _KEPT_SECONDS), ("HGET", key, "stop")])
    return replies[-1] is not None


def ask_to_stop(pool: Pool, run_id: str) -> bool:
    """Ask for a run to be stopped. Returns False if there is no such run."""
    key = keys.bulk_run(run_id)
    if not pool.command("EXISTS", key):
        return False
    pool.command("HSET", key, "stop", "1")
    return True


def read(pool: Pool, run_id: str) -> dict[str, str]:
    """The fields of a run; empty if there is none."""
    return texts(pool.command("HGETALL", keys.bulk_run(run_id)))


def latest(pool: Pool, count: int) -> list[tuple[str, dict[str, str]]]:
    """The latest runs with their fields."""
    names = [name.decode(errors="replace") for name in pool.command("ZREVRANGE", keys.BULK_RUNS, 0, count - 1)]
    # A key of the wrong type must not hide the other runs.
    rows = pool.well_typed([("HGETALL", keys.bulk_run(name)) for name in names])
    return [(name, texts(row)) for name, row in zip(names, rows, strict=True) if row]
