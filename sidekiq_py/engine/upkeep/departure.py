"""The end of a worker process in Redis: it is struck off, and what it still holds goes back."""

import logging
import os
import sys
from collections.abc import Callable, Sequence

from sidekiq_py.clock import now_seconds
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.engine.run.manager import Manager
from sidekiq_py.errors import RedisError
from sidekiq_py.redis_access.connection.pool import Pool

_log = logging.getLogger("sidekiq")


class Departure:
    """
    Of one process.

    Args:
        ownership: None with the basic fetcher, which keeps no job in Redis.
        flush_counts: Writes what has been counted and is not in Redis yet.
    """

    def __init__(
        self,
        pool: Pool,
        ownership: Ownership | None,
        managers: Sequence[Manager],
        flush_counts: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._ownership = ownership
        self._managers = managers
        self._flush_counts = flush_counts
        self._left: Sequence[UnitOfWork] = ()

    def leave(self, left: Sequence[UnitOfWork]) -> None:
        """Strike this process off; whatever it still holds goes back, but for *left*, which still runs here."""
        self._left = left
        try:
            self._flush_counts()
            if self._ownership is not None:
                owner = self._ownership
                self._pool.run(lambda link: owner.leave(link, now_seconds(), but=left))
            elif left:
                self._managers[0].fetcher.requeue(left)
        except RedisError as error:
            _log.warning("Redis is out of reach; whoever finds this process dead brings its jobs back: %s", error)
        self._pool.close()

    def let_go_and_exit(self, code: int) -> None:
        """
        The very last step: the process's threads end, and what still runs goes back to its queue.

        Somebody else may start these jobs as soon as Redis has read the command, so it is to read it when all threads
        have ended; if the command is lost, whoever looks after this owner brings them back.
        """
        link = self._pool.new_link()
        try:
            link.connect()
            logging.shutdown()
            # Where the kernel keeps nothing back, other threads are to get no turn between the command and the exit.
            sys.setswitchinterval(1e-6)
            if self._ownership is not None:
                self._ownership.let_go(link, self._left)
        finally:
            os._exit(code)
