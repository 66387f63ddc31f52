"""
The sets of jobs that wait for a time or for a person: scheduled, retry, dead.

A move (retry, kill, add to queue) reads the entry, computes its new form, and swaps it inside one script. The script
writes the new entry before it removes the old one, and writes nothing if the old one was no longer there. So a job is
never missing from both places, and if two people press the same button, it is moved once.
"""

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice, takewhile
from operator import attrgetter
from typing import Any, ClassVar

from sidekiq_py import program
from sidekiq_py.api.arguments import count_of, is_number
from sidekiq_py.api.bulk import BulkResult, Progress, Stop, Tally, each_of, slices
from sidekiq_py.api.ends import ends_of_extensions
from sidekiq_py.api.filters import JobFilter, must_be_filter, search
from sidekiq_py.api.job_record import JobRecord
from sidekiq_py.api.page_size import PageSize
from sidekiq_py.api.source import SizedOfRedis, client_for
from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import now_seconds, utc
from sidekiq_py.config import Config
from sidekiq_py.errors import ArgumentError, ArgumentTypeError, PayloadError, RedisError, RedisReplyError, SidekiqError
from sidekiq_py.logs import log
from sidekiq_py.redis_access.connection.scan import literal, scored_members
from sidekiq_py.redis_access.connection.slices import slices_by_bytes
from sidekiq_py.redis_access.job_path import promote
from sidekiq_py.redis_access.job_path.failed_jobs import DeadLimits
from sidekiq_py.redis_access.job_path.promote import Move
from sidekiq_py.redis_access.reads import job_sets
from sidekiq_py.redis_access.reads.job_sets import ScoredMember
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.failure import decrement_for_manual_retry
from sidekiq_py.wire.json_dialect import loads
from sidekiq_py.wire.payload import dump, parse_job, score_text, shown

_FIRST_PAGE_JOBS = 200
_SCAN_COUNT = 1000
# In a set of a million, Redis needs 5 ms to search a thousand small jobs; for a thousand of 10 kB, it needs a hundred.
_SEARCHED_AT_ONCE = 1000
_SAMPLE_JOBS = 5
_SCORE = re.compile(r"[+-]?inf|-?\d{1,40}(?:\.\d{1,40})?(?:e[+-]?\d{1,3})?", re.ASCII)

Place = tuple[bytes, bytes]
"""The end of a page of a sorted set: the last member that was looked at, and its score as Redis writes it."""


