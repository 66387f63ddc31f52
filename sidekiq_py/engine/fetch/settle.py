"""
One job's end in one atomic step.

Successes are gathered and go out together: with the next fetch, at once after a slow job, within milliseconds
otherwise. How many there were is added up in this process and written with each heartbeat, as Ruby does. Every other
end is one script of its own: acknowledge, and with it the retry, the dead entry and the
counters. Each may be sent again after a lost reply, because a job that is no longer in flight is not settled twice. An
end that Redis refuses for good reasons is put off (`deferred.py`), and the thread goes on.
"""

import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from sidekiq_py.clock import monotonic, now_seconds, utc_day
from sidekiq_py.engine.fetch.deferred import Deferred
from sidekiq_py.engine.ownership.owner import Owner, UnitOfWork
from sidekiq_py.errors import RedisConnectionError, RedisError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.connection.link import Command, Link
from sidekiq_py.redis_access.connection.replies import raise_first
from sidekiq_py.redis_access.job_path import in_flight, job_counts, settle_script
from sidekiq_py.redis_access.job_path.failed_jobs import add_to_dead
from sidekiq_py.redis_access.job_path.settle_script import Effect
from sidekiq_py.wire import keys

_log = logging.getLogger("sidekiq")
_PAUSE_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
_TRIES_BEFORE_DEFERRING = 3
_SLICE = 1000


