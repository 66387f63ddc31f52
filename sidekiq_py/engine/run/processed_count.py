"""
How many jobs have succeeded in this process and are not in Redis's counters yet.

One INCRBY per job would cost Redis as much as the job itself. Ruby adds them up and writes them with each heartbeat;
here they are written two seconds after the first of them, so that a page that shows them is never far behind. A process
that is killed takes the last seconds' count with it, and no job.

Source: Sidekiq 8.1.7, launcher.rb, `flush_stats`.
"""

import threading
from functools import partial

from sidekiq_py.clock import now_seconds
from sidekiq_py.engine.background import background_thread
from sidekiq_py.engine.fetch.settle import utc_day
from sidekiq_py.errors import RedisError, ReplyLostError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path.in_flight import count_processed

WRITE_AFTER_SECONDS = 2.0


class ProcessedCount:
    """
    Starting does not block; stopping twice, or before a start, is fine.

    Args:
        pool: To the Redis whose counters they are.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._count = 0
        self._lock = threading.Lock()
        self._is_due = threading.Event()
        self._end = threading.Event()
        self._thread = background_thread("sidekiq.counts", self._run)

    def __repr__(self) -> str:
        return f"<ProcessedCount {self._count}>"

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what has not been written is left to `flush`."""
        self._end.set()
        self._is_due.set()

    def add(self, count: int) -> None:
        """So many more."""
        with self._lock:
            self._count += count
        self._is_due.set()

    def flush(self) -> None:
        """
        Write them.

        Raises:
            RedisError: They come with the next flush; after a lost reply they are taken for written.
        """
        with self._lock:
            count, self._count = self._count, 0
        if not count:
            return
        write = partial(count_processed, day=utc_day(now_seconds()), count=count)
        try:
            self._pool.run(write, idempotent=False)
        except ReplyLostError:
            raise
        except BaseException:
            with self._lock:
                self._count += count
            raise

    def _run(self) -> None:
        while True:
            self._is_due.wait()
            if self._end.wait(WRITE_AFTER_SECONDS):
                return
            self._is_due.clear()
            try:
                self.flush()
            except RedisError:
                # The heartbeat, which tries next, says what is wrong.
                continue
