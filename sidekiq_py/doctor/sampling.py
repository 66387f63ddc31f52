"""Queues and their sizes, and a sample of the waiting jobs: of limited size, however many jobs wait."""

from collections.abc import Iterator
from functools import cached_property
from itertools import chain, islice
from typing import Any, NamedTuple

from sidekiq_py.api.job_record import JobRecord, seconds_of
from sidekiq_py.api.page_size import PageSize
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.logs import counted
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.reads import survey
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import NEW_WRAPPER, OLD_WRAPPER

JOBS_AT_MOST = 6000
JOBS_OF_A_QUEUE = 300
JOBS_OF_A_SET = 300
BYTES_AT_MOST = 64_000_000
_FEWEST_OF_A_QUEUE = 30
# The next queue's jobs may be far larger, and how large a reply is shows only once it is here.
_MOST_AT_ONCE = 500


class QueueFacts(NamedTuple):
    """
    A queue.

    Args:
        size: The number of waiting jobs.
        is_known: True if its name is in the set `queues`.
        kind: The type of its key: `list`, or `none` while it is empty or cannot be read.
        refusal: Why Redis does not let this user read it; its size is then 0.
    """

    name: str
    size: int
    is_paused: bool
    is_known: bool
    kind: str
    refusal: RedisReplyError | None = None


class SampledJob(JobRecord):
    """
    A waiting job.

    Args:
        raw: The payload's bytes.
        place: `queue:<name>`, `schedule` or `retry`.
        queue: The queue it waits in or will go to; None if the payload does not say.
        score: For a job in a sorted set: when it is due, in epoch seconds.
    """

    def __init__(self, raw: bytes, place: str, queue: str | None, score: float | None = None) -> None:
        super().__init__(raw, queue)
        self.place = place
        self.score = score

    @cached_property
    def job_class(self) -> str:
        """The class that runs it; for an Active Job, the job's own class. Empty if it names none."""
        if self.klass not in (OLD_WRAPPER, NEW_WRAPPER):
            return self.klass or ""
        args = self.args
        inner = args[0].get("job_class") if args and isinstance(args[0], dict) else None
        named = inner or self.item.get("wrapped")
        return named if isinstance(named, str) else ""

    def latest_stamp(self) -> float | None:
        """The newest timestamp in it, in epoch seconds."""
        stamps = (seconds_of(self.item.get(key)) for key in ("enqueued_at", "created_at", "failed_at", "retried_at"))
        return max((stamp for stamp in stamps if stamp is not None), default=None)


class Sample(NamedTuple):
    """
    The jobs that were looked at.

    Args:
        total: The number of jobs in all queues, `schedule` and `retry`.
        overdue_since: The lowest score in `schedule` and in `retry`; missing if the set is empty.
    """

    jobs: tuple[SampledJob, ...]
    total: int
    overdue_since: dict[str, float]

    @property
    def extent(self) -> str:
        """How many of the waiting jobs were looked at, as part of a sentence."""
        if len(self.jobs) >= self.total:
            return f"{'all ' if self.total > 1 else ''}{counted(self.total, 'waiting job')}"
        return f"{len(self.jobs):,} of {self.total:,} waiting jobs"


def gather_queues(pool: Pool, found: list[str]) -> tuple[QueueFacts, ...]:
    """
    Read the size and state of each queue.

    Args:
        found: Queue names that may be missing from the set `queues`.

    Raises:
        RedisError: Redis did not answer, or does not let this user read the sets `queues` and `paused`.
    """
    known = survey.members(pool, keys.QUEUES)
    names = list(dict.fromkeys([*known, *sorted(found)]))
    kinds = survey.replies(pool, "TYPE", [keys.queue(name) for name in names])
    sizes = survey.replies(pool, "LLEN", [keys.queue(name) for name in names])
    paused = set(survey.members(pool, keys.PAUSED))
    members = set(known)
    return tuple(
        _facts_of(name, sizes[keys.queue(name)], kinds[keys.queue(name)], name in paused, name in members)
        for name in names
    )


def _facts_of(name: str, size: Any, kind: Any, is_paused: bool, is_known: bool) -> QueueFacts:
    """
    The facts about a queue.

    Args:
        size, kind: The replies to LLEN and TYPE, or the error in place of either.
    """
    refused = [reply for reply in (size, kind) if isinstance(reply, RedisReplyError) and reply.code != "WRONGTYPE"]
    return QueueFacts(
        name,
        size if isinstance(size, int) else 0,
        is_paused,
        is_known,
        kind.decode() if isinstance(kind, bytes) else "none",
        refused[0] if refused else None,
    )


def gather_jobs(pool: Pool, waiting: tuple[QueueFacts, ...]) -> Sample:
    """
    Read a sample of the jobs in these queues, in `schedule` and in `retry`.

    Raises:
        RedisError: Redis did not answer, or does not let this user read.
    """
    filled = [queue for queue in waiting if queue.size]
    budget = _Budget()
    jobs: list[SampledJob] = []
    due: dict[str, float] = {}
    for key in (keys.SCHEDULE, keys.RETRY):
        found = list(budget.spend(_set_jobs(pool, key)))
        jobs += found
        if found:
            due[key] = min(job.score for job in found if job.score is not None)
    share = max(_FEWEST_OF_A_QUEUE, min(JOBS_OF_A_QUEUE, JOBS_AT_MOST // max(1, len(filled))))
    jobs += budget.spend(_queue_jobs(pool, filled, share))
    sizes = survey.sizes(pool, [keys.SCHEDULE, keys.RETRY], "ZCARD")
    return Sample(tuple(jobs), max(len(jobs), sum(queue.size for queue in filled) + sum(sizes.values())), due)


class _Budget:
    """The number of jobs and bytes that may still be read."""

    def __init__(self) -> None:
        self._jobs = JOBS_AT_MOST
        self._bytes = BYTES_AT_MOST

    def spend(self, pages: Iterator[list[SampledJob]]) -> Iterator[SampledJob]:
        while self._jobs > 0 and self._bytes > 0 and (page := next(pages, None)) is not None:
            self._jobs -= len(page)
            self._bytes -= sum(len(job.value) for job in page)
            yield from page


def _queue_jobs(pool: Pool, filled: list[QueueFacts], wanted: int) -> Iterator[list[SampledJob]]:
    """
    A sample of each queue.

    Args:
        wanted: About how many jobs of each.
    """
    places = ((queue.name, start) for queue in filled for start in survey.page_starts(queue.size, wanted))
    size = PageSize(survey.PAGE_JOBS, most=_MOST_AT_ONCE)
    while at_once := list(islice(places, max(1, size.jobs // survey.PAGE_JOBS))):
        pages = survey.queue_pages(pool, at_once)
        for (name, _), page in zip(at_once, pages, strict=True):
            yield [SampledJob(raw, keys.queue(name), name) for raw in page]
        size.adapt(chain.from_iterable(pages))


def _set_jobs(pool: Pool, key: str) -> Iterator[list[SampledJob]]:
    for page in survey.set_sample(pool, key, JOBS_OF_A_SET):
        yield [SampledJob(raw, key, None, score) for raw, score in page]