class SortedEntry(JobRecord):
    """
    A job in a sorted set.

    Args:
        parent: The set.
        value: The payload's exact bytes.
        score: When it is due, or when it died, in epoch seconds, as Redis writes it.
    """

    def __init__(self, parent: "JobSet", value: bytes, score: bytes) -> None:
        super().__init__(value)
        self.parent = parent
        self.score = float(score)
        self._score_text = score

    @property
    def place(self) -> Place:
        """Its position in the set, for a page that begins after it."""
        return self.value, self._score_text

    @property
    def id(self) -> str:
        """`<score>|<jid>`, as in Ruby; nothing after the bar if it has no jid."""
        return f"{score_text(self.score)}|{self.jid or ''}"

    @property
    def key(self) -> str:
        """`<score>-<digest of the bytes>`, fit for a URL. `JobSet.find_keys` finds exactly this entry again by it."""
        return self.key_of(self.value)

    def key_of(self, shown: bytes) -> str:
        """
        A key for readers who may not see all of the payload: `key` would tell them whether a hidden value is the one
        that they have guessed.

        Args:
            shown: The payload as these readers see it.
        """
        return f"{_bound(self.score)}-{_digest(shown)}"

    @property
    def at(self) -> datetime:
        """When it is due; for an entry of the dead set, when it died."""
        return utc(self.score) or (datetime.max if self.score > 0 else datetime.min).replace(tzinfo=UTC)

    @property
    def has_error(self) -> bool:
        """True if it has failed before."""
        return self.error_class is not None

    def delete(self) -> bool:
        """Remove it. Returns False if it was no longer there."""
        return self.parent.delete_many([self]).moved == 1

    def retry(self) -> bool:
        """
        Put it into its queue now. This attempt does not count towards the retry limit.

        It goes through the client middleware, like every push. If a middleware stops it, the job is gone, as in Ruby.

        Returns:
            False if it was no longer in the set.

        Raises:
            PayloadError: It is not a usable job; it stays where it is.
        """
        return _one(self.parent.retry_many([self]))

    def add_to_queue(self) -> bool:
        """Like `retry`, but for a scheduled job: only `enqueued_at` changes."""
        return _one(self.parent.add_many_to_queue([self]))

    def kill(self, *, notify_failure: bool = True) -> bool:
        """
        Move it to the dead set.

        Args:
            notify_failure: Call the death handlers, with `RuntimeError("Job killed by API")`.

        Returns:
            False if it was no longer in the set.
        """
        return _one(self.parent.kill_many([self], notify_failure=notify_failure))

    def reschedule(self, at: float | datetime) -> bool:
        """
        Make it wait until *at*, an aware datetime or epoch seconds.

        Returns:
            False if it was no longer in the set.

        Source: Sidekiq 8.1.7, api.rb, `SortedEntry#reschedule`. If the entry's JSON is not formatted exactly as Ruby
            formats it, Ruby leaves it and adds a second one that runs at once. Here the entry is moved, and rewritten
            in Ruby's format.
        """
        return self.parent.reschedule(self, at)

    def _moved_to(self, score: float, value: bytes) -> None:
        """Take the new score and bytes, so that the same object can be moved again."""
        self.value, self.score, self._score_text = value, score, score_text(score).encode()


def _one(result: BulkResult) -> bool:
    """True if the entry was moved. Raises its error if it was refused."""
    for _, error in result.errors:
        raise error
    return result.moved == 1


@dataclass(frozen=True, slots=True)
class SetPage:
    """
    One page of a sorted set.

    Args:
        entries: The matching entries.
        next: Where the next page begins; None at the end of the set.
        looked_at: The number of entries that were looked at.
    """

    entries: tuple[SortedEntry, ...]
    next: Place | None
    looked_at: int


