"""The jobs that a fake mode holds: looked at, run, asserted."""

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any

from sidekiq_py.errors import EmptyQueueError, WrongModeError
from sidekiq_py.middleware.running import ServerChain
from sidekiq_py.redis_access.job_path.push import Outgoing
from sidekiq_py.testing import performing
from sidekiq_py.testing.enqueued_job import EnqueuedJob
from sidekiq_py.testing.expected import ANY, Expected
from sidekiq_py.wire.payload import parse_job

# More than any test means to run; a job that enqueues itself would go on for ever.
_DRAIN_LIMIT = 10_000


class EnqueuedJobs:
    """
    What a fake mode has taken, oldest first.

    Args:
        chain: The server middleware of runs.
    """

    def __init__(self, chain: ServerChain) -> None:
        self._chain = chain
        self._jobs: list[EnqueuedJob] = []
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<EnqueuedJobs {self._jobs}>"

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[EnqueuedJob]:
        return iter(list(self._jobs))

    def __getitem__(self, index: int) -> EnqueuedJob:
        return self._jobs[index]

    @property
    def queues(self) -> dict[str, list[EnqueuedJob]]:
        """The jobs by queue; scheduled ones count to the queue that they go to."""
        by_queue: dict[str, list[EnqueuedJob]] = {}
        for job in self:
            by_queue.setdefault(job.queue, []).append(job)
        return by_queue

    def jobs(self, job: Any = None, *, queue: str | None = None) -> list[EnqueuedJob]:
        """
        The jobs that wait.

        Args:
            job: A declared job, a job class, an `@active_job` or a class name; None for all.
            queue: Only of this one.
        """
        wanted = Expected(job, queue=ANY if queue is None else queue)
        return [enqueued for enqueued in self if wanted.fits(enqueued)]

    def clear(self, job: Any = None, *, queue: str | None = None) -> None:
        """Forget jobs; the arguments are those of `jobs`."""
        forgotten = {id(enqueued) for enqueued in self.jobs(job, queue=queue)}
        with self._lock:
            self._jobs[:] = [enqueued for enqueued in self._jobs if id(enqueued) not in forgotten]

    def perform_one(self, job: Any = None, *, queue: str | None = None) -> EnqueuedJob:
        """
        Run the oldest job, also one that is not due yet. Jobs of the Ruby side (`ruby_job`, `perform_later`) are passed
        over, unless *job* names one.

        Returns:
            The job, which waits no more, even if it failed.

        Raises:
            EmptyQueueError: None waits.
            JobNotFoundError: It is not declared in this process.
            WrongModeError: It is an `async def` and a loop is running here.
            Exception: What the job raised.
        """
        enqueued = self._take(job, queue)
        performing.perform(enqueued.raw, self._chain, is_scheduled=enqueued.at is not None)
        return enqueued

    async def aperform_one(self, job: Any = None, *, queue: str | None = None) -> EnqueuedJob:
        """`perform_one` within a running loop: an `async def` job runs on it, another one in a thread."""
        enqueued = self._take(job, queue)
        await performing.aperform(enqueued.raw, self._chain, is_scheduled=enqueued.at is not None)
        return enqueued

    def drain(self, job: Any = None, *, queue: str | None = None, limit: int = _DRAIN_LIMIT) -> int:
        """
        Run jobs until none waits, those that they enqueue included. Jobs of the Ruby side (`ruby_job`, `perform_later`)
        stay, to be asserted on.

        Args:
            job, queue: As for `jobs`.
            limit: After so many runs something enqueues itself.

        Returns:
            How many ran.

        Raises:
            WrongModeError: *limit* is reached.
            Exception: As `perform_one`; the jobs behind the failed one still wait.
        """
        count = 0
        while self._runnable(job, queue):
            count = _count_up(count, limit)
            self.perform_one(job, queue=queue)
        return count

    async def adrain(self, job: Any = None, *, queue: str | None = None, limit: int = _DRAIN_LIMIT) -> int:
        """`drain` within a running loop."""
        count = 0
        while self._runnable(job, queue):
            count = _count_up(count, limit)
            await self.aperform_one(job, queue=queue)
        return count

    def drain_all(self) -> int:
        """`drain` of all jobs."""
        return self.drain()

    async def adrain_all(self) -> int:
        """`adrain` of all jobs."""
        return await self.adrain()

    def assert_enqueued(
        self,
        job: Any = None,
        *,
        args: Any = ANY,
        queue: Any = ANY,
        at: Any = ANY,
        count: int | None = None,
        tolerance_seconds: float = 1.0,
    ) -> EnqueuedJob:
        """
        Say that a job waits.

        Args:
            job: As for `jobs`.
            args: Equal to its arguments; elements may be `unittest.mock.ANY` or `pytest.approx`.
            queue: Its queue.
            at: When it is due: an aware datetime or epoch seconds, a timedelta or seconds from now (below
                1,000,000,000); None: not scheduled; True: at any time.
            count: How many such jobs there are; without it one or more.
            tolerance_seconds: How far *at* may be off.

        Returns:
            The first of them.

        Raises:
            AssertionError: There is none, or another number of them; the message shows those that come near.
        """
        __tracebackhide__ = True  # pytest then shows the test's line and this message, not these lines
        wanted = Expected(job, args=args, queue=queue, at=at, tolerance_seconds=tolerance_seconds)
        found = [enqueued for enqueued in self if wanted.fits(enqueued)]
        if not found or count not in (None, len(found)):
            raise AssertionError(wanted.complaint(found, count, list(self)))
        return found[0]

    def refute_enqueued(
        self, job: Any = None, *, args: Any = ANY, queue: Any = ANY, at: Any = ANY, tolerance_seconds: float = 1.0
    ) -> None:
        """
        Say that no such job waits; the arguments are those of `assert_enqueued`.

        Raises:
            AssertionError: One does.
        """
        __tracebackhide__ = True  # pytest then shows the test's line and this message, not these lines
        wanted = Expected(job, args=args, queue=queue, at=at, tolerance_seconds=tolerance_seconds)
        found = [enqueued for enqueued in self if wanted.fits(enqueued)]
        if found:
            lines = "".join(f"\n  {enqueued.line}" for enqueued in found)
            raise AssertionError(f"no {wanted} should be enqueued, and {len(found)} is:{lines}")

    def take(self, ready: Sequence[Outgoing]) -> None:
        """Keep what a client is about to send."""
        taken = [
            EnqueuedJob(job.payload, parse_job(job.payload), None if job.score is None else float(job.score))
            for job in ready
        ]
        with self._lock:
            self._jobs.extend(taken)

    def _runnable(self, job: Any, queue: str | None) -> list[EnqueuedJob]:
        """Those that are meant and can be run; one that is named and cannot be is in it, to be refused."""
        return [
            enqueued
            for enqueued in self.jobs(job, queue=queue)
            if job is not None or not performing.runs_elsewhere(enqueued.payload)
        ]

    def _take(self, job: Any, queue: str | None) -> EnqueuedJob:
        wanted = Expected(job, queue=ANY if queue is None else queue)
        runnable = {id(enqueued) for enqueued in self._runnable(job, queue)}
        with self._lock:
            for place, enqueued in enumerate(self._jobs):
                if id(enqueued) in runnable:
                    return self._jobs.pop(place)
        raise EmptyQueueError(f"no {wanted} waits; enqueue one before perform_one")


def _count_up(count: int, limit: int) -> int:
    if count >= limit:
        raise WrongModeError(f"drain ran {limit} jobs and there are more: a job enqueues itself; use perform_one")
    return count + 1
