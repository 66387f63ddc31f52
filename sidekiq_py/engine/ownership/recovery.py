"""
Recovers the jobs of dead owners.

1. Walk the registry. An owner is dead if its process is provably gone, if its parent says so, or if its lease was
   missing twice, more than two beats apart. Both observations must come over one unbroken connection, while this
   process could renew its own lease. A process on this machine that uses CPU time in between does not count as silent:
   one of its jobs is holding Python's interpreter lock and keeps all other threads from running.
2. Fence the owner: from then on it can neither fetch nor claim.
3. Put its jobs back, each only if it is still in flight. A job that was in flight when its owner died is a suspect. A
   suspect that was also marked as started counts one death more. With the third death in 72 hours, that is after four
   runs, it goes to `dead`.
4. Check the owner again for a minute: an inbox may hold a job that Redis moved at the last instant.

After a Redis outage every lease is gone although all workers are alive. So the first observation is only remembered,
and is forgotten when the connection breaks.

A deploy leaves hundreds of departed owners, and a crash may leave thousands of jobs. So owners are queried in pages,
and those that left jobs behind get one slice each in turn. A pass can be cut short; the next one continues after the
owner at which it stopped.
"""

import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.config import Config
from sidekiq_py.engine.ownership.host import ProcessPlace, parse_registration
from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.engine.ownership.pending_deaths import PendingDeath, PendingDeaths
from sidekiq_py.errors import ArgumentError, PoisonPillError, RedisError, RedisReplyError
from sidekiq_py.extension import JobEnd
from sidekiq_py.loaded_extensions import LoadedExtensions
from sidekiq_py.logs import MOST_NAMED, counted_jobs, job_text, log, log_context
from sidekiq_py.redis_access.connection.link import Command, Link
from sidekiq_py.redis_access.connection.slices import slices_of
from sidekiq_py.redis_access.job_path import in_flight, recover
from sidekiq_py.redis_access.job_path.failed_jobs import add_to_dead, trim_dead
from sidekiq_py.telemetry import Report
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.failure import error_class_name
from sidekiq_py.wire.payload import dump, parse_job_or_empty

MOST_DEATHS = 3
# The longest time for which CPU use keeps a process without a lease alive. No call holds Python's interpreter lock for
# that long, but a process that goes on without its embedded worker may use CPU for longer.
_LONGEST_GRIP_SECONDS = 3600
_FORGET_SUSPECTS_EVERY_SECONDS = 3600
# A blocking move is open for at most five seconds. After this time no job can arrive in an inbox any more.
_AFTERCARE_SECONDS = 60
# The number of owners that one round trip queries or fences.
_OWNERS_PER_PAGE = 200
# Of a poison pill, in the log.
_SHOWN_CHARACTERS = 200


class _Missing(NamedTuple):
    """
    A lease that was missing.

    Args:
        first: When it was first seen missing.
        since: When its process was last known to be working.
        generation: The generation of the connection that saw it.
        cpu_ticks: The CPU time that the process had used by then; None if unknown.
    """

    first: float
    since: float
    generation: int
    cpu_ticks: int | None


@dataclass(slots=True)
class _Round:
    """
    The recovery of one departed owner's jobs.

    Args:
        entries: Its jobs, one slice at a time.
        moved: The number of jobs recovered so far.
        first: The payloads of the first few of them, for the log.
    """

    entries: Iterator[list[recover.Entry]]
    moved: int = 0
    first: list[bytes] = field(default_factory=list)


