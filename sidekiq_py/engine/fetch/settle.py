"""
Settles each job in one atomic step.

Successes are collected and acknowledged together: with the next fetch, at once after a slow job, or otherwise within
milliseconds. This process counts them and writes the count every few seconds (`ProcessedCount`). Any other end is a
script of its own, which acknowledges the job and writes its retry or dead entry and the counters. All of it may be sent
again after a lost reply, because a job that is no longer in flight is not settled twice. If Redis keeps refusing an end
for a lasting reason, the end is deferred (`deferred.py`) and the thread goes on.
"""

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.fetch.deferred import Deferred
from sidekiq_py.engine.ownership.owner import Owner, UnitOfWork, forget
from sidekiq_py.errors import RedisConnectionError, RedisError, RedisReplyError, ReplyLostError, rights_hint
from sidekiq_py.logs import log
from sidekiq_py.redis_access.connection.link import Command, Link
from sidekiq_py.redis_access.connection.replies import well_typed
from sidekiq_py.redis_access.connection.scripts import is_unknown
from sidekiq_py.redis_access.connection.slices import slices_of
from sidekiq_py.redis_access.job_path import in_flight, job_counts, settle_script
from sidekiq_py.redis_access.job_path.failed_jobs import add_to_dead
from sidekiq_py.redis_access.job_path.settle_script import Effect
from sidekiq_py.wire import keys

_PAUSE_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
_TRIES_BEFORE_DEFERRING = 3
_MAY_BE_LOST = "a job that runs at most once may be lost: the connection broke just before it started: %s"
_SLICE = 1000