class Settler:
    """
    Gathers and hands in the ends of one capsule's jobs.

    Args:
        link: A connection of its own.
        on_pending: Called when something has been gathered that nobody has yet promised to hand in.
        on_trouble: Called after a lost connection.
        count: Takes how many jobs have succeeded.
        trust_seconds: For how long one reply says that acknowledgements are accepted. What is refused unheard runs
            again.
    """

    def __init__(
        self,
        link: Link,
        *,
        on_pending: Callable[[], None],
        on_trouble: Callable[[], None],
        count: Callable[[int], None],
        trust_seconds: float = 1.0,
    ) -> None:
        self._link = link
        self._trust_seconds = trust_seconds
        self._lock = threading.Lock()
        self._done: deque[UnitOfWork] = deque()
        self._on_pending = on_pending
        self._on_trouble = on_trouble
        self._count = count
        self._is_given_up = False
        self._deferred = Deferred(lambda: self._is_given_up)
        # Of which refusals the log has spoken, until an end goes through.
        self._told: set[str] = set()
        self.flushed_at = monotonic()
        # When a reply has last said that Redis accepts acknowledgements.
        self._accepted_at = -math.inf

    @property
    def has_pending(self) -> bool:
        """Successes wait to be handed in."""
        return bool(self._done)

    def acknowledge(self, unit: UnitOfWork) -> None:
        """Gather a success."""
        self._done.append(unit)
        self._on_pending()

    def drain(self) -> dict[Owner, list[UnitOfWork]]:
        """Everything gathered, by owner; the caller now has to hand it in, or to `restore` it."""
        gathered: dict[Owner, list[UnitOfWork]] = {}
        pop = self._done.popleft
        units: list[UnitOfWork] = []
        owner = None
        while True:
            try:
                unit = pop()
            except IndexError:
                break
            if unit.owner is not owner:
                owner = unit.owner
                assert owner is not None
                units = gathered.setdefault(owner, [])
            units.append(unit)
        self.flushed_at = monotonic()
        return gathered

    @property
    def is_accepted(self) -> bool:
        """A reply has lately said that Redis accepts acknowledgements, and none was in doubt since."""
        return monotonic() - self._accepted_at < self._trust_seconds

    @property
    def has_plain_pending(self) -> bool:
        """Successes wait to be handed in, and none of them has anything to write."""
        pending = list(self._done)
        return bool(pending) and all(unit.end is None for unit in pending)

    def drain_plain(self) -> "Acknowledgements | None":
        """Everything gathered, to be sent along with something else; None if there is nothing, or an end to write."""
        if not self.has_plain_pending:
            return None
        gathered = self.drain()
        if any(unit.end is not None for units in gathered.values() for unit in units):
            # It came just now.
            self.restore(gathered)
            return None
        return Acknowledgements(self, gathered)

    def restore(self, gathered: dict[Owner, list[UnitOfWork]]) -> None:
        """What was drained could not be handed in: keep it for the next time, so that it can be."""
        self._accepted_at = -math.inf
        for units in gathered.values():
            for unit in units:
                unit.is_sent_again = True
                if unit.end is not None:
                    self._make_sendable(unit)
            self._done.extend(units)

    def take_back(self, gathered: dict[Owner, list[UnitOfWork]]) -> None:
        """As `restore`, where nobody is about to hand in anything else."""
        self.restore(gathered)
        self._on_pending()

    def flush(self) -> None:
        """
        Hand in everything gathered so far. Threads that come meanwhile find their own handed in, too.

        Raises:
            RedisError: Redis is out of reach; everything is kept.
        """
        with self._lock:
            gathered = self.drain()
            try:
                for owner, units in gathered.items():
                    self._acknowledge(owner, units)
            except BaseException as error:
                self.restore(gathered)
                if isinstance(error, ReplyLostError | RedisConnectionError):
                    self._on_trouble()
                raise

    def settle(self, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
        """
        End one job, as often as it takes until Redis has said so; later where it refuses, so that the thread is free.

        Of a job that was acknowledged early and not kept elsewhere, what adds up is written under marks, so that it may
        be sent again after a lost reply, too. Its counters can then count it twice.

        Returns:
            False if the job was not ours any more.

        Raises:
            RedisError: Redis is out of reach and the process leaves; the job stays in flight and will be recovered, but
                for one that was acknowledged early, whose end is lost.
        """
        end = self._end_of(unit, vital, counters)
        tries = 0
        reply_was_lost = False
        while True:
            try:
                was_ours = end()
                break
            except RedisError as error:
                if self._is_given_up:
                    raise
                if tries == 0:
                    _log.warning("could not settle a job, trying again until it works: %s", error)
                reply_was_lost |= isinstance(error, ReplyLostError)
                if isinstance(error, ReplyLostError | RedisConnectionError):
                    self._on_trouble()
                time.sleep(_PAUSE_SECONDS[min(tries, len(_PAUSE_SECONDS) - 1)])
                tries += 1
                if tries == _TRIES_BEFORE_DEFERRING and error.is_lasting:
                    self._defer(unit, end, error)
                    return True
        self._told.clear()
        # After a lost reply "not in flight" most likely means that the first try went through.
        return was_ours or reply_was_lost

    def acknowledge_early(self, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
        """
        Let one job leave Redis before it starts; *vital* is what is kept of it.

        Returns:
            False if it was not ours any more.

        Raises:
            RedisError: It is not known.
        """
        owner = unit.owner
        assert owner is not None
        try:
            return self._end(owner, unit, vital, counters)
        except (ReplyLostError, RedisConnectionError):
            self._on_trouble()
            raise

    def give_up(self) -> None:
        """The process leaves: nothing is tried again any more."""
        self._is_given_up = True

    def close(self) -> None:
        """Let go of the connection."""
        self._deferred.stop()
        with self._lock:
            self._link.close()

    def _end(self, owner: Owner, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
        with self._lock:
            was_ours = settled(self._link, unit, vital, counters)
        owner.units.pop(unit.field, None)
        return was_ours

    def _end_of(self, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> Callable[[], bool]:
        """What ends *unit*, and may be called again."""
        if unit.owner is not None:
            return partial(self._end, unit.owner, unit, vital, counters)
        if unit.kept_by:
            return partial(self._end_kept, unit, vital, counters)
        key = keys.kept(os.urandom(12).hex())
        return partial(self._write, settle_script.repeatable(vital, key), counters)

    def _end_kept(self, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
        with self._lock:
            return in_flight.settle(self._link, unit.kept_by, unit.field, vital=vital, counters=counters)

    def _write(self, vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
        with self._lock:
            settle_script.write(self._link, vital, counters)
        return True

    def _defer(self, unit: UnitOfWork, end: Callable[[], object], refusal: RedisError) -> None:
        """Try *end* aside from now on; of a run of refusals of one kind the log says it once."""
        is_here_to_stay = refusal.is_lasting
        what = str(refusal) if is_here_to_stay else type(refusal).__name__ + getattr(refusal, "code", "")
        if what not in self._told:
            self._told.add(what)
            until = "what Redis refuses is repaired" if is_here_to_stay else "Redis takes writes again"
            if unit.is_acknowledged_early and not unit.kept_by:
                _log.error("the end of a job that runs at most once waits in this process until %s: %s", until, refusal)
            else:
                _log.error("jobs that have ended stay in flight until %s: %s", until, refusal)
        self._deferred.add(end)

    def _acknowledge(self, owner: Owner, units: list[UnitOfWork]) -> None:
        for part in sliced([unit for unit in units if unit.end is not None]):
            ends = Ends(self, part)
            ends.note(self._link, self._link.batch(ends.commands))
        done = [unit for unit in units if unit.end is None]
        if done:
            self.note_done(owner, done, raise_first(self._link.batch(done_commands(owner, done))))

    def _make_sendable(self, unit: UnitOfWork) -> None:
        """
        An end with a word that no command can carry would keep back all that is handed in beside it, again and again:
        its job is kept in `dead` instead.
        """
        # That is no part of the end, and may be what cannot be sent.
        unit.question = None
        try:
            self._link.pack([end_call(unit)])
        except Exception as error:  # noqa: BLE001 — what a job wants written may be anything
            _log.error("the end of a job cannot be sent to Redis, the job is kept in dead: %s; %s", error, unit)
            now = now_seconds()
            unit.end = ([add_to_dead(unit.raw, now)], job_counts.count_commands(utc_day(now), failed=True))

    def note_done(self, owner: Owner, units: Sequence[UnitOfWork], replies: Iterable[int]) -> None:
        """Successes were handed in by `done_commands`, and these are the replies."""
        removed = sum(replies)
        self._accepted_at = monotonic()
        gone = len(units) - removed
        # One that is gone was most likely removed by the first try, whose reply was lost; it is counted now.
        self._count(removed + (min(sum(unit.is_sent_again for unit in units), gone) if gone else 0))
        forget(owner, [unit.field for unit in units])

    def note_count(self, jobs: int) -> None:
        """So many more have succeeded; or fewer, where that is in doubt again."""
        self._count(jobs)

    def note_tallied(self, link: Link, units: Sequence[UnitOfWork], reply: Any) -> None:
        """What became of ends that were handed in as one; where that was refused, each is handed in by itself."""
        owner = units[0].owner
        assert owner is not None
        if isinstance(reply, RedisReplyError) and reply.code == "NOSCRIPT":
            [reply] = link.batch([tallied_call(units, has_script=False)])
        if isinstance(reply, RedisReplyError):
            self.note_ends(link, units, link.batch([end_call(unit) for unit in units]))
        else:
            self._told.clear()
            self.note_done(owner, units, [reply])

    def note_ends(self, link: Link, units: Sequence[UnitOfWork], replies: Sequence[Any]) -> None:
        """
        What became of ends that were handed in.

        Args:
            link: By which; it is free again.
            replies: To the `end_call` of each of *units*.
        """
        for unit, answer in zip(units, replies, strict=True):
            owner, reply = unit.owner, answer
            assert owner is not None
            if isinstance(reply, RedisReplyError):
                reply = self._ended_by_itself(link, owner, unit, reply)
            if reply is not None and not reply:
                _log.info("a job's end was written before, or it was given to somebody else meanwhile: %s", unit)
            if reply is not None:
                self._told.clear()
                owner.units.pop(unit.field, None)

    def _ended_by_itself(self, link: Link, owner: Owner, unit: UnitOfWork, refusal: RedisError) -> bool | None:
        """An end was refused: perhaps its script has to be brought along; None: it is tried until it is accepted."""
        vital, counters = written_with(unit)
        if isinstance(refusal, RedisReplyError) and refusal.code == "NOSCRIPT":
            try:
                return settled(link, unit, vital, counters)
            except RedisError as error:
                refusal = error
        self._defer(unit, partial(self._end, owner, unit, vital, counters), refusal)
        return None


class Acknowledgements:
    """
    Plain successes that are sent along with something else.

    Args:
        settler: Where they were gathered.
        gathered: By owner.

    Attributes:
        commands: What to send.
    """

    __slots__ = ("_is_counted", "_parts", "_settler", "commands")

    def __init__(self, settler: Settler, gathered: Mapping[Owner, list[UnitOfWork]]) -> None:
        self._settler = settler
        self._is_counted = False
        self._parts = [
            (owner, part, done_commands(owner, part)) for owner, units in gathered.items() for part in sliced(units)
        ]
        self.commands = [command for _, _, commands in self._parts for command in commands]

    def note(self, replies: Iterable[Any]) -> bool:
        """They were handed in, and these are the replies. What Redis refuses is tried again; false if it has."""
        rest = iter(replies)
        is_accepted = True
        for owner, units, commands in self._parts:
            answers = list(islice(rest, len(commands)))
            if any(isinstance(answer, RedisReplyError) for answer in answers):
                self._settler.take_back({owner: units})
                is_accepted = False
            else:
                self._settler.note_done(owner, units, answers)
        return is_accepted

    @property
    def may_be_unanswered(self) -> bool:
        """A reply need not say whether Redis accepts them: another one has said so lately."""
        return self._settler.is_accepted

    @property
    def bytes_of_jobs(self) -> int:
        """Nearly all that is to be sent."""
        return sum(len(unit.raw) for _, units, _ in self._parts for unit in units)

    def are_all_of(self, owner: Owner) -> bool:
        """None is of an earlier epoch."""
        return all(one is owner for one, _, _ in self._parts)

    def count(self) -> None:
        """They were sent without a reply, and count from now on: `note_accepted` may come seconds later."""
        self._is_counted = True
        for _, units, _ in self._parts:
            self._settler.note_count(len(units))

    def note_accepted(self) -> None:
        """What was sent behind them was accepted, and so were they."""
        for owner, units, _ in self._parts:
            forget(owner, [unit.field for unit in units])

    def take_back(self) -> None:
        """Nobody knows what became of them."""
        for owner, units, _ in self._parts:
            if self._is_counted:
                self._settler.note_count(-len(units))
            self._settler.take_back({owner: units})


def settled(link: Link, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
    """End a job that this process holds in one atomic step; False if it was not ours any more."""
    owner = unit.owner
    assert owner is not None
    return in_flight.settle(link, owner.name, unit.field, vital=vital, counters=counters, listed=unit.listed)


def end_call(unit: UnitOfWork) -> tuple[Any, ...]:
    """The command that ends a job as its `end` says."""
    owner = unit.owner
    assert owner is not None
    return in_flight.settle_call(owner.name, unit.field, *written_with(unit), unit.listed)


def written_with(unit: UnitOfWork) -> tuple[Sequence[Effect], Sequence[Effect]]:
    """The vital commands of its `end`, and the counters."""
    end = unit.end
    assert end is not None
    if isinstance(end, settle_script.Tally):
        return (end,), job_counts.count_commands(utc_day(now_seconds()), failed=False)
    return end


class Ends:
    """
    Ends to be handed in with others: those that are shares of one verb go as one command.

    Args:
        units: Each with an `end`.
    """

    def __init__(self, settler: Settler, units: Iterable[UnitOfWork]) -> None:
        self._settler = settler
        self._single: list[UnitOfWork] = []
        self._groups: list[list[UnitOfWork]] = []
        found: dict[Any, list[UnitOfWork]] = {}
        # As a rule the next one is of the same batch: its group is found by comparing, not by hashing.
        last: Any = None
        group: list[UnitOfWork] = []
        for unit in units:
            end = unit.end
            if type(end) is settle_script.Tally:
                verb, key, first, _ = end
                share = unit.owner, verb, key, first
                if share != last:
                    last, group = share, found.setdefault(share, [])
                group.append(unit)
            else:
                self._single.append(unit)
        for group in found.values():
            if len(group) == 1:
                self._single += group
            else:
                self._groups += sliced(group)
        self.commands: list[Command] = [end_call(unit) for unit in self._single]
        self.commands += [tallied_call(group) for group in self._groups]

    def note(self, link: Link, replies: Sequence[Any]) -> None:
        """
        Take in the replies.

        Args:
            link: By which they were handed in; it is free again.
        """
        self._settler.note_ends(link, self._single, replies[: len(self._single)])
        for group, reply in zip(self._groups, replies[len(self._single) :], strict=True):
            self._settler.note_tallied(link, group, reply)


def tallied_call(units: Sequence[UnitOfWork], *, has_script: bool = True) -> Command:
    """The command that ends them as one; without *has_script* it brings its script along."""
    owner = units[0].owner
    assert owner is not None
    shares = [(unit.field, unit.raw if unit.is_listed else None, unit.end) for unit in units]
    return in_flight.settle_many_call(owner.name, shares, has_script=has_script)  # type: ignore[arg-type] # see the caller


def done_commands(owner: Owner, units: Sequence[UnitOfWork]) -> Sequence[Command]:
    """The commands that acknowledge successes of an owner."""
    fields = [unit.field for unit in units if not unit.is_listed]
    listed = [(unit.queue, unit.raw) for unit in units if unit.is_listed]
    return in_flight.acknowledge_commands(owner.name, fields, listed)


def sliced(units: list[UnitOfWork]) -> Iterator[list[UnitOfWork]]:
    """At most a thousand at a time."""
    return (units[start : start + _SLICE] for start in range(0, len(units), _SLICE))


def forget(owner: Owner, fields: Sequence[bytes]) -> None:
    """Strike settled jobs off the local table."""
    pop = owner.units.pop
    for field in fields:
        pop(field, None)
