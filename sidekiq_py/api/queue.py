"""A queue and its jobs."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Self

from sidekiq_py.api.bulk import BulkResult, Progress, Stop, Tally, slices
from sidekiq_py.api.ends import ends_of_extensions, is_minded
from sidekiq_py.api.filters import JobFilter
from sidekiq_py.api.job_record import JobRecord, latency, seconds_of
from sidekiq_py.api.source import pool_for
from sidekiq_py.client.sync_client import Client, of_pool
from sidekiq_py.clock import now_seconds
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.reads import in_flight_counts, queues
from sidekiq_py.redis_access.reads.queues import PlacedJob

_PAGE_JOBS = 200
_NEAR_PAGES = 25
# To tell how far a search is takes longer than to look at a job.
_LOOKED_AT_AT_ONCE = 200
# So many steps over the jobs of a queue keep Redis busy for some milliseconds.
_STEPS_AT_ONCE = 100_000


class QueuedJob(JobRecord):
    """
    A job in its queue.

    Args:
        value: Its exact bytes.
        queue: The queue's name.
        pool: To the Redis where it is.
        before: How many jobs were to run before it when it was read; -1 where that is not known.
    """

    def __init__(self, value: bytes, queue: str, pool: Pool, before: int = -1) -> None:
        super().__init__(value, queue)
        self._pool = pool
        self._queue_name = queue
        self._before = before

    @property
    def placed(self) -> PlacedJob:
        """Its bytes, and about where they stand: to look for them in a long queue takes Redis milliseconds."""
        return self.value, self._before

    @property
    def key(self) -> str:
        """The digest of its bytes, fit for a URL. Jobs of the same bytes have the same key."""
        return hashlib.sha256(self.value).hexdigest()[:20]

    def delete(self) -> bool:
        """Remove it from its queue; False if it is not there any more: a worker has taken it, or it was deleted."""
        ends = ends_of_extensions(self, "deleted", of_pool(self._pool).detection.dialect(now_seconds()))
        if not ends:
            return queues.remove(self._pool, self._queue_name, self.value)
        return queues.remove_with(self._pool, self._queue_name, self.value, ends)


@dataclass(frozen=True, slots=True)
class QueuePage:
    """
    One page of a queue.

    Args:
        jobs: Those that fit.
        next: The place, counted as the page was, where the next page begins; None at the end of the queue.
        looked_at: How many jobs were looked at.
    """

    jobs: tuple[QueuedJob, ...]
    next: int | None
    looked_at: int


class Queue:
    """
    One queue.

        queue = Queue("mailers")
        queue.size, queue.latency
        for job in queue:
            if job.klass == "HardWorker":
                job.delete()

    Iterating gives the newest job first, `reversed()` the one that runs next, in pages. Jobs that workers take and
    others push meanwhile do not disturb it, nor does deleting: what is there all the time comes once.

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

    @staticmethod
    def paused_names(*, pool: Any = None, client: Client | None = None) -> list[str]:
        """The names of all queues that are paused, also of those that hold nothing."""
        return queues.paused(pool_for(pool, client))

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        # A queue is an object also when it is empty.
        return True

    def __iter__(self) -> Iterator[QueuedJob]:
        return self._walk(oldest_first=False)

    def __reversed__(self) -> Iterator[QueuedJob]:
        return self._walk(oldest_first=True)

    def _walk(self, *, oldest_first: bool) -> Iterator[QueuedJob]:
        seen: list[bytes] = []
        start = length = 0
        while True:
            fresh, start, length, is_end = self._next_page(seen, start, length, oldest_first)
            for place, job in enumerate(fresh, start):
                before = place if oldest_first else length - 1 - place
                yield QueuedJob(job, self.name, self._pool, before)
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

    def pause(self) -> bool:
        """
        Let workers leave it alone; False if they did already.

        Python workers obey within moments, and so do Ruby's with Sidekiq Pro. Ruby processes without Pro go on:
        `ProcessSet.serving` names those that fetch from it.
        """
        return queues.pause(self._pool, self.name)

    def unpause(self) -> bool:
        """Let workers fetch from it again; False if it was not paused."""
        return queues.unpause(self._pool, self.name)

    def enter(self) -> bool:
        """
        Enter it in the list of queues, as a push does, so that every Web UI shows it; False if it was there.

        For a queue whose jobs were pushed by something that did not.
        """
        return queues.enter(self._pool, self.name)

    def find(
        self,
        wanted: JobFilter,
        *,
        oldest_first: bool = False,
        looked_at: Progress | None = None,
        stop: Stop | None = None,
    ) -> Iterator[QueuedJob]:
        """
        The jobs that fit, the newest first. A job's time is when it was enqueued.

        Args:
            oldest_first: What runs next in front.
            looked_at: Told now and then how many jobs were looked at.
            stop: Asked as often; where it says True, no more come.
        """
        number = 0
        for number, job in enumerate(self._walk(oldest_first=oldest_first), 1):
            if number % _LOOKED_AT_AT_ONCE == 0:
                if looked_at is not None:
                    looked_at(number)
                if stop is not None and stop():
                    return
            if wanted.fits(job, _enqueued_at(job)):
                yield job
        if looked_at is not None:
            looked_at(number)

    def page(
        self,
        limit: int,
        *,
        after: int = 0,
        wanted: JobFilter | None = None,
        look_at: int = 10_000,
        oldest_first: bool = False,
    ) -> QueuePage:
        """
        The next jobs from a place, the newest first. Places move on with what is pushed and taken meanwhile.

        Args:
            limit: At most so many.
            after: `QueuePage.next` of the page before; 0 to begin.
            wanted: Only those that fit.
            look_at: After so many jobs the page ends, so that a search in a large queue can show how far it is.
            oldest_first: What runs next in front; places count from it.
        """
        found: list[QueuedJob] = []
        number = 0
        while True:
            # A filter may pass over many jobs; without one no more are read than are shown.
            count = min(limit if wanted is None else _PAGE_JOBS, look_at - number)
            window, length = queues.page(self._pool, self.name, after + number, count, oldest_first=oldest_first)
            for raw in window:
                place = after + number
                job = QueuedJob(raw, self.name, self._pool, place if oldest_first else length - 1 - place)
                number += 1
                if wanted is None or wanted.fits(job, _enqueued_at(job)):
                    found.append(job)
                if len(found) == limit:
                    break
            is_end = after + number >= length
            if is_end or len(found) == limit or number >= look_at:
                return QueuePage(tuple(found), None if is_end else after + number, number)

    def find_near(self, key: str, place: int) -> QueuedJob | None:
        """
        The job with this `QueuedJob.key`, looked for where it stood a while ago: workers have taken jobs since, so that
        it stands nearer to its turn. Looks at 10,000 jobs at most.

        Args:
            place: Where it stood, counted from the job that runs next.
        """
        # The place itself is in the first window, with room for jobs that were given back in front of it.
        end = place + _PAGE_JOBS
        for _ in range(_NEAR_PAGES):
            start = max(0, end - 2 * _PAGE_JOBS)
            window, _length = queues.page(self._pool, self.name, start, end - start, oldest_first=True)
            for raw in window:
                job = QueuedJob(raw, self.name, self._pool)
                if job.key == key:
                    return job
            if start == 0:
                return None
            end = start
        return None

    def find_job(self, jid: str) -> QueuedJob | None:
        """The job with this id. The whole queue is read, so this is for people, not for programs."""
        return next((job for job in self if job.jid == jid), None)

    def clear(self, *, keep_name: bool = False) -> int:
        """
        Delete all its jobs; how many there were.

        Args:
            keep_name: Leave it in the list of queues; Ruby's `clear` takes it out, until something is pushed to it.
        """
        return queues.clear(self._pool, self.name, keep_name=keep_name)

    def drain(self) -> Iterator[list[bytes]]:
        """
        Remove the queue and its name, as `clear` does, and give the bytes of the jobs that it held, in parts.

        A part is removed when it is asked for: whoever stops early leaves the rest in the queue.
        """
        return queues.drain(self._pool, self.name)

    def delete(self) -> int:
        """Delete all its jobs, its name and its pause; how many jobs there were. A later push begins it anew."""
        return queues.clear(self._pool, self.name, unpause=True)

    def delete_many(
        self,
        jobs: Iterable[QueuedJob],
        progress: Progress | None = None,
        *,
        per_second: float | None = None,
        stop: Stop | None = None,
    ) -> BulkResult:
        """
        Delete chosen jobs, some in a round trip.

        Args:
            per_second: No more in a second; None for as fast as it goes.
            stop: Asked between two round trips; where it says True, the jobs that are left stay.
        """
        return self._take(None, jobs, progress, per_second, stop)

    def move_to(
        self,
        target: str,
        jobs: Iterable[QueuedJob] | None = None,
        progress: Progress | None = None,
        *,
        per_second: float | None = None,
        stop: Stop | None = None,
    ) -> BulkResult:
        """
        Move jobs behind those that wait in another queue, in their order, each as it is, byte for byte.

        The payload's `queue` keeps naming this queue, as no worker goes by it: one that fails is retried in the queue
        where it was fetched. Each round trip moves its jobs in one step, so that nothing is lost or doubled when this
        program is killed.

        Args:
            target: The other queue's name.
            jobs: Only these, what runs first in front: `find(…, oldest_first=True)`; None for all that wait now.
            per_second: No more in a second; None for as fast as it goes.
            stop: Asked between two round trips; where it says True, the jobs that are left stay.

        Raises:
            ValueError: It is this queue.
        """
        if target == self.name:
            raise ValueError(f"the jobs of {target} are there already; name another queue")
        if jobs is None:
            return self._move_all(target, progress, per_second, stop)
        return self._take(target, jobs, progress, per_second, stop)

    def _move_all(
        self, target: str, progress: Progress | None, per_second: float | None, stop: Stop | None
    ) -> BulkResult:
        """As many as there are now: what two people move to and fro at once must come to an end."""
        tally = Tally(progress)
        for part in slices(repeat(None, self.size), per_second, stop):
            moved = queues.move_tail(self._pool, self.name, target, len(part))
            tally.moved += moved
            tally.report()
            if moved < len(part):
                break
        return tally.result()

    def _take(
        self,
        target: str | None,
        jobs: Iterable[QueuedJob],
        progress: Progress | None,
        per_second: float | None,
        stop: Stop | None,
    ) -> BulkResult:
        tally = Tally(progress)
        for taken in slices(jobs, per_second, stop):
            minded = [job for job in taken if target is None and is_minded(job)]
            for job in minded:
                # Each in a script of its own, with what extensions want written.
                was_there = job.delete()
                tally.moved += was_there
                tally.gone += not was_there
            part = [job for job in taken if job not in minded] if minded else taken
            done = queues.take_jobs(self._pool, self.name, [job.placed for job in part], target=target)
            missed = [(job.value, -1) for job, is_done in zip(part, done, strict=True) if not is_done]
            # They may stand further back than they did, as when jobs of a dead worker came back. Few at a time, as
            # Redis now looks through the whole queue for each.
            size = max(1, min(len(part), _STEPS_AT_ONCE // (self.size + 1))) if missed else 1
            found = [
                is_found
                for start in range(0, len(missed), size)
                for is_found in queues.take_jobs(self._pool, self.name, missed[start : start + size], target=target)
            ]
            tally.moved += sum(done) + sum(found)
            tally.gone += found.count(False)
            tally.report()
        return tally.result()

    def _next_page(
        self, seen: list[bytes], start: int, length: int, oldest_first: bool
    ) -> tuple[list[bytes], int, int, bool]:
        """
        The jobs after *seen*, which stood at *start* when the queue was *length* jobs long.

        Returns:
            The jobs, where they stand, how long the queue is now, whether they are the last.
        """
        wanted = len(seen) + _PAGE_JOBS
        window, now_length = queues.page(self._pool, self.name, start, wanted, oldest_first=oldest_first)
        first, skipped = _overlap(seen, window)
        if seen and first is None:
            start = self._find_again(seen, start, now_length - length, oldest_first)
            window, now_length = queues.page(self._pool, self.name, start, wanted, oldest_first=oldest_first)
            first, skipped = _overlap(seen, window)
        fresh = window[skipped:]
        # Where only jobs seen before are in view, the window moves on with them.
        place = start + (skipped if fresh else first or 0)
        return fresh, place, now_length, start + len(window) >= now_length

    def _find_again(self, seen: list[bytes], start: int, growth: int, oldest_first: bool) -> int:
        """Where the jobs after *seen* may be found once *seen* is out of sight; too early rather than too late."""
        anchors = sorted({0, len(seen) // 2, len(seen) - 1})
        places = queues.places(self._pool, self.name, [seen[i] for i in anchors], oldest_first=oldest_first)
        for index, place in zip(anchors, places, strict=True):
            if place is not None:
                return max(0, place - index)
        if oldest_first:
            # They were taken or moved. What is pushed at the head makes the queue longer and moves nothing here, so
            # it is not known how many before them were taken too: a page of what was passed over may come again.
            return max(0, start + min(0, growth + len(seen)) - _PAGE_JOBS)
        # They were all deleted, and with them perhaps earlier ones.
        return max(0, start + len(seen) + growth)


def _enqueued_at(job: JobRecord) -> float | None:
    return seconds_of(job.get("enqueued_at"))


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
