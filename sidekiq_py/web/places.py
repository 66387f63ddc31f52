"""The places where jobs wait, the three sorted sets and the queues, behind one interface for pages that list jobs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

from sidekiq_py.api import (
    BulkResult,
    BulkRun,
    DeadSet,
    JobRecord,
    JobSet,
    Queue,
    QueuedJob,
    RetrySet,
    ScheduledSet,
    SortedEntry,
)
from sidekiq_py.api.page_size import PageSize
from sidekiq_py.api.queue import enqueued_seconds
from sidekiq_py.api.stats import known_queues
from sidekiq_py.options import complaint_about_queue
from sidekiq_py.web.filters import PageFilter
from sidekiq_py.web.text import shortened, whole_number
from sidekiq_py.web.visit import Visit

FIRST_READ = 100
_LOOKED_AT = 10_000
_LONGEST_PLACE = 15


class Action(NamedTuple):
    """
    Something that can be done to jobs.

    Args:
        name: The name in forms and in the audit log.
        label: The label of buttons.
        done: What was done to the jobs, such as "deleted", for the notice afterwards.
        destroys: True if it cannot be undone, so that the page asks first.
    """

    name: str
    label: str
    done: str
    destroys: bool = False


RETRY = Action("retry", "Retry now", "enqueued again")
RUN = Action("run", "Run now", "enqueued")
KILL = Action("kill", "Kill", "moved to the dead set")
DELETE = Action("delete", "Delete", "deleted", destroys=True)
MOVE = Action("move", "Move", "moved")

SETS: dict[str, tuple[Callable[..., JobSet], str, tuple[Action, ...]]] = {
    "/retries": (RetrySet, "Retries", (RETRY, KILL, DELETE)),
    "/scheduled": (ScheduledSet, "Scheduled", (RUN, KILL, DELETE)),
    "/dead": (DeadSet, "Dead", (RETRY, DELETE)),
}
"""The pages of the sorted sets: path → the set, the title, and what can be done to its jobs."""


class Found(NamedTuple):
    """
    Some jobs of a place.

    Args:
        rows: Pairs of a key and the job.
        next_start: Where to continue the search; None at the end.
        looked_at: How many jobs were looked at, counted from the start of the place.
        total: How many jobs the place has.
    """

    rows: list[tuple[str, JobRecord]]
    next_start: int | None
    looked_at: int
    total: int


class Place(Protocol):
    """What the pages need from a place."""

    title: str
    path: str
    name: str
    actions: tuple[Action, ...]

    def read(self, wanted: PageFilter, start: int, limit: int, *, latest_first: bool) -> Found:
        """Some of the jobs that match, beginning at position *start*."""

    def count(self, wanted: PageFilter, start: int) -> tuple[int, int | None, int]:
        """Count matches among the next few thousand jobs: their number, where to continue or None, and the total."""

    def find(self, keys: Sequence[str]) -> dict[str, Any]:
        """The jobs with these keys that are still there, by key."""

    def act(self, action: str, jobs: Iterable[Any], target: str, **options: Any) -> BulkResult:
        """Run an action on jobs. Options as for the bulk calls; *target* is the queue to move jobs to."""

    def all_matching(self, wanted: PageFilter, run: BulkRun) -> Iterator[Any]:
        """The jobs that match, among those that are there now."""


class SetPlace:
    """
    A sorted set.

    Args:
        visit: Says which Redis to read. The dashboard's redaction policy applies to searches, too.
        path: The page's path, one of `SETS`.
    """

    def __init__(self, visit: Visit, path: str) -> None:
        kind, self.title, self.actions = SETS[path]
        self.path = path
        self.jobs = kind(pool=visit.pool)
        self.name = self.jobs.name
        self._redaction = visit.site.redaction
        self._known_by = visit.site.known_by

    def read(self, wanted: PageFilter, start: int, limit: int, *, latest_first: bool) -> Found:
        """As in `Place`; without a filter it takes one round trip."""
        if wanted.is_empty:
            entries, size = self.jobs.at_rank(start, limit, latest_first=latest_first)
            end = start + len(entries)
            return Found([(self.key_of(entry), entry) for entry in entries], end if end < size else None, end, size)
        first, last = self._ranks(wanted, latest_first=latest_first)
        start = max(start, first)
        rows: list[tuple[str, JobRecord]] = []
        place, size, end = start, last, min(last, start + _LOOKED_AT)
        page_size = PageSize(FIRST_READ)
        while place < end and len(rows) < limit:
            entries, size = self.jobs.at_rank(place, min(page_size.jobs, end - place), latest_first=latest_first)
            if not entries:
                return Found(rows, None, place, size)
            for entry in entries:
                place += 1
                if wanted.fits(entry, entry.score, self._redaction):
                    rows.append((self.key_of(entry), entry))
                if len(rows) == limit:
                    break
            page_size.adapt(entry.value for entry in entries)
        return Found(rows, place if place < last else None, place, size)

    def count(self, wanted: PageFilter, start: int) -> tuple[int, int | None, int]:
        """As in `Place`. Redis itself counts if the filter has only times."""
        if wanted.has_only_times:
            total = self.jobs.size_between(wanted.wanted.earliest, wanted.wanted.latest)
            return total, None, total
        found = self.read(wanted, start, _LOOKED_AT + 1, latest_first=False)
        return len(found.rows), found.next_start, found.total

    def find(self, keys: Sequence[str]) -> dict[str, SortedEntry]:
        """As in `Place`."""
        return self.jobs.find_keys(keys, shown=self._known_by)

    def key_of(self, entry: SortedEntry) -> str:
        """The key of an entry in addresses and forms."""
        return entry.key_of(self._known_by(entry.value))

    def act(self, action: str, jobs: Iterable[Any], target: str = "", **options: Any) -> BulkResult:
        """As in `Place`."""
        calls: dict[str, Callable[..., BulkResult]] = {
            "retry": self.jobs.retry_many,
            "run": self.jobs.add_many_to_queue,
            "kill": self.jobs.kill_many,
            "delete": self.jobs.delete_many,
        }
        return calls[action](jobs, **options)

    def all_matching(self, wanted: PageFilter, run: BulkRun) -> Iterator[SortedEntry]:
        """
        As in `Place`.

        Stops after as many entries as there are now: jobs that fail again at once would keep it going forever.
        """
        size = self.jobs.size
        for entry in islice(self.jobs.find(wanted.times, stop=run.should_stop), size):
            if wanted.fits(entry, entry.score, self._redaction):
                yield entry

    def _ranks(self, wanted: PageFilter, *, latest_first: bool) -> tuple[int, int]:
        """The ranks between which the entries with the wanted times are."""
        earliest, latest = wanted.wanted.earliest, wanted.wanted.latest
        size = self.jobs.size
        if earliest is None and latest is None:
            return 0, size
        below = self.jobs.size_between(None, earliest) if earliest is not None else 0
        inside = self.jobs.size_between(earliest, latest)
        first = size - below - inside if latest_first else below
        return first, first + inside


class QueuePlace:
    """
    A queue.

    Args:
        visit: Names the queue, and says which Redis to read. The redaction policy applies to searches, too.
    """

    path = "/queue"
    actions: tuple[Action, ...] = (DELETE, MOVE)

    def __init__(self, visit: Visit) -> None:
        self.name = visit.field("name") or visit.query("name")
        self.title = f"Queue {self.name}"
        self._queue = Queue(self.name, pool=visit.pool)
        self._redaction = visit.site.redaction
        self._known_by = visit.site.known_by

    def read(self, wanted: PageFilter, start: int, limit: int, *, latest_first: bool) -> Found:
        """As in `Place`."""
        place, rows, is_end = start, list[tuple[str, JobRecord]](), False
        end = start + (limit if wanted.is_empty else _LOOKED_AT)
        size, page_size = 0, PageSize(FIRST_READ)
        while place < end and len(rows) < limit and not is_end:
            page = self._queue.page(min(page_size.jobs, end - place), after=place, oldest_first=not latest_first)
            is_end, size = page.next is None, page.size
            for job in page.jobs:
                stood = job.placed.before
                place += 1
                if wanted.fits(job, enqueued_seconds(job), self._redaction):
                    rows.append((self.key_of(job, max(0, stood)), job))
                if len(rows) == limit:
                    is_end = is_end and job is page.jobs[-1]
                    break
            page_size.adapt(job.value for job in page.jobs)
        return Found(rows, None if is_end else place, place, max(size, place))

    def count(self, wanted: PageFilter, start: int) -> tuple[int, int | None, int]:
        """As in `Place`."""
        if wanted.is_empty:
            size = self._queue.size
            return size, None, size
        found = self.read(wanted, start, _LOOKED_AT + 1, latest_first=False)
        return len(found.rows), found.next_start, found.total

    def find(self, keys: Sequence[str]) -> dict[str, QueuedJob]:
        """As in `Place`."""
        found = {}
        for key in keys:
            digest, _, text = key.rpartition("-")
            place = whole_number(text, _LONGEST_PLACE)
            job = None if place is None else self._queue.find_near(digest, place, shown=self._known_by)
            if job is not None:
                found[key] = job
        return found

    def key_of(self, job: QueuedJob, place: int) -> str:
        """The key of a job in addresses and forms: a digest, and its position, counted from the job that runs next."""
        return f"{job.key_of(self._known_by(job.value))}-{place}"

    def act(self, action: str, jobs: Iterable[Any], target: str = "", **options: Any) -> BulkResult:
        """As in `Place`."""
        if action == "move":
            return self._queue.move_to(target, jobs, **options)
        return self._queue.delete_many(jobs, **options)

    def all_matching(self, wanted: PageFilter, run: BulkRun) -> Iterator[QueuedJob]:
        """As in `Place`."""
        for job in islice(reversed(self._queue), self._queue.size):
            if run.should_stop():
                return
            if wanted.fits(job, enqueued_seconds(job), self._redaction):
                yield job


def place_at(visit: Visit, path: str) -> Place:
    """The place that a page shows: a path of `SETS`, or `/queue` for the queue that the request names."""
    return QueuePlace(visit) if path == "/queue" else SetPlace(visit, path)


def chosen_queue(given: str, pool: Any) -> tuple[str, str]:
    """
    The queue that a form names, and why no job may go there or an empty string.

    No worker can be told to serve a queue with whitespace in its name, but Ruby may have one. Whitespace around the
    name of any other queue is a slip.
    """
    trimmed = given.strip()
    for name in (given, trimmed):
        complaint = complaint_about_queue(name, f"the queue is {shortened(name, 200)!r}")
        if complaint is None or name in known_queues(pool=pool):
            return name, ""
    return trimmed, complaint or ""
