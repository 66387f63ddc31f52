"""
Brings back the jobs of owners that died.

1. Walk the registry. An owner is dead if its process is provably gone, if its parent says so, or if its lease was seen
   missing twice, more than two beats apart, over one unbroken connection, while we could renew our own. A process of
   this machine that uses CPU time meanwhile is not silent: a job of it keeps Python's lock from all other threads.
2. Fence it: from then on it can neither fetch nor claim.
3. Put its jobs back, each only if it was still in flight. What was in flight at a death is a suspect; a suspect that
   was marked as started bears a death more, and with the third in 72 hours, so after four runs, it goes to `dead`.
4. Look at it again for a minute: an inbox may hold what Redis moved in the last instant.

After an outage of Redis every lease is gone while all workers live. So the first look only remembers, and a broken
connection forgets what was remembered.

A deploy leaves hundreds of departed owners, and a crash may leave thousands of jobs. So owners are asked about by the
page, those that have left something get a slice each in turn, and a look can be cut short: the next one goes on behind
the owner at which it stopped.
"""

import logging
import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.config import Config
from sidekiq_py.engine.ownership.host import ProcessPlace, parse_registration
from sidekiq_py.engine.ownership.owed_deaths import OwedDeath, OwedDeaths
from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    PoisonPillError,
    RedisError,
    RedisReplyError,
)
from sidekiq_py.loaded_extensions import LoadedExtensions
from sidekiq_py.logs import counted, log_context
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.job_path import in_flight, recover
from sidekiq_py.redis_access.job_path.failed_jobs import DeadLimits, add_to_dead, trim_dead
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.failure import error_class_name
from sidekiq_py.wire.payload import dump, parse_job_or_empty

_log = logging.getLogger("sidekiq")

MOST_DEATHS = 3
DEATHS_WINDOW_SECONDS = 72 * 3600
# No call keeps Python's lock for as long; a process that lives on without its worker (an embedded one) may.
_LONGEST_GRIP_SECONDS = 3600
_FORGET_SUSPECTS_EVERY_SECONDS = 3600
# A blocking move is open for five seconds at most; after this nothing can come into an inbox any more.
_AFTERCARE_SECONDS = 60
# Asked about, or fenced, in one round trip.
_OWNERS_PER_PAGE = 200


@dataclass(frozen=True, slots=True)
class _Missing:
    """
    A lease that was not there.

    Args:
        first: When it was first seen missing.
        since: When its process was last seen at work.
        cpu_ticks: What that had used by then; None where it cannot be told.
    """

    first: float
    since: float
    generation: int
    cpu_ticks: int | None


@dataclass(slots=True)
class _Round:
    """
    What is brought back of one departed owner.

    Args:
        entries: Its jobs, a slice at a time.
        moved: How many have gone back so far.
    """

    entries: Iterator[list[recover.Entry]]
    moved: int = 0


