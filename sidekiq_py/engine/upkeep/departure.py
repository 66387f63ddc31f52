"""Takes an exiting worker process out of Redis: removes it from the registry and puts back the jobs it still holds."""

import logging
import os
import sys
from collections.abc import Callable, Sequence

from sidekiq_py.clock import now_seconds
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.engine.run.manager import Manager
from sidekiq_py.errors import RedisError, RedisReplyError, rights_hint
from sidekiq_py.logs import log
from sidekiq_py.redis_access.connection.pool import Pool


class Departure:
    """
    The departure of one process.

    Args:
        ownership: None with the basic fetcher, which keeps no jobs in Redis.
        flush_counts: Writes the counts that are not in Redis yet.
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
        """Remove this process from the registry and put back all jobs it holds, except *left*, which still run here."""
        self._left = left
        try:
            self._write_last_counts()
            if self._ownership is not None:
                owner = self._ownership
                self._pool.run(lambda link: owner.leave(link, now_seconds(), but=left))
            elif left:
                self._managers[0].fetcher.requeue(left)
        except RedisError as error:
            log.warning(
                "This process could not return its jobs; another worker will recover them: %s%s",
                error,
                rights_hint(error),
            )
        self._pool.close()

    def _write_last_counts(self) -> None:
        try:
            self._flush_counts()
        except RedisReplyError as error:
            # Such as for lack of a right that is needed for counts alone: the jobs must go back all the same.
            log.warning("The last counts of this process could not be written: %s%s", error, rights_hint(error))

    def let_go_and_exit(self, code: int) -> None:
        """
        Take the very last step: end the process with all its threads, and put the jobs that still run back.

        Another worker may start these jobs as soon as Redis has read the command. So Redis must not read it before all
        threads have ended. If the command is lost, another worker recovers the jobs.
        """
        try:
            # This asks the sentinels, which may not reply.
            link = self._pool.new_link()
            link.connect()
            logging.shutdown()
            # If the kernel cannot hold back the last byte, no other thread should run between the command and the exit.
            sys.setswitchinterval(1e-6)
            if self._ownership is not None:
                self._ownership.let_go(link, self._left)
        finally:
            os._exit(code)
