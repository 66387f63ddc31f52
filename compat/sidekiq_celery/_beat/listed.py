"""The entries of all beats on one Redis, for `sidekiq-py cron list`: what Redis says, without their programs."""

from collections.abc import Iterator
from datetime import UTC
from typing import Any

from sidekiq_celery._beat import as_data, turns
from sidekiq_celery._beat.persistent import read_runs
from sidekiq_py.extension import Pool

__all__ = ("entries_in",)


def entries_in(pool: Pool) -> Iterator[dict[str, Any]]:
    """
    Each entry, by app and name. Schedule and task are told of those alone that were added at run time; of the others
    only the settings of their app know.

    Raises:
        RedisError: As `Pool.run` does.
    """
    for app in turns.apps(pool):
        values, held, added = turns.read(pool, turns.place_of(app))
        for name in sorted(values.keys() | added.keys()):
            runs = read_runs(UTC, values[name]) if name in values else None
            yield {
                "name": name,
                "cron": "in its settings",
                "class": "",
                **(_described(added[name]) if name in added else {}),
                "next": "paused" if name in held else "",
                "by": f"beat of {app}",
                "last_run_at": runs.sent_at.isoformat() if runs and runs.sent_at else None,
                "total_run_count": runs.total if runs else 0,
            }


def _described(text: bytes) -> dict[str, str]:
    try:
        entry = as_data.entry_of(text)
    except ValueError:
        # Beat leaves it out, and says so in its log.
        return {"cron": "unreadable"}
    return {"cron": as_data.schedule_text(entry["schedule"]), "class": entry["task"]}