class JobSet(SizedOfRedis):
    """
    A sorted set of jobs. Iterating goes from the highest score down, `reversed()` from the lowest up.

    Pages are read as needed, so even a set of a million entries takes little memory. Entries that come and go meanwhile
    do not disturb the iteration: an entry that is there all the time appears exactly once.

    Args:
        name: Its key: `schedule`, `retry` or `dead`.
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*; it also decides how re-pushed jobs are written.
        dead_limits: The limits of the dead set; by default those of `Config`.
    """

    def __init__(
        self, name: str, *, pool: Any = None, client: Client | None = None, dead_limits: DeadLimits | None = None
    ) -> None:
        self.name = name
        self._client = client_for(pool, client)
        super().__init__(client=self._client)
        if dead_limits is not None and not isinstance(dead_limits, DeadLimits):
            raise TypeError(f"dead_limits is {dead_limits!r}; give DeadLimits(max_jobs, timeout_seconds)")
        self._limits = dead_limits or Config().dead_limits

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __iter__(self) -> Iterator[SortedEntry]:
        return self._walk(downward=True)

    def __reversed__(self) -> Iterator[SortedEntry]:
        return self._walk(downward=False)

    @property
    def size(self) -> int:
        """The number of entries."""
        return job_sets.size(self._pool, self.name)

    def scan(self, match: str, count: int | None = None) -> Iterator[SortedEntry]:
        """
        The entries whose bytes contain *match*. Redis does the search; the order is undefined.

        Args:
            match: A glob pattern; without a `*`, a text to find anywhere.
            count: How many entries Redis looks at per round trip, 100 in Ruby. None for up to 1,000, fewer if they are
                large.

        Raises:
            TypeError: *match* is not a string.
        """
        if not isinstance(match, str):
            raise TypeError(f"match is {match!r}; give a text or a pattern as a string")
        pattern = match if "*" in match else f"*{match}*"
        return self._scan(pattern, count)

    def at_rank(self, start: int, count: int, *, latest_first: bool = False) -> tuple[list[SortedEntry], int]:
        """
        Some entries by position, counted from 0, and the size of the set. One round trip.

        Args:
            start: The position of the first entry.
            count: The number of entries.
            latest_first: Count positions from the highest score down.

        Raises:
            ValueError: *start* is below 0, or *count* below 1.
        """
        start, count = count_of(start, "start", 0), count_of(count, "count")
        members, size = job_sets.at_rank(self._pool, self.name, start, count, downward=latest_first)
        return [SortedEntry(self, member, score) for member, score in members], size

    def find_keys(
        self, wanted: Iterable[str], *, shown: Callable[[bytes], bytes] | None = None
    ) -> dict[str, SortedEntry]:
        """
        The entries with these keys (`SortedEntry.key`) that still have the same score and bytes.

        One round trip, unless more than a thousand entries share a score.

        Args:
            shown: For keys that `key_of` has made: makes the shown bytes of a payload.
        """
        by_score: dict[str, set[str]] = {}
        for key in wanted:
            score, _, digest = key.rpartition("-")
            if _SCORE.fullmatch(score):
                by_score.setdefault(score, set()).add(digest)
        found: dict[str, SortedEntry] = {}
        pages = job_sets.first_pages(self._pool, self.name, [(score, score) for score in by_score], _SCAN_COUNT)
        for (score, digests), page in zip(by_score.items(), pages, strict=True):
            for entry in self._from(page, float(score)):
                digest = _digest(shown(entry.value) if shown else entry.value)
                if digest in digests:
                    found[f"{score}-{digest}"] = entry
                    digests.discard(digest)
                    if not digests:
                        break
        return found

    def _from(self, page: list[ScoredMember], last: float) -> Iterator[SortedEntry]:
        """The entries of a first page, and those that follow it up to a score: a million may be due at one instant."""
        yield from (SortedEntry(self, member, score) for member, score in page)
        if len(page) == _SCAN_COUNT:
            yield from takewhile(lambda entry: entry.score <= last, self._walk(downward=False, after=page[-1]))

    def find(
        self,
        wanted: JobFilter,
        *,
        latest_first: bool = False,
        looked_at: Progress | None = None,
        stop: Stop | None = None,
    ) -> Iterator[SortedEntry]:
        """
        Yield the matching entries, those that are due (or died) first in front. If the filter has a `text`, Redis
        searches for it, which is much faster in a large set, and the order is undefined.

        Args:
            latest_first: Reverse the order.
            looked_at: Called now and then with the number of entries looked at so far, out of `size_between` of the
                filter's times.
            stop: Called as often; if it returns True, the search ends.
        """
        must_be_filter(wanted)
        if wanted.text is None:
            found, report = self._between(wanted, latest_first, None), looked_at
        else:
            # Redis reports the progress itself.
            found, report = self._scan(f"*{literal(wanted.text)}*", looked_at=looked_at), None
        return search(found, wanted, attrgetter("score"), looked_at=report, stop=stop)

    def page(
        self,
        limit: int,
        *,
        after: Place | None = None,
        wanted: JobFilter | None = None,
        latest_first: bool = False,
        look_at: int = 10_000,
    ) -> SetPage:
        """
        The next entries after a position, even if entries came and went since the last page.

        Args:
            limit: The most entries to return.
            after: `SetPage.next` of the previous page, or an entry's `place`; None to begin.
            wanted: Return only matching entries.
            latest_first: From the highest score down.
            look_at: End the page after looking at this many entries, so that a search in a large set can show its
                progress.

        Raises:
            ValueError: *limit* or *look_at* is below 1.
        """
        limit = count_of(limit, "limit")
        look_at = count_of(look_at, "look_at")
        wanted = JobFilter() if wanted is None else wanted
        must_be_filter(wanted)
        found: list[SortedEntry] = []
        number = 0
        for number, entry in enumerate(self._between(wanted, latest_first, after), 1):
            if wanted.fits(entry, entry.score):
                found.append(entry)
            if len(found) == limit or number == look_at:
                return SetPage(tuple(found), entry.place, number)
        return SetPage(tuple(found), None, number)

    def count(self, wanted: JobFilter, *, looked_at: Progress | None = None, stop: Stop | None = None) -> int:
        """Count the matching entries. Reads each entry, unless the filter has only times; *looked_at* as for `find`."""
        must_be_filter(wanted)
        if wanted.has_only_times:
            return self.size_between(wanted.earliest, wanted.latest)
        return sum(1 for _ in self.find(wanted, looked_at=looked_at, stop=stop))

    def size_between(self, after: float | None, before: float | None) -> int:
        """The number of entries with a score (epoch seconds) of at least *after* and below *before*."""
        low = "-inf" if after is None else _bound(after)
        high = "+inf" if before is None else f"({_bound(before)}"
        return job_sets.size_between(self._pool, self.name, low, high)

    def find_job(self, jid: str) -> SortedEntry | None:
        """
        The entry with this job id. Redis searches the whole set, so this is for people, not for programs.

        Raises:
            TypeError: *jid* is not a string.
        """
        if not isinstance(jid, str):
            raise TypeError(f"the jid is {jid!r}; give the job's id as a string")
        # Characters that JSON can escape in more than one way cannot be searched for as bytes; compare after parsing.
        pattern = f"*{literal(jid)}*" if jid.isascii() and jid.isprintable() and not set(jid) & set('"\\/') else None
        return next((entry for entry in self._scan(pattern) if entry.jid == jid), None)

    def fetch(self, score: float | tuple[float, float], jid: str | None = None) -> list[SortedEntry]:
        """
        The entries with a score, or in a range of scores, both ends included.

        Args:
            score: Epoch seconds.
            jid: Only entries with this job id.
        """
        return list(self._fetched(score, jid))

    def _fetched(self, score: float | tuple[float, float], jid: str | None) -> Iterator[SortedEntry]:
        low, high = score if isinstance(score, tuple) else (score, score)
        [page] = job_sets.first_pages(self._pool, self.name, [(_bound(low), _bound(high))], _SCAN_COUNT)
        return (entry for entry in self._from(page, high) if jid is None or entry.jid == jid)

    def schedule(self, at: float | datetime, payload: dict[str, Any]) -> None:
        """
        Write an entry as it is: no defaults, no middleware. To schedule a job, use a client.

        Args:
            at: An aware datetime, or epoch seconds.
            payload: The complete payload.

        Raises:
            ValueError: *at* is not a time.
            TypeError: *payload* is not a dict.
        """
        if not isinstance(payload, dict):
            raise TypeError(f"the payload is {payload!r}; give it as a dict with 'class', 'args' and all other keys")
        job_sets.add(self._pool, self.name, score_text(_epoch(at)), dump(payload, dialect=self._dialect()))

    def delete(self, score: float, jid: str) -> bool:
        """Remove the entry with this score and job id. Returns False if there is none."""
        return any(entry.delete() for entry in islice(self._fetched(score, jid), 1))

    def clear(self) -> int:
        """Remove all entries. Returns how many there were."""
        return job_sets.clear(self._pool, self.name)

    def reschedule(self, entry: SortedEntry, at: float | datetime) -> bool:
        """Make *entry* wait until *at*, an aware datetime or epoch seconds. Returns False if it was no longer there."""
        # Ruby adds the difference to the score, which affects the last bit of the sum; do the same.
        score = wanted = _epoch(at)
        if math.isfinite(entry.score):
            score = entry.score + (wanted - entry.score)
        spelling = self._spelled_as_ruby_would(entry.value)
        done = job_sets.reschedule(self._pool, self.name, entry.value, score=score_text(score), spelling=spelling)
        if done:
            entry._moved_to(score, spelling)
        return done

    def retry_all(
        self, progress: Progress | None = None, *, per_second: float | None = None, stop: Stop | None = None
    ) -> BulkResult:
        """
        Put every entry into its queue, lowest score first. Entries added meanwhile stay.

        Each goes through the client middleware; its attempt does not count towards the retry limit.

        Args:
            per_second: The most jobs per second, so that workers can keep up; None for no limit.
            stop: Called between round trips; if it returns True, the remaining entries stay.
        """
        return self.retry_many(self._snapshot(), progress, per_second=per_second, stop=stop)

    def kill_all(
        self,
        progress: Progress | None = None,
        *,
        notify_failure: bool = False,
        per_second: float | None = None,
        stop: Stop | None = None,
    ) -> BulkResult:
        """
        Move every entry to the dead set. Entries added meanwhile stay.

        Args:
            notify_failure: Call the death handlers for each; Ruby does not when it kills all entries at once.
            per_second, stop: As for `retry_all`.
        """
        return self.kill_many(
            self._snapshot(), progress, notify_failure=notify_failure, per_second=per_second, stop=stop
        )

    def add_all_to_queue(
        self, progress: Progress | None = None, *, per_second: float | None = None, stop: Stop | None = None
    ) -> BulkResult:
        """Like `retry_all`, but only `enqueued_at` changes."""
        return self.add_many_to_queue(self._snapshot(), progress, per_second=per_second, stop=stop)

    def retry_many(
        self,
        entries: Iterable[SortedEntry],
        progress: Progress | None = None,
        *,
        per_second: float | None = None,
        stop: Stop | None = None,
    ) -> BulkResult:
        """`retry` for many entries of this set, a hundred per round trip; other arguments as for `retry_all`."""
        plan = partial(self._to_queue, is_retry=True)
        return self._move_many(entries, plan, progress, per_second, stop)

    def add_many_to_queue(
        self,
        entries: Iterable[SortedEntry],
        progress: Progress | None = None,
        *,
        per_second: float | None = None,
        stop: Stop | None = None,
    ) -> BulkResult:
        """`add_to_queue` for many entries of this set, a hundred per round trip; other arguments as for `retry_all`."""
        plan = partial(self._to_queue, is_retry=False)
        return self._move_many(entries, plan, progress, per_second, stop)

    def kill_many(
        self,
        entries: Iterable[SortedEntry],
        progress: Progress | None = None,
        *,
        notify_failure: bool = True,
        per_second: float | None = None,
        stop: Stop | None = None,
    ) -> BulkResult:
        """`kill` for many entries of this set, a hundred per round trip; other arguments as for `retry_all`."""
        if self.name == keys.DEAD:
            raise SidekiqError("entries of the dead set are dead already; retry or delete them")
        after = _announce_death if notify_failure else None

        def plan(entry: SortedEntry) -> Move:
            return Move(entry.value, "dead", effects=ends_of_extensions(entry, "dead", self._dialect()))

        return self._move_many(entries, plan, progress, per_second, stop, after)

    def delete_many(
        self,
        entries: Iterable[SortedEntry],
        progress: Progress | None = None,
        *,
        per_second: float | None = None,
        stop: Stop | None = None,
    ) -> BulkResult:
        """`delete` for many entries of this set, a hundred per round trip; other arguments as for `retry_all`."""
        tally = Tally(progress)
        for part in slices(each_of(SortedEntry, entries), per_second, stop):
            self._delete_slice(part, tally)
            tally.report()
        return tally.result()

    def reschedule_many(
        self,
        entries: Iterable[SortedEntry],
        at: float | datetime,
        progress: Progress | None = None,
        *,
        per_second: float | None = None,
        stop: Stop | None = None,
    ) -> BulkResult:
        """
        `reschedule` for many entries of this set, a hundred per round trip; other arguments as for `retry_all`.

        All get exactly the score *at*, so that a walk that meets an entry once more at its new time can tell: Ruby's
        sum may differ from it in the last bit.

        Args:
            at: An aware datetime, or epoch seconds.

        Raises:
            ValueError: *at* is not a time.
        """
        score = _epoch(at)
        tally = Tally(progress)
        for part in slices(each_of(SortedEntry, entries), per_second, stop):
            spelled = {entry.value: (entry, self._spelled_as_ruby_would(entry.value)) for entry in part}
            for some in slices_by_bytes(spelled.values(), lambda each: 2 * len(each[0].value)):
                members = [(entry.value, spelling) for entry, spelling in some]
                replies = job_sets.reschedule_all(self._pool, self.name, members, score=score_text(score))
                for (entry, spelling), reply in zip(some, replies, strict=True):
                    if isinstance(reply, RedisReplyError):
                        tally.refuse(entry, reply)
                    elif reply:
                        tally.moved += 1
                        entry._moved_to(score, spelling)
                    else:
                        tally.gone += 1
            tally.report()
        return tally.result()

    def _delete_slice(self, part: list[SortedEntry], tally: Tally) -> None:
        """Entries for which extensions add commands each get a script of their own."""
        by_member = {entry.value: entry for entry in part}
        ends = {value: ends_of_extensions(entry, "deleted", self._dialect()) for value, entry in by_member.items()}
        moves = [Move(value, "nowhere", effects=effects) for value, effects in ends.items() if effects]
        for result in promote.move(self._pool, self.name, moves, now=now_seconds(), limits=self._limits):
            tally.count(by_member[result.move.member], result)
        plain = [value for value, effects in ends.items() if not effects]
        removed = job_sets.remove(self._pool, self.name, plain)
        tally.moved += removed
        tally.gone += len(plain) - removed

    def _walk(self, *, downward: bool, after: Place | None = None) -> Iterator[SortedEntry]:
        size = PageSize(_FIRST_PAGE_JOBS)
        while page := job_sets.page(self._pool, self.name, size.jobs, after=after, downward=downward):
            for member, score in page:
                yield SortedEntry(self, member, score)
            after = page[-1]
            size.adapt(member for member, _ in page)

    def _scan(
        self, pattern: str | None, count: int | None = None, looked_at: Progress | None = None
    ) -> Iterator[SortedEntry]:
        if count is None:
            size = PageSize(_SEARCHED_AT_ONCE, most=_SEARCHED_AT_ONCE)
            size.adapt(job_sets.ends(self._pool, self.name, _SAMPLE_JOBS))
            count = size.jobs
        for member, score in scored_members(self._pool, self.name, pattern, count, looked_at):
            yield SortedEntry(self, member, score)

    def _between(self, wanted: JobFilter, downward: bool, after: Place | None) -> Iterator[SortedEntry]:
        """The entries within the filter's times, in order."""
        start = wanted.latest if downward else wanted.earliest
        if after is None and start is not None:
            # Before all members with that score going up, after all of them going down.
            after = b"", _bound(start).encode()
        for entry in self._walk(downward=downward, after=after):
            if downward and wanted.earliest is not None and entry.score < wanted.earliest:
                return
            if not downward and wanted.latest is not None and entry.score >= wanted.latest:
                return
            yield entry

    def _snapshot(self) -> Iterator[SortedEntry]:
        """As many entries as there are now, so that jobs that fail at once and come back do not keep the loop going."""
        return islice(self._walk(downward=False), self.size)

    def _move_many(
        self,
        entries: Iterable[SortedEntry],
        plan: Callable[[SortedEntry], Move],
        progress: Progress | None,
        per_second: float | None,
        stop: Stop | None,
        after: Callable[[SortedEntry], None] | None = None,
    ) -> BulkResult:
        tally = Tally(progress)
        for part in slices(each_of(SortedEntry, entries), per_second, stop):
            by_member = {entry.value: entry for entry in part}
            moves = []
            for entry in by_member.values():
                try:
                    moves.append(plan(entry))
                except Exception as error:
                    if isinstance(error, RedisError) and error.is_about_server:
                        raise
                    tally.refuse(entry, error)
            for result in promote.move(self._pool, self.name, moves, now=now_seconds(), limits=self._limits):
                entry = by_member[result.move.member]
                tally.count(entry, result)
                if result.done and after is not None:
                    after(entry)
            tally.report()
        return tally.result()

    def _to_queue(self, entry: SortedEntry, *, is_retry: bool) -> Move:
        payload = parse_job(entry.value)
        if is_retry:
            decrement_for_manual_retry(payload)
        pushed = self._client.repush(payload)
        if pushed is None:
            log.info("client middleware stopped a job that was pushed from %s: %r", self.name, entry)
            return Move(entry.value, "nowhere", effects=ends_of_extensions(entry, "stopped", self._dialect()))
        return promote.move_to(entry.value, pushed.queue, pushed.payload, pushed.score)

    def _spelled_as_ruby_would(self, member: bytes) -> bytes:
        try:
            return dump(loads(member), dialect=self._dialect())
        except (PayloadError, ArgumentError):
            # It is not a job, so its bytes must not change.
            return member

    def _dialect(self) -> Dialect:
        return self._client.detection.dialect(now_seconds())


