"""Which values are valid as a task's time limit."""

import logging
from typing import Any

logger = logging.getLogger("celery.worker")

MOST_SECONDS = 366 * 24 * 3600.0


def problem_with(**limits: Any) -> str | None:
    """What is wrong with one of the limits, and how to fix it. Returns None if all are valid."""
    for name, seconds in limits.items():
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and 0 <= seconds <= MOST_SECONDS):
            problem = f"{name}={seconds!r:.100} is not a time limit"
            return f"{problem}: give seconds as a number from 0 to {MOST_SECONDS:.0f}, or nothing for no limit"
    return None


def seconds_of(task_name: str, limit: Any) -> float | None:
    """
    The limit that a process applies, in seconds; None for no limit.

    An invalid limit is logged: if it raised an error, no child process could start.
    """
    try:
        # A number stays as it is: `TimeLimitExceeded` shows it.
        seconds = limit if isinstance(limit, int | float) else float(limit or 0)
    except (TypeError, ValueError, OverflowError):
        seconds = -1.0
    if 0 <= seconds <= MOST_SECONDS:
        return seconds or None
    logger.error("%s has no time limit, because %.100r is not one: give seconds as a number", task_name, limit)
    return None
