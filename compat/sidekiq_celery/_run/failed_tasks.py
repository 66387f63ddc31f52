"""
Failed tasks in Sidekiq's dead set, with a limit of their own.

The dead set is shared with the Rails team and holds 10,000 jobs, so a task that fails thousands of times would push out
theirs. Tasks in the dead set are therefore also listed in a separate set. When there are more than `task_keep_failed`
(1,000), the oldest are removed from both. A job that is retried from the dead set stays on this list until its turn
comes; removing it then changes nothing.
"""

import threading
from typing import Any

from sidekiq_celery._send.clients import client_of
from sidekiq_celery.contract import App
from sidekiq_celery.utils.functional import chunks
from sidekiq_py.extension import Command, Link, add_to_dead, monotonic
from sidekiq_py.payloads import keys, score_text

INDEX = "sidekiq_py:celery_dead"
"""A sorted set of the tasks among the members of `dead`, with the same scores."""

_SLICE = 500
_TRIM_EVERY_SECONDS = 1.0


def keep_limit(app: App, task: Any) -> int:
    """The number of failed tasks to keep; 0 if this task is not kept."""
    if task.keep_failed is False:
        return 0
    return int(app.conf.task_keep_failed or 0)


class FailedTasks:
    """
    Keeps failed tasks, up to a limit.

    Args:
        app: The app of the tasks.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._trim_at = 0.0
        self._added = 0

    def keep(self, member: bytes, now: float) -> tuple[Command, ...]:
        """The commands that keep a job; they go into the script that ends it."""
        return add_to_dead(member, now), ("ZADD", INDEX, score_text(now), member)

    def trim(self, limit: int) -> None:
        """
        Trim the failed tasks to *limit*. Called after each one, but acts once a second, or after a tenth of *limit*.

        Raises:
            RedisError: Redis cannot be reached; the next call trims.
        """
        with self._lock:
            self._added += 1
            if monotonic() < self._trim_at and self._added * 10 < limit:
                return
            self._trim_at, self._added = monotonic() + _TRIM_EVERY_SECONDS, 0
        client_of(self._app).pool.run(lambda link: trim(link, limit))


def trim(link: Link, limit: int) -> int:
    """
    Remove the oldest failed tasks beyond *limit*.

    Returns:
        The number of tasks removed.
    """
    surplus: list[bytes] = link.command("ZRANGE", INDEX, 0, -limit - 1)
    for part in chunks(iter(surplus), _SLICE):
        link.batch([("ZREM", keys.DEAD, *part), ("ZREM", INDEX, *part)])
    return len(surplus)