class _NamedSet(JobSet):
    _KEY: ClassVar[str]

    def __init__(
        self, *, pool: Any = None, client: Client | None = None, dead_limits: DeadLimits | None = None
    ) -> None:
        super().__init__(self._KEY, pool=pool, client=client, dead_limits=dead_limits)


class ScheduledSet(_NamedSet):
    """Scheduled jobs: they wait for their time."""

    _KEY = keys.SCHEDULE


class RetrySet(_NamedSet):
    """Jobs that failed and wait for their next retry."""

    _KEY = keys.RETRY


class DeadSet(_NamedSet):
    """Jobs that are not retried unless a person does it; also entries that could not be read as a job."""

    _KEY = keys.DEAD

    def kill(self, member: bytes | str, *, notify_failure: bool = True, trim: bool = True) -> None:
        """
        Write a payload to the dead set.

        Args:
            member: The payload's bytes or text.
            notify_failure: Call the death handlers, with `RuntimeError("Job killed by API")`.
            trim: Cut the set down to its limits.

        Raises:
            ArgumentTypeError: *member* is neither bytes nor text.

        Source: Sidekiq 8.1.7, api.rb, `DeadSet#kill`.
        """
        if isinstance(member, str):
            member = member.encode()
        elif not isinstance(member, bytes):
            raise ArgumentTypeError(
                f"kill() takes a payload's bytes or text as they are in Redis, not {type(member).__name__}; "
                "to kill an entry that you found, call its own kill()",
                "member",
            )
        job_sets.kill(self._pool, member, now=now_seconds(), limits=self._limits if trim else None)
        if notify_failure:
            _announce_death(JobRecord(member))

    def trim(self) -> None:
        """Cut the set to its limits: `DeadLimits.max_jobs` less one entries, as in Ruby, and none that is too old."""
        job_sets.trim(self._pool, now=now_seconds(), limits=self._limits)


def _announce_death(record: JobRecord) -> None:
    if record.item:
        program.hooks.announce_death(record.item, RuntimeError("Job killed by API"))


def _epoch(at: float | datetime) -> float:
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError(f"{at!r} has no time zone; pass an aware time: datetime.now(UTC) + timedelta(hours=1)")
        return at.timestamp()
    if not is_number(at):
        raise ValueError(f"{shown(at)} is not a time; pass epoch seconds or an aware datetime")
    return float(at)


def _digest(member: bytes) -> str:
    return hashlib.sha256(member).hexdigest()[:20]


def _bound(score: float) -> str:
    if not is_number(score) and score not in (math.inf, -math.inf):
        raise ValueError(f"the score is {shown(score)}; give epoch seconds as a number, such as an entry's score")
    return score_text(float(score)) if math.isfinite(score) else ("+inf" if score > 0 else "-inf")
