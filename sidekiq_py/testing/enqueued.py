"""The jobs that a fake mode has collected: inspect, run and assert on them."""

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

# More than any test intends to run; a job that enqueues itself would run forever.
DRAIN_LIMIT = 10_000


class EnqueuedJobs:
    """
    The jobs that a fake mode has collected, oldest first.

    Args:
        chain: The server middleware to run jobs with.
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
        """The jobs by queue; scheduled jobs are listed under the queue that they will go to."""
        by_queue: dict[str, list[EnqueuedJob]] = {}
        for job in self:
            by_queue.setdefault(job.queue, []).append(job)
        return by_queue

    def jobs(self, job: Any = None, *, queue: str | None = None) -> list[EnqueuedJob]:
        """
        The waiting jobs.

        Args:
            job: A declared job, a job class, an `@active_job` or a class name; None for all.
            queue: Only jobs of this queue.
        """
        wanted = Expected(job, queue=ANY if queue is None else queue)
        return [enqueued for enqueued in self if wanted.fits(enqueued)]

    def clear(self, job: Any = None, *, queue: str | None = None) -> None:
        """Forget jobs; arguments as for `jobs`."""
        forgotten = {id(enqueued) for enqueued in self.jobs(job, queue=queue)}
        with self._lock:
            self._jobs[:] = [enqueued for enqueued in self._jobs if id(enqueued) not in forgotten]

    def perform_one(self, job: Any = None, *, queue: str | None = None) -> EnqueuedJob:
        """
        Run the oldest job, even if it is not due yet. Jobs of the Ruby side (`ruby_job`, `perform_later`) are skipped
        unless *job* names one.

        Returns:
            The job, which is no longer waiting, even if it failed.

        Raises:
            EmptyQueueError: No job is waiting.
            JobNotFoundError: The job is not declared in this process.
            WrongModeError: The job is an `async def` and a loop is running here.
            Exception: The exception that the job raised.
        """
        enqueued = self._take(job, queue)
        performing.perform(enqueued.raw, self._chain, is_scheduled=enqueued.at is not None)
        return enqueued

    async def aperform_one(self, job: Any = None, *, queue: str | None = None) -> EnqueuedJob:
        """Like `perform_one`, within a running loop: an `async def` job runs on the loop, any other job in a thread."""
        enqueued = self._take(job, queue)
        await performing.aperform(enqueued.raw, self._chain, is_scheduled=enqueued.at is not None)
        return enqueued

    def drain(self, job: Any = None, *, queue: str | None = None, limit: int = DRAIN_LIMIT) -> int:
        """
        Run jobs until none is waiting, including the jobs that they enqueue. Jobs of the Ruby side (`ruby_job`,
        `perform_later`) stay, so that you can assert on them.

        Args:
            job, queue: As for `jobs`.
            limit: The most jobs to run; more means that a job enqueues itself.

        Returns:
            How many jobs ran.

        Raises:
            WrongModeError: *limit* was reached.
            Exception: As for `perform_one`; the jobs after the failed one are still waiting.
        """
        count = 0
        while self._runnable(job, queue):
            count = _count_up(count, limit)
            self.perform_one(job, queue=queue)
        return count

    async def adrain(self, job: Any = None, *, queue: str | None = None, limit: int = DRAIN_LIMIT) -> int:
        """Like `drain`, within a running loop."""
        count = 0
        while self._runnable(job, queue):
            count = _count_up(count, limit)
            await self.aperform_one(job, queue=queue)
        return count

    def drain_all(self) -> int:
        """Drain all jobs."""
        return self.drain()

    async def adrain_all(self) -> int:
        """Drain all jobs within a running loop."""
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
        Assert that a job is waiting.

        Args:
            job: As for `jobs`.
            args: The expected arguments; elements may be `unittest.mock.ANY` or `pytest.approx`.
            queue: The expected queue.
            at: When the job is due: an aware datetime or epoch seconds, a timedelta or seconds from now (below
                1,000,000,000); None if it is not scheduled, True if it is scheduled for any time.
            count: The expected number of such jobs; by default one or more.
            tolerance_seconds: How far the actual time may differ from *at*.

        Returns:
            The first matching job.

        Raises:
            AssertionError: No job matches, or not *count* of them; the message shows the jobs that come close.
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
        Assert that no such job is waiting; arguments as for `assert_enqueued`.

        Raises:
            AssertionError: A job matches.
        """
        __tracebackhide__ = True  # pytest then shows the test's line and this message, not these lines
        wanted = Expected(job, args=args, queue=queue, at=at, tolerance_seconds=tolerance_seconds)
        found = [enqueued for enqueued in self if wanted.fits(enqueued)]
        if found:
            lines = "".join(f"\n  {enqueued.line}" for enqueued in found)
            raise AssertionError(f"no {wanted} should be enqueued, but found {len(found)}:{lines}")

    def take(self, ready: Sequence[Outgoing]) -> None:
        """Keep the jobs that a client is about to send."""
        taken = [
            EnqueuedJob(job.payload, parse_job(job.payload), None if job.score is None else float(job.score))
            for job in ready
        ]
        with self._lock:
            self._jobs.extend(taken)

    def _runnable(self, job: Any, queue: str | None) -> list[EnqueuedJob]:
        """The matching jobs that can run here. A job that is named explicitly is always included, and may then fail."""
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
        raise EmptyQueueError(f"no {wanted} is waiting; enqueue one before perform_one")


def _count_up(count: int, limit: float) -> int:
    try:
        is_reached = count >= limit
    except TypeError:
        raise TypeError(f"limit is {limit!r}; give the most jobs to run, as a number") from None
    if is_reached:
        raise WrongModeError(f"drain ran {limit} jobs and more are waiting: a job enqueues itself; use perform_one")
    return count + 1
