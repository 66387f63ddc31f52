"""
Notices that this process can open no more files, so that it ends and is started anew.

A job that leaks files or sockets uses up the process's descriptors. Once a connection to Redis breaks after that, it
cannot be opened again: jobs no longer end, and none are fetched. Only a new process helps. Celery's worker also ends in
that case.
"""

import errno
import os
from collections.abc import Callable

from sidekiq_py import clock

# A job may need many files for a moment.
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 10.0


class OpenFiles:
    """
    Tries to open a file each time it is asked.

    Args:
        monotonic: Returns the time in monotonic seconds.
    """

    def __init__(self, *, monotonic: Callable[[], float] = clock.monotonic) -> None:
        self._monotonic = monotonic
        self._failing_since: float | None = None

    def are_used_up(self) -> bool:
        """True if no file could be opened for a minute."""
        if _can_open():
            self._failing_since = None
            return False
        now = self._monotonic()
        if self._failing_since is None:
            self._failing_since = now
        return now - self._failing_since >= PATIENCE_SECONDS


def _can_open() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno != errno.EMFILE
    return True
