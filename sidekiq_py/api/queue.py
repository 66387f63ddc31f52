"""A queue and its jobs."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

from sidekiq_py.api.ends import ends_of_extensions
from sidekiq_py.api.job_record import JobRecord, latency
from sidekiq_py.api.source import pool_for
from sidekiq_py.client.sync_client import Client, of_pool
from sidekiq_py.clock import now_seconds
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.reads import in_flight_counts, queues

_PAGE_JOBS = 200


class QueuedJob(JobRecord):
    """A job in its queue."""

    def __init__(self, value: bytes, queue: str, pool: Pool) -> None:
        super().__init__(value, queue)
        self._pool = pool
        self._queue_name = queue

    def delete(self) -> bool:
        """Remove it from its queue; False if it is not there any more: a worker has taken it, or it was deleted."""
        ends = ends_of_extensions(self, "deleted", of_pool(self._pool).detection.dialect(now_seconds()))
        if not ends:
            return queues.remove(self._pool, self._queue_name, self.value)
        return queues.remove_with(self._pool, self._queue_name, self.value, ends)


class Queue:
    """
    One queue.

        queue = Queue("mailers")
        queue.size, queue.latency
        for job in queue:
            if job.klass == "HardWorker":
                job.delete()

    Iterating gives the newest job first, in pages. Jobs that workers take and others push meanwhile do not disturb it,
    nor does deleting: what is there all the time comes once.

    Args:
        name: Without the prefix `queue:`.
        pool: Whose Redis: a `Pool`, a redis-py client, or a URL. Without it and *client*, the program's.
        client: Instead of *pool*.
    """

    def __init__(self, name: str = "default", *, pool: Any = None, client: Client | None = None) -> None:
        self.name = name
        self._pool = pool_for(pool, client)

    @classmethod
    def all(cls, *, pool: Any = None, client: Client | None = None) -> list[Self]:
        """Every queue that was ever pushed to and not cleared, by name."""
        links = pool_for(pool, client)
        return [cls(name, pool=links) for name in queues.names(links)]

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        # A queue is an object also when it is empty.
        return True

    def __iter__(self) -> Iterator[QueuedJob]:
        seen: list[bytes] = []
        start = length = 0
        while True:
            fresh, start, length, is_end = self._next_page(seen, start, length)
            for job in fresh:
                yield QueuedJob(job, self.name, self._pool)
            if is_end:
                return
            seen = fresh or seen

    @property
    def size(self) -> int:
        """How many jobs wait. What workers have taken is not counted; see `in_flight`."""
        return queues.size(self._pool, self.name)

    @property
    def latency(self) -> float:
        """Seconds since the job that runs next was enqueued; 0.0 if the queue is empty."""
        oldest = queues.oldest(self._pool, self.name)
        return 0.0 if oldest is None else latency(JobRecord(oldest).item, now_seconds())

    @property
    def paused(self) -> bool:
        """Whether workers leave it alone (Sidekiq Pro's pause, which Python workers honour)."""
        return queues.is_paused(self._pool, self.name)

    @property
    def in_flight(self) -> int:
        """How many of its jobs Python workers have taken and not settled; Ruby's are nowhere in Redis."""
        return sum(entry.count for entry in in_flight_counts.counts(self._pool) if entry.queue == self.name)

    def find_job(self, jid: str) -> QueuedJob | None:
        """The job with this id. The whole queue is read, so this is for people, not for programs."""
        return next((job for job in self if job.jid == jid), None)

    def clear(self) -> int:
        """Delete all its jobs; how many there were."""
        return queues.clear(self._pool, self.name)

    def _next_page(self, seen: list[bytes], start: int, length: int) -> tuple[list[bytes], int, int, bool]:
        """
        The jobs after *seen*, which stood at *start* when the queue was *length* jobs long.

        Returns:
            The jobs, where they stand, how long the queue is now, whether they are the last.
        """
        wanted = len(seen) + _PAGE_JOBS
        window, now_length = queues.page(self._pool, self.name, start, wanted)
        first, skipped = _overlap(seen, window)
        if seen and first is None:
            start = self._find_again(seen, start, now_length - length)
            window, now_length = queues.page(self._pool, self.name, start, wanted)
            first, skipped = _overlap(seen, window)
        fresh = window[skipped:]
        # Where only jobs seen before are in view, the window moves on with them.
        place = start + (skipped if fresh else first or 0)
        return fresh, place, now_length, start + len(window) >= now_length

    def _find_again(self, seen: list[bytes], start: int, growth: int) -> int:
        """Where the jobs after *seen* may be found once *seen* is out of sight; too early rather than too late."""
        anchors = sorted({0, len(seen) // 2, len(seen) - 1})
        for index, place in zip(anchors, queues.places(self._pool, self.name, [seen[i] for i in anchors]), strict=True):
            if place is not None:
                return max(0, place - index)
        # They were all deleted, and with them perhaps earlier ones.
        return max(0, start + len(seen) + growth)


def _overlap(seen: Sequence[bytes], window: Sequence[bytes]) -> tuple[int | None, int]:
    """
    How a window on a queue begins with jobs seen before.

    Returns:
        The index of the first of *seen* in it, or None; and the index after the last of them.
    """
    known = set(seen)
    first: int | None = None
    after = at = 0
    for index, job in enumerate(window):
        # In order, so that a second job of the same bytes is another job.
        if job in known and job in seen[at:]:
            at = seen.index(job, at) + 1
            first = index if first is None else first
            after = index + 1
    return first, after