class Settler:
    """
    Collects the ends of one capsule's jobs and sends them to Redis.

    Args:
        link: A connection that only this object uses.
        on_pending: Called when a success has to be sent again.
        on_lost_connection: Called after a connection was lost while a job was settled by itself. Other calls raise the
            error.
        count: Called with the number of jobs that have succeeded. A negative number takes back jobs that are in doubt
            again.
        downtime: The process's record of outages.
        trust_seconds: How long one reply counts as proof that Redis accepts acknowledgements. Jobs whose unanswered
            acknowledgement is refused run again.
    """

    def __init__(
        self,
        link: Link,
        *,
        on_pending: Callable[[], None],
        on_lost_connection: Callable[[], None],
        count: Callable[[int], None],
        downtime: Downtime,
        trust_seconds: float = 1.0,
    ) -> None:
        self._link = link
        self._trust_seconds = trust_seconds
        self._lock = threading.Lock()
        self._done: deque[UnitOfWork] = deque()
        self._on_pending = on_pending
        self._on_lost_connection = on_lost_connection
        self.count = count
        self._is_given_up = False
        # The last flush was refused for a reason that does not pass by itself, such as a right that this user lacks.
        self._is_refused_for_good = False
        self._deferred = Deferred(lambda: self._is_given_up)
        self._downtime = downtime
        self.flushed_at = monotonic()
        # When a reply last showed that Redis accepts acknowledgements.
        self._accepted_at = -math.inf

    @property
    def has_pending(self) -> bool:
        """True while successes are waiting to be sent."""
        return bool(self._done)

    @property
    def is_waiting_for_redis(self) -> bool:
        """True while the end of a job is not written and Redis may accept it before long."""
        # While the lock is held, ends are on their way and in none of the two.
        is_accepted_soon = bool(self._done) and not self._is_refused_for_good
        return is_accepted_soon or self._lock.locked() or self._deferred.is_waiting_for_redis

    def acknowledge(self, unit: UnitOfWork) -> None:
        """Collect a success. The caller sees to it that it is sent."""
        self._done.append(unit)

    def drain(self) -> dict[Owner, list[UnitOfWork]]:
        """Remove and return all collected successes by owner. The caller has to send or `restore` them."""
        drained: dict[Owner, list[UnitOfWork]] = {}
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
                units = drained.setdefault(owner, [])
            units.append(unit)
        self.flushed_at = monotonic()
        return drained

    @property
    def is_accepted(self) -> bool:
        """True if a recent reply showed that Redis accepts acknowledgements, and none has been in doubt since."""
        return monotonic() - self._accepted_at < self._trust_seconds

    @property
    def has_ends_to_write(self) -> bool:
        """True while successes are waiting to be sent and one of them has something to write."""
        for unit in list(self._done):  # noqa: SIM110 — each step of a chain asks, and a generator would cost it 0.5 µs
            if unit.end is not None:
                return True
        return False

    def drain_plain(self) -> "Acknowledgements | None":
        """
        Drain the collected successes, so that they can travel with another command. Returns None if there are none, or
        if one has something to write.
        """
        if not self._done or self.has_ends_to_write:
            return None
        drained = self.drain()
        if any(unit.end is not None for units in drained.values() for unit in units):
            # It was added after the check.
            self.restore(drained)
            return None
        return Acknowledgements(self, drained)

    def restore(self, drained: dict[Owner, list[UnitOfWork]]) -> None:
        """Put drained successes back after they could not be sent, in a form that can be sent the next time."""
        self._accepted_at = -math.inf
        for units in drained.values():
            for unit in units:
                unit.is_sent_again = True
                if unit.end is not None:
                    self._make_sendable(unit)
            self._done.extend(units)

    def take_back(self, drained: dict[Owner, list[UnitOfWork]]) -> None:
        """Restore successes and announce them, for callers that will not send anything else soon."""
        self.restore(drained)
        self._on_pending()

    def flush(self) -> None:
        """
        Send everything collected so far. A thread that waits for another thread's flush finds its own ends sent as
        well.

        Raises:
            RedisError: Redis is unreachable. Everything is kept.
        """
        with self._lock:
            drained = self.drain()
            try:
                for owner, units in tuple(drained.items()):
                    self._acknowledge(owner, units)
                    del drained[owner]
                self._is_refused_for_good = False
            except BaseException as error:
                self._is_refused_for_good = isinstance(error, RedisError) and error.is_lasting
                self.restore(drained)
                raise

    def settle(self, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
        """
        Settle one job, and try again until Redis confirms it. If Redis keeps refusing, the end is deferred so that the
        thread is free.

        If the job was acknowledged early and its bytes are not kept elsewhere, commands that are not idempotent are
        guarded by markers, so that they, too, can be sent again after a lost reply. Its counters may then count it
        twice.

        Returns:
            False if the job was no longer ours.

        Raises:
            RedisError: Redis is unreachable and the process is exiting. The job stays in flight and will be recovered.
                If it was acknowledged early, its end is lost.
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
                    log.warning("could not settle a job, trying again until it works: %s", error)
                reply_was_lost |= isinstance(error, ReplyLostError)
                self._pause_after(error, tries)
                tries += 1
                if tries >= _TRIES_BEFORE_DEFERRING and error.is_lasting and self._defer(unit, end, error):
                    return True
        # After a lost reply, "not in flight" most likely means that the first attempt went through.
        return was_ours or reply_was_lost

    def settle_once(self, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
        """
        Settle one job that is in flight, without another try.

        Returns:
            False if the job was no longer ours.

        Raises:
            RedisError: It is unknown whether the job was settled.
        """
        with self._lock:
            was_ours = settled(self._link, unit, vital, counters)
        forget([unit])
        return was_ours

    def settle_early(self, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
        """
        Settle a job that is about to start and runs at most once. After a lost reply, ask until it is known whether the
        job has left Redis: if it has, nothing else would run it.

        Returns:
            False if the job was no longer ours.

        Raises:
            RedisError: The job was not settled, or the process is exiting and it is unknown.
        """
        owner = unit.holder
        tries = 0
        while True:
            try:
                # Only a recovery takes a job from its owner, and it removes the owner first.
                if self.settle_once(unit, vital, counters) or (tries > 0 and self._is_entered(owner)):
                    return True
                if tries > 0:
                    log.warning(_MAY_BE_LOST, unit)
                return False
            except RedisError as error:
                if tries == 0 and not isinstance(error, ReplyLostError):
                    raise
                if self._is_given_up:
                    log.warning(_MAY_BE_LOST, unit)
                    raise
                self._pause_after(error, tries)
                tries += 1

    def _pause_after(self, error: RedisError, tries: int) -> None:
        if isinstance(error, ReplyLostError | RedisConnectionError):
            self._on_lost_connection()
        time.sleep(_PAUSE_SECONDS[min(tries, len(_PAUSE_SECONDS) - 1)])

    def _is_entered(self, owner: Owner) -> bool:
        with self._lock:
            return in_flight.is_entered(self._link, owner.name)

    def give_up(self) -> None:
        """Stop retrying, because the process is exiting."""
        self._is_given_up = True

    def close(self) -> None:
        """Close the connection."""
        self._deferred.stop()
        with self._lock:
            self._link.close()

    def _end_of(self, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> Callable[[], bool]:
        """Return a function that settles *unit* and can safely be called again."""
        if unit.owner is not None:
            return partial(self.settle_once, unit, vital, counters)
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

    def _defer(self, unit: UnitOfWork, end: Callable[[], object], refusal: RedisError) -> bool:
        """
        Retry *end* in the background from now on. A series of refusals of the same kind is logged once in a process.

        Returns:
            False if the system allows no more threads: the caller has to retry it.
        """
        is_here_to_stay = refusal.is_lasting
        what = str(refusal) if is_here_to_stay else type(refusal).__name__ + getattr(refusal, "code", "")
        if self._downtime.refused(what):
            until = "this error is fixed" if is_here_to_stay else "Redis accepts writes again"
            stays = "finished jobs stay in flight"
            if unit.is_acknowledged_early and not unit.kept_by:
                stays = "the result of a job that runs at most once stays in this process"
            log.error("%s until %s: %s%s", stays, until, refusal, rights_hint(refusal))

        def end_again() -> None:
            try:
                end()
            except RedisError:
                # The series goes on, even if no other job ends meanwhile.
                self._downtime.refused(what)
                raise

        return self._deferred.add(end_again, refusal)

    def _acknowledge(self, owner: Owner, units: list[UnitOfWork]) -> None:
        for part in slices_of([unit for unit in units if unit.end is not None], _SLICE):
            ends = Ends(self, part)
            ends.note(self._link, self._link.batch(ends.commands))
        done = [unit for unit in units if unit.end is None]
        if done:
            self.note_done(done, well_typed(self._link.batch(done_commands(owner, done))))

    def _make_sendable(self, unit: UnitOfWork) -> None:
        """
        Make sure that the end of *unit* can be sent at all. A value that no command can carry would block all ends that
        are sent with it, again and again. Such a job goes to `dead` instead.
        """
        # The question is not part of the end, and may be what cannot be sent.
        unit.question = None
        try:
            self._link.pack([end_call(unit)])
        except Exception as error:  # noqa: BLE001 — what a job wants written may be anything
            log.error("the result of a job cannot be sent to Redis; the job goes to the dead set: %s; %s", error, unit)
            now = now_seconds()
            unit.end = ([add_to_dead(unit.raw, now)], job_counts.count_commands(now, failed=True))

    def note_done(self, units: Sequence[UnitOfWork], replies: Iterable[int | None]) -> None:
        """
        Process the replies to `done_commands`: None for a key that another program has overwritten. That has taken the
        jobs in it out of flight.
        """
        removed = sum(reply or 0 for reply in replies)
        self._accepted_at = monotonic()
        self._is_refused_for_good = False
        gone = len(units) - removed
        # A resent job that is gone was most likely removed by the first attempt, whose reply was lost. It counts now.
        self.count(removed + (min(sum(unit.is_sent_again for unit in units), gone) if gone else 0))
        forget(units)

    def note_tallied(self, link: Link, units: Sequence[UnitOfWork], reply: Any) -> None:
        """Process the reply to ends that were sent as one command. If it was refused, each end is sent by itself."""
        if is_unknown(reply):
            [reply] = link.batch([tallied_call(units, has_script=False)])
        if isinstance(reply, RedisReplyError):
            self.note_ends(link, units, link.batch([end_call(unit) for unit in units]))
        else:
            self.note_done(units, [reply])

    def note_ends(self, link: Link, units: Sequence[UnitOfWork], replies: Sequence[Any]) -> None:
        """
        Process the replies to ends.

        Args:
            link: The connection that carried the ends; it is free again.
            replies: The reply to the `end_call` of each of *units*.
        """
        for unit, reply in zip(units, replies, strict=True):
            is_refused = isinstance(reply, RedisReplyError)
            was_ours = self._ended_by_itself(link, unit, reply) if is_refused else bool(reply)
            if was_ours is None:
                continue
            if not was_ours:
                log.info("a job was already settled, or is no longer ours: %s", unit)
            forget([unit])

    def _ended_by_itself(self, link: Link, unit: UnitOfWork, refusal: RedisError) -> bool | None:
        """
        Send a refused end by itself, with its script if Redis does not know it. Returns None if the end was deferred.

        Raises:
            RedisError: It was refused and cannot be deferred; all ends are sent again.
        """
        vital, counters = written_with(unit)
        if is_unknown(refusal) or _is_about_type(refusal):
            try:
                return settled(link, unit, vital, counters)
            except RedisError as error:
                refusal = error
        if not self._defer(unit, partial(self.settle_once, unit, vital, counters), refusal):
            raise refusal
        return None


class Acknowledgements:
    """
    Acknowledgements of plain successes that travel with other commands.

    Args:
        settler: The settler that collected the successes.
        drained: The successes by owner.

    Attributes:
        commands: The commands to send.
    """

    __slots__ = ("_is_counted", "_parts", "_settler", "commands")

    def __init__(self, settler: Settler, drained: Mapping[Owner, list[UnitOfWork]]) -> None:
        self._settler = settler
        self._is_counted = False
        self._parts = [
            (owner, part, done_commands(owner, part))
            for owner, units in drained.items()
            for part in slices_of(units, _SLICE)
        ]
        self.commands = [command for _, _, commands in self._parts for command in commands]

    def note(self, replies: Iterable[Any]) -> bool:
        """Process the replies. Acknowledgements that Redis refused are tried again; returns False if there were any."""
        rest = iter(replies)
        is_accepted = True
        for owner, units, commands in self._parts:
            answers = list(islice(rest, len(commands)))
            try:
                removed = well_typed(answers)
            except RedisReplyError:
                self._settler.take_back({owner: units})
                is_accepted = False
            else:
                self._settler.note_done(units, removed)
        return is_accepted

    @property
    def may_be_unanswered(self) -> bool:
        """True if they can do without a reply, because a recent one has shown that Redis accepts acknowledgements."""
        return self._settler.is_accepted

    @property
    def bytes_of_jobs(self) -> int:
        """The total length of the jobs, which is nearly all that is sent."""
        return sum(len(unit.raw) for _, units, _ in self._parts for unit in units)

    def are_all_of(self, owner: Owner) -> bool:
        """True if all of them belong to *owner* and none to an earlier epoch."""
        return all(one is owner for one, _, _ in self._parts)

    def count(self) -> None:
        """Count the jobs after sending them without a reply: `note_accepted` may come seconds later."""
        self._is_counted = True
        for _, units, _ in self._parts:
            self._settler.count(len(units))

    def note_accepted(self) -> None:
        """Drop the jobs: the command behind them was accepted, and so were they."""
        for _, units, _ in self._parts:
            forget(units)

    def take_back(self) -> None:
        """Return the successes to the settler, because it is unknown whether they were accepted."""
        for owner, units, _ in self._parts:
            if self._is_counted:
                self._settler.count(-len(units))
            self._settler.take_back({owner: units})


def settled(link: Link, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
    """
    Settle a job that this process holds, in one atomic step. Returns False if it was no longer ours.

    If another program has overwritten the key that held it, no process can recover it. Its end is written all the same:
    once the key is deleted, the job would seem to be settled, and its retry would be lost.
    """
    name = unit.holder.name
    if not unit.unheld_token:
        try:
            return in_flight.settle(link, name, unit.field, vital=vital, counters=counters, listed=unit.listed)
        except RedisReplyError as refusal:
            if not (_is_about_type(refusal) and in_flight.is_overwritten(link, name, unit.field, unit.listed)):
                raise
        unit.unheld_token = os.urandom(12).hex()
    settle_script.write(link, settle_script.repeatable(vital, keys.kept(unit.unheld_token)), counters)
    return True


def _is_about_type(refusal: RedisError) -> bool:
    # Before Redis 7, the code of an error in a script is ERR.
    return "WRONGTYPE" in str(refusal)


def end_call(unit: UnitOfWork) -> tuple[Any, ...]:
    """Return the command that settles a job as its `end` says."""
    return in_flight.settle_call(unit.holder.name, unit.field, *written_with(unit), unit.listed)


def written_with(unit: UnitOfWork) -> tuple[Sequence[Effect], Sequence[Effect]]:
    """Return the vital commands of a job's `end`, and its counters."""
    end = unit.end
    assert end is not None
    if isinstance(end, settle_script.Tally):
        return (end,), job_counts.count_commands(now_seconds(), failed=False)
    return end


class Ends:
    """
    The ends of several jobs as commands. Ends that are shares of the same verb (`Tally`) go into one command.

    Args:
        units: Jobs that have an `end`.
    """

    def __init__(self, settler: Settler, units: Iterable[UnitOfWork]) -> None:
        self._settler = settler
        self._single: list[UnitOfWork] = []
        self._groups: list[list[UnitOfWork]] = []
        found: dict[Any, list[UnitOfWork]] = {}
        # The next job usually belongs to the same group, which a comparison finds without hashing.
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
                self._groups += slices_of(group, _SLICE)
        self.commands: list[Command] = [end_call(unit) for unit in self._single]
        self.commands += [tallied_call(group) for group in self._groups]

    def note(self, link: Link, replies: Sequence[Any]) -> None:
        """
        Process the replies.

        Args:
            link: The connection that carried the ends; it is free again.
        """
        self._settler.note_ends(link, self._single, replies[: len(self._single)])
        for group, reply in zip(self._groups, replies[len(self._single) :], strict=True):
            self._settler.note_tallied(link, group, reply)


def tallied_call(units: Sequence[UnitOfWork], *, has_script: bool = True) -> Command:
    """Return the command that settles all of *units*. Without *has_script* it carries its script."""
    name = units[0].holder.name
    shares = [(unit.field, unit.raw if unit.is_listed else None, unit.end) for unit in units]
    return in_flight.settle_many_call(name, shares, has_script=has_script)  # type: ignore[arg-type] # see the caller


def done_commands(owner: Owner, units: Sequence[UnitOfWork]) -> Sequence[Command]:
    """Return the commands that acknowledge an owner's successes."""
    fields = [unit.field for unit in units if not unit.is_listed]
    listed = [(unit.queue, unit.raw) for unit in units if unit.is_listed]
    return in_flight.acknowledge_commands(owner.name, fields, listed)