class Recovery:
    """
    Recovers jobs on behalf of one process. None of the callbacks may wait for the program's handlers.

    Args:
        link: A connection that only this object uses.
        dialect: Returns the Sidekiq release to write for.
        extensions: Asked what else to write for each job that goes to `dead`.
        pending_deaths: Records that the death handlers of those jobs are pending.
        report: Called with errors.
        on_dead_lettered: Called with the bytes of each job that went to `dead`.
        on_pending_death: Called with each job whose death handlers another process left uncalled.
        on_recovered: Called with an owner's name, how many of its jobs are no longer in flight, and how many of these
            went to `dead`.

    Attributes:
        has_more: True if the last pass was cut short.
        neighbours: The other owners on this machine that the last pass found.
    """

    def __init__(
        self,
        config: Config,
        link: Link,
        ownership: Ownership,
        *,
        dialect: Callable[[], Dialect],
        extensions: LoadedExtensions | None = None,
        pending_deaths: PendingDeaths | None = None,
        report: Report = lambda error, context: None,
        on_dead_lettered: Callable[[bytes, BaseException, PendingDeath | None], Any] = lambda raw, error, death: None,
        on_pending_death: Callable[[PendingDeath, dict[str, Any], BaseException], Any] = lambda death, job, error: None,
        on_recovered: Callable[[str, int, int], Any] = lambda owner, count, dead: None,
    ) -> None:
        self._config = config
        self._link = link
        self._ownership = ownership
        self._dialect = dialect
        self._extensions = LoadedExtensions() if extensions is None else extensions
        self._pending_deaths = pending_deaths
        self._report = report
        self._on_dead_lettered = on_dead_lettered
        self._on_pending_death = on_pending_death
        self._on_recovered = on_recovered
        self._missing: dict[str, _Missing] = {}
        self.neighbours: list[ProcessPlace] = []
        self._under_way: dict[str, _Round] = {}
        # The departed owner at which the last pass stopped.
        self._asked_last = ""
        # The owners whose jobs cannot be recovered, as logged already.
        self._left: set[str] = set()
        # The jobs that cannot be moved to `dead`, as logged already.
        self._stuck: set[tuple[str, bytes]] = set()
        self._forget_suspects_at = 0.0
        self._suspects_cursor = b"0"
        self.has_more = False

    def look(self, within_seconds: float = math.inf) -> int:
        """
        Make one pass over the registry. Returns the number of recovered jobs.

        Args:
            within_seconds: Stop after about this long, even if there is more to do. Some work is always done.

        Raises:
            RedisError: Redis is unreachable. The next pass continues.
        """
        until = monotonic() + within_seconds
        self._ownership.renew(self._link)
        others = recover.owners(self._link)
        others.pop(self._ownership.current.name, None)
        places = {name: parse_registration(about)[0] for name, about in others.items()}
        self.neighbours = [place for place in places.values() if place.is_within_sight()]
        gone = {name for name, place in places.items() if place.is_provably_dead()}
        silent = self._silent_twice({name: place for name, place in places.items() if name not in gone})
        for page in slices_of([name for name in others if name in gone], _OWNERS_PER_PAGE):
            self._fence(page, certain=True)
        for page in slices_of([name for name in others if name in silent], _OWNERS_PER_PAGE):
            self._fence(page, certain=False)
        moved = self._collect(until)
        self._forget_suspects()
        return moved

    @property
    def questions(self) -> Sequence[Command]:
        """
        What to ask Redis once per beat, along with other commands. If the reply is 0, `take_over_deaths` has nothing to
        do.
        """
        return () if self._pending_deaths is None else self._pending_deaths.questions

    def take_over_deaths(self) -> None:
        """
        Take over the pending death handlers of processes that are gone.

        Raises:
            RedisError: Redis is unreachable.
        """
        if self._pending_deaths is not None:
            for death, payload, error in self._pending_deaths.take_over(self._link):
                self._on_pending_death(death, payload, error)

    def forget_silent(self) -> None:
        """Forget all missing leases after a beat without a pass: their owners may have renewed them in between."""
        self._missing.clear()

    def _forget_suspects(self) -> None:
        """Drop expired suspects, one page per call; after the last page, start over an hour later."""
        if monotonic() < self._forget_suspects_at:
            return
        self._suspects_cursor = recover.forget_suspects(self._link, self._suspects_cursor, now=now_seconds())
        if self._suspects_cursor == b"0":
            self._forget_suspects_at = monotonic() + _FORGET_SUSPECTS_EVERY_SECONDS

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def declare_dead(self, *names: str, within_seconds: float = math.inf) -> int:
        """Recover the jobs of owners that are known to be dead at once, before those of other owners."""
        until = monotonic() + within_seconds
        for page in slices_of(names, _OWNERS_PER_PAGE):
            self._fence(page, certain=True)
        return self._collect(until, first=names)

    def _silent_twice(self, places: Mapping[str, ProcessPlace]) -> set[str]:
        """Return the owners whose lease has been missing for over two beats, as seen over one unbroken connection."""
        leased = recover.leased(self._link, list(places))
        holders = {keys.identity_of(name) for name in leased}
        self._missing = {
            name: self._look_at(name, place, has_moved_on=keys.identity_of(name) in holders)
            for name, place in places.items()
            if name not in leased
        }
        now = monotonic()
        return {name for name, seen in self._missing.items() if now - seen.since > 2 * self._config.lease_beat_seconds}

    def _look_at(self, name: str, place: ProcessPlace, *, has_moved_on: bool) -> _Missing:
        """
        Update what is known about an owner without a lease.

        Args:
            has_moved_on: True if its process has a lease under another epoch. The registry shows the earlier epoch
                again if Redis was empty for a while and was then restored from a backup.
        """
        now, generation = monotonic(), self._link.generation
        # CPU use says nothing about such an owner, nor about one in this very process, which has no worker any more.
        cpu_ticks = None if has_moved_on or place.pid == os.getpid() else place.cpu_ticks()
        seen = self._missing.get(name)
        if seen is None or seen.generation != generation:
            return _Missing(now, now, generation, cpu_ticks)
        if cpu_ticks != seen.cpu_ticks and now - seen.first < _LONGEST_GRIP_SECONDS:
            return seen._replace(since=now, cpu_ticks=cpu_ticks)
        return seen

    def _fence(self, names: Sequence[str], *, certain: bool) -> None:
        if certain:
            recover.forget_processes(self._link, {keys.identity_of(name) for name in names})
        for name in recover.fence_all(self._link, names, certain=certain, now=now_seconds()):
            log.warning("%s is dead; the jobs that it had in flight go back to their queues", name)
        for name in names:
            self._missing.pop(name, None)

    def _collect(self, until: float, first: Sequence[str] = ()) -> int:
        """Recover the jobs that departed owners left behind."""
        departed = recover.departed(self._link)
        names = [name for name in first if name in departed]
        names += _from_behind(self._asked_last, sorted(departed.keys() - set(names)))
        pages = list(slices_of(names, _OWNERS_PER_PAGE))
        moved = 0
        try:
            while pages or self._under_way:
                if pages:
                    self._ask({name: departed[name] for name in pages.pop(0)}, first)
                moved += self._take_turns(until)
                if monotonic() >= until:
                    break
        except RedisError:
            # After a broken connection, all entries are read again.
            self._under_way.clear()
            raise
        finally:
            self.has_more = bool(pages or self._under_way)
        return moved

    def _ask(self, departed: Mapping[str, tuple[float, bytes]], first: Sequence[str]) -> None:
        """Start recovering the owners of a page that left jobs behind, and forget those that no longer can."""
        queues = {name: parse_registration(about)[1] for name, (_, about) in departed.items()}
        left = recover.leaving_something(self._link, queues)
        now = now_seconds()
        # An owner with jobs stays listed: those that could not go back (the queue's key has a wrong type) are tried
        # again.
        done = [name for name, (at, _) in departed.items() if name not in left and now - at > _AFTERCARE_SECONDS]
        recover.remove_departed(self._link, done)
        begun = [name for name in departed if name in left and name not in self._under_way]
        self._under_way |= {name: _Round(recover.entries(self._link, name, queues[name])) for name in begun}
        hurried = {name: self._under_way.pop(name) for name in first if name in self._under_way}
        self._under_way = {**hurried, **self._under_way}
        *_, self._asked_last = departed

    def _take_turns(self, until: float) -> int:
        """Recover one slice per started owner. Owners that were not reached come first in the next round."""
        moved = 0
        for name in list(self._under_way):
            round_ = self._under_way.pop(name)
            page = self._next_page(name, round_)
            if page is not None:
                found = self._bring_back(name, page)
                round_.moved += len(found)
                round_.first += found[: MOST_NAMED - len(round_.first)]
                moved += len(found)
                self._under_way[name] = round_
            elif round_.moved:
                log.info("recovered %s of %s", counted_jobs(round_.moved, round_.first), name)
            if monotonic() >= until:
                break
        return moved

    def _next_page(self, name: str, round_: _Round) -> list[recover.Entry] | None:
        """
        Return the owner's next slice. Returns None if there are no more jobs, or if one of the owner's keys has a wrong
        type, which must not hold up the others.
        """
        try:
            return next(round_.entries, None)
        except RedisReplyError as error:
            if error.is_about_server:
                raise
            if name not in self._left:
                self._left.add(name)
                log.error("the jobs that %s had in flight cannot be recovered: %s; see sidekiq-py doctor", name, error)
            return None

    def _bring_back(self, name: str, entries: Sequence[recover.Entry]) -> list[bytes]:
        """Recover jobs. Returns the payloads of those that are no longer in flight."""
        known = recover.records(self._link, [entry.raw for entry in entries])
        fates = [self._fate(entry, record) for entry, record in zip(entries, known, strict=True)]
        done = set(recover.put_back(self._link, name, [fate for fate in fates if not fate.is_poison]))
        dead = [fate for fate in fates if fate.is_poison and self._dead_letter(name, fate.entry)]
        done.update(fate.entry.field for fate in dead)
        moved = [entry.raw for entry in entries if entry.field in done]
        if moved:
            self._on_recovered(name, len(moved), len(dead))
        return moved

    def _dead_letter(self, name: str, entry: recover.Entry) -> bool:
        """
        Move a job to `dead`. The same script writes what extensions add, and the record of the pending death handlers.

        Returns:
            False if the job is no longer in flight, or Redis refuses the script.
        """
        now, error, payload = now_seconds(), PoisonPillError(), parse_job_or_empty(entry.raw)
        member = self._dead_member(entry.raw, payload, error)
        end = JobEnd("dead", payload, entry.raw, entry.queue, now, self._dialect(), error, member=member, score=now)
        effects = self._extensions.effects_of_dead(end, self._report)
        death = self._pending_deaths.prepare(payload, entry.raw, error) if self._pending_deaths is not None else None
        try:
            was_there = in_flight.settle(
                self._link,
                name,
                entry.field,
                # The extensions' commands come first: if one fails halfway, the job must not be in both places.
                vital=[*effects, add_to_dead(member, now)],
                counters=[
                    *(death.commands if death is not None else ()),
                    in_flight.clear_suspect_command(entry.raw),
                    *trim_dead(now, self._config.dead_limits),
                ],
                listed=entry.raw if entry.is_listed else None,
            )
        except RedisReplyError as failure:
            if failure.is_about_server:
                raise
            self._note_stuck(name, entry, failure)
            return False
        if was_there:
            with log_context(payload):
                log.error("%s: %s", error, job_text(entry.raw, _SHOWN_CHARACTERS))
            self._on_dead_lettered(entry.raw, error, death)
        return was_there

    def _note_stuck(self, name: str, entry: recover.Entry, error: RedisReplyError) -> None:
        """Log it once per job, because each pass tries again."""
        if (name, entry.field) in self._stuck:
            return
        self._stuck.add((name, entry.field))
        with log_context(parse_job_or_empty(entry.raw)):
            log.error(
                "a job that has killed its process too often cannot be moved to the dead set and stays in flight under "
                "%s: %s. Fix this error (`sidekiq-py doctor` shows keys of a wrong type), and the job is moved "
                "automatically. The job: %s",
                name,
                error,
                job_text(entry.raw, _SHOWN_CHARACTERS),
            )

    def _fate(self, entry: recover.Entry, record: tuple[int, float] | None) -> recover.Fate:
        now = now_seconds()
        deaths, first = record if record is not None else (0, now)
        if now - first > recover.SUSPECT_TTL_SECONDS:
            deaths, first = 0, now
        if entry.is_marked:
            deaths += 1
        return recover.Fate(entry, deaths=deaths, first=first, is_poison=deaths >= MOST_DEATHS)

    def _dead_member(self, raw: bytes, payload: dict[str, Any], error: BaseException) -> bytes:
        """
        Return the job with the reason for its death, for the Web UI. A payload that cannot be parsed or dumped again
        stays as it is.
        """
        if not payload:
            return raw
        dead = {**payload, "error_message": str(error), "error_class": error_class_name(error)}
        try:
            return dump(dead, dialect=self._dialect())
        except ArgumentError:
            return raw


def _from_behind(name: str, names: Sequence[str]) -> list[str]:
    """Rotate the sorted *names* so that they begin after *name*."""
    at = bisect_right(names, name)
    return [*names[at:], *names[:at]]
