"""
Beat's entries in `sidekiq-py cron list`, read-only.

An app's settings are not in Redis, so a beat writes down what it sends and when. A listing can then read this without
the app.
"""

import json
import time
from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import Any

from sidekiq_celery._beat.runs import read_runs
from sidekiq_py.extension import Pool

BEATS = "sidekiq_py:beats"
"""A hash from an app's name to JSON: `{"at": epoch seconds, "entries": {name: [task, schedule as text]}}`."""

# Entries that no beat has confirmed for a day are no longer shown.
_KEPT_SECONDS = 24 * 3600


def write(pool: Pool, app_name: str, entries: Mapping[str, tuple[str, str]]) -> None:
    """
    Write down what an app's beat sends.

    Args:
        entries: A mapping from an entry's name to the task and its schedule in readable form.
    """
    pool.command("HSET", BEATS, app_name, json.dumps({"at": int(time.time()), "entries": entries}))


def entries(pool: Pool) -> Iterable[Mapping[str, Any]]:
    """One mapping for each entry that a beat has confirmed within a day."""
    for app_name, text in _pairs(pool.command("HGETALL", BEATS)):
        try:
            listing = json.loads(text)
            at = float(listing["at"])
            known = sorted((name, str(task), str(when)) for name, (task, when) in listing["entries"].items())
        # Another program may have written anything.
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            continue
        if time.time() - at > _KEPT_SECONDS:
            continue
        key = f"sidekiq_py:beat:{app_name}"
        replies = pool.well_typed([("HGETALL", key), ("SMEMBERS", f"{key}:held")])
        texts = dict(_pairs(replies[0] or []))
        paused = {name.decode(errors="replace") for name in replies[1] or []}
        for name, task, schedule in known:
            runs = read_runs(texts.get(name, b""), UTC)
            sent_at = None if runs is None else runs.sent_at
            yield {
                "name": name,
                "cron": schedule,
                "class": task,
                "by": f"celery beat {app_name}",
                "enabled": name not in paused,
                "last_enqueue_time": None if sent_at is None else sent_at.isoformat(),
            }


def _pairs(reply: Any) -> Iterable[tuple[str, bytes]]:
    return [(key.decode(errors="replace"), value) for key, value in zip(reply[::2], reply[1::2], strict=True)]
