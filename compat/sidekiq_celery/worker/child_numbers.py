"""The numbers of a worker's children, and the log file that each has where its name asks for them (`%i`, `%I`)."""

import multiprocessing
from collections.abc import Iterable
from itertools import count
from typing import Any

__all__ = ("ChildNumbers", "be_number")


class ChildNumbers:
    """Each child has the least number that is free, so that one in another's place goes on with its log file."""

    def __init__(self) -> None:
        self._by_pid: dict[int, int] = {}
        self._given = 0

    def give(self, pids: Iterable[int]) -> int:
        """
        The number of the child that is forked next, from 1 on.

        Args:
            pids: Of the children that stay. One that was not told before has the number that was given last.
        """
        self._by_pid = {pid: self._by_pid.get(pid, self._given) for pid in pids}
        taken = self._by_pid.values()
        self._given = next(number for number in count(1) if number not in taken)
        return self._given


def be_number(number: int, worker: Any) -> None:
    """This process is that child of *worker*: its log goes on in a file of its own, if the file's name has a number."""
    process: Any = multiprocessing.current_process()
    # As Celery counts them: from 0.
    process.index = number - 1
    if isinstance(worker.logfile, str) and "%i" in worker.logfile.lower():
        log = worker.app.log
        log.already_setup = False
        log.setup(worker.loglevel, worker.logfile, hostname=worker.hostname)
