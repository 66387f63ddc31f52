"""Numbers for a worker's children, and a log file for each child if the file's name asks for one (`%i`, `%I`)."""

import multiprocessing
from collections.abc import Iterable
from itertools import count
from typing import Any


class ChildNumbers:
    """Gives each child the lowest free number, so that a replacement carries on with its predecessor's log file."""

    def __init__(self) -> None:
        self._by_pid: dict[int, int] = {}
        self._given = 0

    def give(self, pids: Iterable[int]) -> int:
        """
        Return the number of the next child to be forked, starting at 1.

        Args:
            pids: The children that stay. A pid seen for the first time belongs to the number given out last.
        """
        self._by_pid = {pid: self._by_pid.get(pid, self._given) for pid in pids}
        taken = self._by_pid.values()
        self._given = next(number for number in count(1) if number not in taken)
        return self._given


def be_number(number: int, worker: Any) -> None:
    """Make this process child *number* of *worker*: it logs to a file of its own if the file's name asks for that."""
    process: Any = multiprocessing.current_process()
    # Celery counts from 0.
    process.index = number - 1
    if isinstance(worker.logfile, str) and "%i" in worker.logfile.lower():
        log = worker.app.log
        log.already_setup = False
        log.setup(worker.loglevel, worker.logfile, hostname=worker.hostname)
