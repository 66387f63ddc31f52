"""A queue and its jobs."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any, Self

from sidekiq_py.api.arguments import count_of
from sidekiq_py.api.bulk import BulkResult, Progress, Stop, Tally, each_of, slices
from sidekiq_py.api.ends import ends_of_extensions, is_handled
from sidekiq_py.api.filters import JobFilter, must_be_filter, search
from sidekiq_py.api.job_record import JobRecord, latency, seconds_of
from sidekiq_py.api.page_size import PageSize
from sidekiq_py.api.source import SizedOfRedis, pool_for
from sidekiq_py.client.sync_client import Client, of_pool
from sidekiq_py.clock import now_seconds
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.slices import slices_by_bytes
from sidekiq_py.redis_access.reads import in_flight_counts, queues
from sidekiq_py.redis_access.reads.queues import PlacedJob

# Few at first, because two hundred jobs of 5 MB are a gigabyte.
_FIRST_PAGE_JOBS = 10
_PAGE_JOBS = 200
_MOST_PAGE_JOBS = 1000
_NEAR_PAGES = 25


class QueuedJob(JobRecord):
    """
    A job in its queue.

    Args:
        value: The payload's exact bytes.
        queue: The queue's name.
        pool: Connections to its Redis.
        before: The number of jobs that would run before it when it was read; -1 if unknown.
        left: How many of the jobs before it had left the queue by then, since the iteration that yields it began.
    """

    def __init__(self, value: bytes, queue: str, pool: Pool, before: int = -1, left: int = 0) -> None:
        super().__init__(value, queue)
        self._pool = pool
        self._queue_name = queue
        self._before = before
        self._left = left

    @property
    def placed(self) -> PlacedJob:
        """
        Its bytes and approximate position; without a position, finding it in a long queue takes Redis milliseconds.
        """
        return PlacedJob(self.value, self._before, self._left)

    @property
    def key(self) -> str:
        """The digest of its bytes, fit for a URL. Jobs with equal bytes have the same key."""
        return self.key_of(self.value)

    def key_of(self, shown: bytes) -> str:
        """As `SortedEntry.key_of`: a key for readers who see the payload as *shown*."""
        return _digest(shown).hex()[:20]

    def delete(self) -> bool:
        """Remove it from its queue. Returns False if it is no longer there: it was fetched by a worker, or deleted."""
        ends = ends_of_extensions(self, "deleted", of_pool(self._pool).detection.dialect(now_seconds()))
        if not ends:
            return queues.remove(self._pool, self._queue_name, self.value, before=self._before)
        return queues.remove_with(self._pool, self._queue_name, self.value, ends)


@dataclass(frozen=True, slots=True)
class QueuePage:
    """
    One page of a queue.

    Args:
        jobs: The matching jobs.
        next: The position at which the next page begins, counted as for this page; None at the end of the queue.
        looked_at: The number of jobs that were looked at.
        size: The number of jobs in the queue when it was read.
    """

    jobs: tuple[QueuedJob, ...]
    next: int | None
    looked_at: int
    size: int


class Queue(SizedOfRedis):
    """
    One queue.

        queue = Queue("mailers")
        queue.size, queue.latency
        for job in queue:
            if job.klass == "HardWorker":
                job.delete()

    Iterating yields the newest job first, `reversed()` the next one to run, in pages. Jobs that are fetched or pushed
    meanwhile do not disturb it, nor does deleting: a job that is there all the time appears exactly once.

    Args:
        name: The queue's name, without the prefix `queue:`.
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*.

    Raises:
        TypeError: *name* is not a string.
    """

    def __init__(self, name: str = "default", *, pool: Any = None, client: Client | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the queue is {name!r}; give its name as a string")
        super().__init__(pool=pool, client=client)
        self.name = name

    @classmethod
    def all(cls, *, pool: Any = None, client: Client | None = None) -> list[Self]:
        """
        Every queue that was ever pushed to and not cleared, sorted by name.

        If Redis does not let one of them be read, its `size` raises an error; `Stats().queue_summaries` has the sizes
        of all others.
        """
        links = pool_for(pool, client)
        return [cls(name, pool=links) for name in queues.names(links)]

    @staticmethod
    def paused_names(*, pool: Any = None, client: Client | None = None) -> list[str]:
        """The names of all paused queues, including empty ones."""
        return queues.paused(pool_for(pool, client))

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    def __iter__(self) -> Iterator[QueuedJob]:
        return self._walk(oldest_first=False)

    def __reversed__(self) -> Iterator[QueuedJob]:
        return self._walk(oldest_first=True)

    def _walk(self, *, oldest_first: bool) -> Iterator[QueuedJob]:
        seen: list[bytes] = []
        start = length = 0
        # How many jobs have left the tail since the walk began shows in the position of each page.
        expected, left, step = None, 0, 1 if oldest_first else -1
        # Each page is read with the one before it.
        size = PageSize(_FIRST_PAGE_JOBS, most=_MOST_PAGE_JOBS)
        while True:
            fresh, start, length, is_end = self._next_page(seen, size.jobs, start, length, oldest_first)
            if fresh:
                before = start if oldest_first else length - 1 - start
                left += 0 if expected is None else expected - before
                for number, job in enumerate(fresh):
                    yield QueuedJob(job, self.name, self._pool, before + step * number, left)
                expected = before + step * len(fresh)
            if is_end:
                return
            seen = fresh or seen
            size.adapt(fresh)

    @property
    def size(self) -> int:
        """The number of waiting jobs, without those that workers have fetched; see `in_flight`."""
        return queues.size(self._pool, self.name)

    @property
    def latency(self) -> float:
        """Seconds since the next job to run was enqueued; 0.0 if the queue is empty."""
        oldest = queues.oldest(self._pool, self.name)
        return 0.0 if oldest is None else latency(JobRecord(oldest).item, now_seconds())

    @property
    def paused(self) -> bool:
        """True if it is paused (Sidekiq Pro's pause, which Python workers follow, too)."""
        return queues.is_paused(self._pool, self.name)

    @property
    def in_flight(self) -> int:
        """How many of its jobs Python workers have fetched and not settled. Ruby's running jobs are not in Redis."""
        return sum(entry.count for entry in in_flight_counts.counts(self._pool) if entry.queue == self.name)

    def pause(self) -> bool:
        """
        Pause it, so that workers stop fetching from it. Returns False if it was already paused.

        Python workers follow within moments, and so do Ruby's with Sidekiq Pro. Ruby processes without Pro keep
        fetching: `ProcessSet.serving` lists the processes that fetch from the queue.
        """
        return queues.pause(self._pool, self.name)

    def unpause(self) -> bool:
        """Let workers fetch from it again. Returns False if it was not paused."""
        return queues.unpause(self._pool, self.name)

    def enter(self) -> bool:
        """
        Add it to the set of queues, as a push does, so that every Web UI shows it. Returns False if it was there.

        Use it for a queue that was filled by a program that did not do so.
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
        Yield the matching jobs, newest first. A job's time is when it was enqueued.

        Args:
            oldest_first: Start with the next job to run.
            looked_at: Called now and then with the number of jobs looked at so far.
            stop: Called as often; if it returns True, the search ends.
        """
        must_be_filter(wanted)
        return search(self._walk(oldest_first=oldest_first), wanted, enqueued_seconds, looked_at=looked_at, stop=stop)

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
        The next jobs from a position, newest first. Positions shift as jobs are pushed and fetched meanwhile.

        Args:
            limit: The most jobs to return.
            after: `QueuePage.next` of the previous page; 0 to begin.
            wanted: Return only matching jobs.
            look_at: End the page after looking at this many jobs, so that a search in a large queue can show its
                progress.
            oldest_first: Start with the next job to run, and count positions from it.

        Raises:
            ValueError: *limit* or *look_at* is below 1, or *after* below 0.
        """
        limit, look_at, after = count_of(limit, "limit"), count_of(look_at, "look_at"), count_of(after, "after", 0)
        if wanted is not None:
            must_be_filter(wanted)
        found: list[QueuedJob] = []
        number = 0
        size = PageSize(_FIRST_PAGE_JOBS)
        while True:
            # A filter may skip many jobs; without one, read no more than are shown.
            count = min(limit if wanted is None else size.jobs, look_at - number)
            window, length = queues.page(self._pool, self.name, after + number, count, oldest_first=oldest_first)
            for raw in window:
                place = after + number
                job = QueuedJob(raw, self.name, self._pool, place if oldest_first else length - 1 - place)
                number += 1
                if wanted is None or wanted.fits(job, enqueued_seconds(job)):
                    found.append(job)
                if len(found) == limit:
                    break
            is_end = after + number >= length
            if is_end or len(found) == limit or number >= look_at:
                return QueuePage(tuple(found), None if is_end else after + number, number, length)
            size.adapt(window)

    def find_near(self, key: str, place: int, *, shown: Callable[[bytes], bytes] | None = None) -> QueuedJob | None:
        """
        Find a job by its `QueuedJob.key` near the position it had a while ago. Workers have fetched jobs since, so it
        is now nearer to its turn. Looks at 10,000 jobs at most.

        Args:
            place: Its earlier position, counted from the next job to run.
            shown: As for `JobSet.find_keys`.
        """
        # The first window includes the position itself, with room for jobs that were returned in front of it.
        end = place + _PAGE_JOBS
        for _ in range(_NEAR_PAGES):
            start = max(0, end - 2 * _PAGE_JOBS)
            window, _length = queues.page(self._pool, self.name, start, end - start, oldest_first=True)
            for before, raw in enumerate(window, start):
                job = QueuedJob(raw, self.name, self._pool, before)
                if job.key_of(shown(raw) if shown else raw) == key:
                    return job
            if start == 0:
                return None
            end = start
        return None

    def find_job(self, jid: str) -> QueuedJob | None:
        """
        The job with this id. Reads the whole queue, so this is for people, not for programs.

        Raises:
            TypeError: *jid* is not a string.
        """
        if not isinstance(jid, str):
            raise TypeError(f"the jid is {jid!r}; give the job's id as a string")
        return next((job for job in self if job.jid == jid), None)

    def clear(self, *, keep_name: bool = False) -> int:
        """
        Delete all its jobs. Returns how many there were.

        Args:
            keep_name: Keep it in the set of queues. Ruby's `clear` removes it until something is pushed to it.
        """
        return queues.clear(self._pool, self.name, keep_name=keep_name)

    def drain(self) -> Iterator[list[bytes]]:
        """
        Remove the queue and its name, as `clear` does, and yield the bytes of its jobs in parts.

        Each part is removed when it is asked for: if you stop early, the rest stays in the queue.
        """
        return queues.drain(self._pool, self.name)

    def delete(self) -> int:
        """Delete all its jobs, its name and its pause. Returns the number of jobs. A later push creates it again."""
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
        Delete the given jobs, several per round trip.

        Args:
            per_second: The most jobs per second; None for no limit.
            stop: Called between round trips; if it returns True, the remaining jobs stay.
        """
        return self._take(None, each_of(QueuedJob, jobs), Tally(progress), per_second, stop)

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
        Move jobs to the end of another queue, in their order, each unchanged byte for byte.

        The payload's `queue` keeps naming this queue, because no worker goes by it: a job that fails is retried in the
        queue where it was fetched. Each round trip moves its jobs atomically, so that nothing is lost or duplicated if
        this program is killed.

        Args:
            target: The other queue's name.
            jobs: Only these, next to run first: `find(…, oldest_first=True)`; None for all that wait now.
            per_second: The most jobs per second; None for no limit.
            stop: Called between round trips; if it returns True, the remaining jobs stay.

        Raises:
            ValueError: *target* is this queue, or not a name.
        """
        if not isinstance(target, str) or not target:
            raise ValueError(f"target is {target!r}; give the other queue's name")
        if target == self.name:
            raise ValueError(f"the jobs of {target} are already there; name another queue")
        if jobs is None:
            # As many as there are now, so that it ends even when two people move jobs back and forth at once.
            return self._move_all(target, slices(repeat(None, self.size), per_second, stop), Tally(progress))
        return self._take(target, each_of(QueuedJob, jobs), Tally(progress), per_second, stop)

    def _move_all(self, target: str, parts: Iterable[list[None]], tally: Tally) -> BulkResult:
        for part in parts:
            left = len(part)
            while left and (moved := queues.move_tail(self._pool, self.name, target, left)):
                left -= moved
                tally.moved += moved
            tally.report()
            if left:
                break
        return tally.result()

    def _take(
        self, target: str | None, jobs: Iterator[QueuedJob], tally: Tally, per_second: float | None, stop: Stop | None
    ) -> BulkResult:
        missed = self._take_where_they_were(target, slices(jobs, per_second, stop), tally)
        while missed and not (stop is not None and stop()):
            # One walk finds them all. Redis would need one for each.
            still_there = self._still_there(missed, tally, stop)
            missed = self._take_where_they_were(target, slices(still_there, per_second, stop), tally)
        return tally.result()

    def _take_where_they_were(
        self, target: str | None, parts: Iterable[list[QueuedJob]], tally: Tally
    ) -> list[tuple[bytes, int]]:
        """
        Take jobs. Returns a digest and the position of each one that was neither where it had been nor searched for.
        """
        missed: list[tuple[bytes, int]] = []
        left, taken = 0, list[PlacedJob]()
        for part in parts:
            handled = [job for job in part if target is None and is_handled(job)]
            for job in handled:
                # Each in a script of its own, with the commands that extensions add.
                was_there = job.delete()
                tally.moved += was_there
                tally.gone += not was_there
                taken += [job.placed] * was_there
            placed = (job.placed for job in part if job not in handled)
            for some in slices_by_bytes(placed, lambda job: len(job.value)):
                # So have those that were just taken, if they were nearer to the tail.
                left += sum(job.first_position < some[0].first_position for job in taken)
                done, left = queues.take_jobs(self._pool, self.name, some, target=target, left=left)
                taken = [job for job, is_done in zip(some, done, strict=True) if is_done]
                tally.moved += len(taken)
                tally.gone += done.count(False)
                missed += [
                    (_digest(job.value), job.before) for job, is_done in zip(some, done, strict=True) if is_done is None
                ]
            tally.report()
        return missed

    def _still_there(self, missed: Sequence[tuple[bytes, int]], tally: Tally, stop: Stop | None) -> Iterator[QueuedJob]:
        """Those that are still in the queue, next to run first. The others are counted."""
        left = Counter(digest for digest, _ in missed)
        number_left = len(missed)
        places = [before for _, before in missed]
        end = None if min(places) < 0 else max(places) + 1 + queues.MOST_RETURNED
        for number, job in enumerate(islice(self._walk(oldest_first=True), end)):
            if number % _PAGE_JOBS == 0 and stop is not None and stop():
                return
            digest = _digest(job.value)
            if left[digest] > 0:
                left[digest] -= 1
                number_left -= 1
                yield job
            if not number_left:
                return
        tally.gone += number_left
        tally.report()

    def _next_page(
        self, seen: list[bytes], count: int, start: int, length: int, oldest_first: bool
    ) -> tuple[list[bytes], int, int, bool]:
        """
        Up to *count* jobs after *seen*, which were at position *start* when the queue was *length* jobs long.

        Returns:
            The jobs, their position, the current length of the queue, and True if they are the last.
        """
        wanted = len(seen) + count
        window, now_length = queues.page(self._pool, self.name, start, wanted, oldest_first=oldest_first)
        first, skipped = _overlap(seen, window)
        if seen and first is None:
            start = self._find_again(seen, start, now_length - length, oldest_first)
            window, now_length = queues.page(self._pool, self.name, start, wanted, oldest_first=oldest_first)
            first, skipped = _overlap(seen, window)
        fresh = window[skipped:]
        # If only jobs seen before are in view, the window moves on with them.
        place = start + (skipped if fresh else first or 0)
        return fresh, place, now_length, start + len(window) >= now_length

    def _find_again(self, seen: list[bytes], start: int, growth: int, oldest_first: bool) -> int:
        """The position at which to look for the jobs after *seen* once *seen* is gone; rather early than late."""
        for index in sorted({0, len(seen) // 2, len(seen) - 1}):
            # From the tail, it cannot be further than it was, but for jobs that came back.
            most = start + index + 1 + queues.MOST_RETURNED if oldest_first else 0
            place = queues.place(self._pool, self.name, seen[index], oldest_first=oldest_first, most=most)
            if place is not None:
                return max(0, place - index)
        if oldest_first:
            # They were fetched or moved. Pushes at the head make the queue longer but move nothing here, so there is no
            # telling how many jobs before them were fetched too: a page that was already seen may come again.
            return max(0, start + min(0, growth + len(seen)) - max(_PAGE_JOBS, len(seen)))
        # They were all deleted, perhaps along with earlier ones.
        return max(0, start + len(seen) + growth)


def enqueued_seconds(job: JobRecord) -> float | None:
    """The time of a job in a queue that a filter compares, in epoch seconds."""
    return seconds_of(job.get("enqueued_at"))


def _overlap(seen: Sequence[bytes], window: Sequence[bytes]) -> tuple[int | None, int]:
    """
    Find the jobs seen before at the beginning of a window on a queue.

    Returns:
        The index of the first of *seen* in it, or None; and the index after the last of them.
    """
    known = set(seen)
    first: int | None = None
    after = at = 0
    for index, job in enumerate(window):
        # In order and no further apart than before, because a second job with the same bytes is another job.
        if job in known and job in seen[at:]:
            at = seen.index(job, at)
            first = index if first is None else first
            after = index + 1
        if first is not None:
            at += 1
    return first, after


def _digest(job: bytes) -> bytes:
    return hashlib.sha256(job).digest()