class Recovery:
    """
    One process's share of the work.

    Args:
        link: A connection of its own.
        dialect: Gives the release to write for.
        extensions: Told of each job that goes to `dead`.
        owed: Writes down that the death handlers are to be called for those.
        report: Told of what goes wrong; it must not wait for handlers.
        on_dead_lettered: Called with the bytes of each job that went to `dead`; likewise.
        on_owed_death: Called with each job whose death handlers another process has not called; likewise.
        on_recovered: Called with an owner's name, how many of its jobs are no longer in flight, and how many of these
            went to `dead`.

    Attributes:
        has_more: The last look was cut short.
    """

    def __init__(
        self,
        config: Config,
        link: Link,
        ownership: Ownership,
        *,
        dialect: Callable[[], Dialect],
        extensions: LoadedExtensions | None = None,
        owed: OwedDeaths | None = None,
        report: Callable[[BaseException, dict[str, Any]], Any] = lambda error, context: None,
        on_dead_lettered: Callable[[bytes, BaseException, OwedDeath | None], Any] = lambda raw, error, owed: None,
        on_owed_death: Callable[[OwedDeath, dict[str, Any], BaseException], Any] = lambda owed, payload, error: None,
        on_recovered: Callable[[str, int, int], Any] = lambda owner, count, dead: None,
    ) -> None:
        self._config = config
        self._link = link
        self._ownership = ownership
        self._dialect = dialect
        self._extensions = LoadedExtensions() if extensions is None else extensions
        self._owed = owed
        self._report = report
        self._on_dead_lettered = on_dead_lettered
        self._on_owed_death = on_owed_death
        self._on_recovered = on_recovered
        self._missing: dict[str, _Missing] = {}
        self._neighbours: list[ProcessPlace] = []
        self._under_way: dict[str, _Round] = {}
        # The departed owner at which the last look stopped.
        self._asked_last = ""
        # The owners whose jobs cannot be brought back, once that was logged.
        self._left: set[str] = set()
        # Likewise jobs that cannot be put into `dead`.
        self._stuck: set[tuple[str, bytes]] = set()
        self._forget_suspects_at = 0.0
        self._suspects_cursor = b"0"
        self.has_more = False

    def look(self, within_seconds: float = math.inf) -> int:
        """
        One round; returns how many jobs were brought back.

        Args:
            within_seconds: Stop after about so long, in the midst of it; a little is always done.

        Raises:
            RedisError: Redis is out of reach; the next round goes on.
        """
        until = monotonic() + within_seconds
        self._ownership.renew(self._link)
        others = recover.owners(self._link)
        others.pop(self._ownership.current.name, None)
        places = {name: parse_registration(about)[0] for name, about in others.items()}
        self._neighbours = [place for place in places.values() if place.is_within_sight()]
        gone = {name for name, place in places.items() if place.is_provably_dead()}
        silent = self._silent_twice({name: place for name, place in places.items() if name not in gone})
        for page in _pages([name for name in others if name in gone]):
            self._fence(page, certain=True)
        for page in _pages([name for name in others if name in silent]):
            self._fence(page, certain=False)
        moved = self._collect(until)
        self._forget_suspects()
        return moved

    def take_over_deaths(self) -> None:
        """
        See to the death handlers that processes owe which are gone.

        Raises:
            RedisError: Redis is out of reach.
        """
        if self._owed is not None:
            for owed, payload, error in self._owed.take_over(self._link):
                self._on_owed_death(owed, payload, error)

    @property
    def neighbours(self) -> Sequence[ProcessPlace]:
        """The other owners of this machine that the last look has found."""
        return self._neighbours

    def forget_silent(self) -> None:
        """There was a beat without a look: whose lease was missing before may have renewed it meanwhile."""
        self._missing.clear()

    def _forget_suspects(self) -> None:
        """A page of them each time, once an hour from the first."""
        if monotonic() < self._forget_suspects_at:
            return
        self._suspects_cursor = recover.forget_suspects(self._link, self._suspects_cursor, now=now_seconds())
        if self._suspects_cursor == b"0":
            self._forget_suspects_at = monotonic() + _FORGET_SUSPECTS_EVERY_SECONDS

    def close(self) -> None:
        """Let go of the connection."""
        self._link.close()

    def declare_dead(self, *names: str, within_seconds: float = math.inf) -> int:
        """Owners are known to be dead: bring their jobs back at once, before those of others."""
        until = monotonic() + within_seconds
        for page in _pages(names):
            self._fence(page, certain=True)
        return self._collect(until, first=names)

    def _silent_twice(self, places: Mapping[str, ProcessPlace]) -> set[str]:
        """Those whose lease has been missing for more than two beats, as seen over one unbroken connection."""
        leased = recover.leased(self._link, list(places))
        self._missing = {name: self._look_at(name, place) for name, place in places.items() if name not in leased}
        now = monotonic()
        return {name for name, seen in self._missing.items() if now - seen.since > 2 * self._config.lease_beat_seconds}

    def _look_at(self, name: str, place: ProcessPlace) -> _Missing:
        """What is known of a process without a lease."""
        now, generation = monotonic(), self._link.generation
        # This very process plainly runs: there an owner without a lease has no worker any more.
        cpu_ticks = None if place.pid == os.getpid() else place.cpu_ticks()
        seen = self._missing.get(name)
        if seen is None or seen.generation != generation:
            return _Missing(now, now, generation, cpu_ticks)
        if cpu_ticks != seen.cpu_ticks and now - seen.first < _LONGEST_GRIP_SECONDS:
            return replace(seen, since=now, cpu_ticks=cpu_ticks)
        return seen

    def _fence(self, names: Sequence[str], *, certain: bool) -> None:
        if certain:
            recover.forget_processes(self._link, {name.rpartition(":")[0] for name in names})
        for name in recover.fence_all(self._link, names, certain=certain, now=now_seconds()):
            _log.warning("%s is dead; its jobs go back to their queues", name)
        for name in names:
            self._missing.pop(name, None)

    def _collect(self, until: float, first: Sequence[str] = ()) -> int:
        """Bring back what those who departed left behind."""
        departed = recover.departed(self._link)
        names = [name for name in first if name in departed]
        names += _from_behind(self._asked_last, sorted(departed.keys() - set(names)))
        pages = list(_pages(names))
        moved = 0
        try:
            while pages or self._under_way:
                if pages:
                    self._ask({name: departed[name] for name in pages.pop(0)}, first)
                moved += self._take_turns(until)
                if monotonic() >= until:
                    break
        except RedisError:
            # What was read before a connection broke is asked for again.
            self._under_way.clear()
            raise
        finally:
            self.has_more = bool(pages or self._under_way)
        return moved

    def _ask(self, departed: Mapping[str, tuple[float, bytes]], first: Sequence[str]) -> None:
        """Begin with those of a page that have left something; strike off those of whom nothing comes any more."""
        queues = {name: parse_registration(about)[1] for name, (_, about) in departed.items()}
        left = recover.leaving_something(self._link, queues)
        now = now_seconds()
        # What could not go back (its queue's key is of a foreign type) must be found again.
        done = [name for name, (at, _) in departed.items() if name not in left and now - at > _AFTERCARE_SECONDS]
        recover.strike_off(self._link, done)
        begun = [name for name in departed if name in left and name not in self._under_way]
        self._under_way |= {name: _Round(recover.entries(self._link, name, queues[name])) for name in begun}
        hurried = {name: self._under_way.pop(name) for name in first if name in self._under_way}
        self._under_way = {**hurried, **self._under_way}
        *_, self._asked_last = departed

    def _take_turns(self, until: float) -> int:
        """A slice of each owner that is under way; who was not reached is the first in the next round."""
        moved = 0
        for name in list(self._under_way):
            round_ = self._under_way.pop(name)
            page = self._next_page(name, round_)
            if page is not None:
                found = self._bring_back(name, page)
                round_.moved += found
                moved += found
                self._under_way[name] = round_
            elif round_.moved:
                _log.info("brought back %s of %s", counted(round_.moved, "job"), name)
            if monotonic() >= until:
                break
        return moved

    def _next_page(self, name: str, round_: _Round) -> list[recover.Entry] | None:
        """None where there is no more, or an owner's key is of a foreign type, which must not hold up the others."""
        try:
            return next(round_.entries, None)
        except RedisReplyError as error:
            if error.is_about_server:
                raise
            if name not in self._left:
                self._left.add(name)
                _log.error("what %s had in flight cannot be brought back: %s; see sidekiq-py doctor", name, error)
            return None

    def _bring_back(self, name: str, entries: Sequence[recover.Entry]) -> int:
        known = recover.records(self._link, [entry.raw for entry in entries])
        fates = [self._fate(entry, record) for entry, record in zip(entries, known, strict=True)]
        done = recover.put_back(self._link, name, [fate for fate in fates if not fate.is_poison])
        dead = [fate for fate in fates if fate.is_poison and self._dead_letter(name, fate.entry)]
        moved = len(done) + len(dead)
        if moved:
            self._on_recovered(name, moved, len(dead))
        return moved

    def _dead_letter(self, name: str, entry: recover.Entry) -> bool:
        """
        To `dead`, in one script with what extensions want written, and with the death that is to be announced.

        Returns:
            False if it is not there any more, or Redis refuses that.
        """
        now, error, payload = now_seconds(), PoisonPillError(), parse_job_or_empty(entry.raw)
        member = self._dead_member(entry.raw)
        effects = self._extensions.effects_of_dead(
            entry.raw,
            payload,
            entry.queue,
            error,
            now=now,
            dialect=self._dialect(),
            report=self._report,
            member=member,
        )
        owed = self._owed.owe(payload, entry.raw, error) if self._owed is not None else None
        try:
            was_there = in_flight.settle(
                self._link,
                name,
                entry.field,
                # Theirs first: where a verb fails as it writes, the job must not be in both places.
                vital=[*effects, add_to_dead(member, now)],
                counters=[
                    *(owed.commands if owed is not None else ()),
                    in_flight.clear_suspect_command(entry.raw),
                    *trim_dead(now, DeadLimits(self._config.dead_max_jobs, self._config.dead_timeout_seconds)),
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
                _log.error("%s: %s", error, entry.raw[:200].decode(errors="replace"))
            self._on_dead_lettered(entry.raw, error, owed)
        return was_there

    def _note_stuck(self, name: str, entry: recover.Entry, error: RedisReplyError) -> None:
        """Once a job: each pass tries again."""
        if (name, entry.field) in self._stuck:
            return
        self._stuck.add((name, entry.field))
        with log_context(parse_job_or_empty(entry.raw)):
            _log.error(
                "a job that has killed its process too often cannot be put into dead, and stays in flight at %s: %s. "
                "Repair what Redis names (`sidekiq-py doctor` shows keys of a wrong type): then the job goes there by "
                "itself. It is %s",
                name,
                error,
                entry.raw[:200].decode(errors="replace"),
            )

    def _fate(self, entry: recover.Entry, record: tuple[int, float] | None) -> recover.Fate:
        now = now_seconds()
        deaths, first = record if record is not None else (0, now)
        if now - first > DEATHS_WINDOW_SECONDS:
            deaths, first = 0, now
        if entry.is_marked:
            deaths += 1
        return recover.Fate(entry, deaths=deaths, first=first, is_poison=deaths >= MOST_DEATHS)

    def _dead_member(self, raw: bytes) -> bytes:
        """The job with the reason why it is dead, for the Web UI; what cannot be read, or written again, stays raw."""
        payload = parse_job_or_empty(raw)
        if not payload:
            return raw
        error = PoisonPillError()
        payload["error_message"] = str(error)
        payload["error_class"] = error_class_name(error)
        try:
            return dump(payload, dialect=self._dialect())
        except (ArgumentTypeError, ArgumentValueError):
            return raw


def _pages(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + _OWNERS_PER_PAGE] for start in range(0, len(names), _OWNERS_PER_PAGE))


def _from_behind(name: str, names: Sequence[str]) -> list[str]:
    """*names*, which are sorted, from the first behind *name* on, and then those before it."""
    at = bisect_right(names, name)
    return [*names[at:], *names[:at]]
