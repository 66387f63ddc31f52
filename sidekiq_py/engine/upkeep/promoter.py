"""
Moves due jobs from `retry` and `schedule` to their queues.

1. Read up to 100 due members, or 4 MB of them.
2. Process each as a push does: parse it, run the client middleware, produce the bytes.
3. Swap them in one script, each only if it is still in the set. So any number of pollers, including Ruby's, may work at
   the same time.

Where Ruby loses some jobs on the way, none is lost here. A member that is not a job goes to `dead`. A job whose
middleware raises, or which Redis refuses, stays in its set and is tried again. Neither stops the jobs behind it,
however many stay: each has a backoff of its own, each pass continues where the last one ended, and jobs that have come
due since are checked first.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sidekiq_py import clock
from sidekiq_py.engine.upkeep.backoff import Backoffs
from sidekiq_py.errors import ArgumentError, PayloadError, RedisError, RedisReplyError
from sidekiq_py.extension import JobEnd
from sidekiq_py.loaded_extensions import LoadedExtensions
from sidekiq_py.logs import job_text, log
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import promote
from sidekiq_py.redis_access.job_path.failed_jobs import DeadLimits
from sidekiq_py.redis_access.job_path.promote import Move, Moved
from sidekiq_py.redis_access.job_path.push import Outgoing
from sidekiq_py.telemetry import PROMOTE, Report
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.payload import parse_job

Repush = Callable[[dict[str, Any]], Outgoing | None]

# A set in which this many jobs stay is no longer read from its start at every check, up to twenty times a second.
MANY_STAYING = 100
# A pass over one set ends after this many staying jobs or this much time, because the other set is waiting.
MOST_STAYING = 1000
PASS_SECONDS = 1.0
REST_SECONDS = 2.0


@dataclass(slots=True)
class _Scan:
    """
    The progress in one set.

    Args:
        skip: How many of the earliest due members stay in the set and have been tried in this round.
        seen_until: Epoch seconds; members that came due later have not been read yet.
        rests_until: Monotonic seconds; until then, only members that came due since are read.
        is_cut: True if the last pass ended before the end of the set.
    """

    set_key: str
    skip: int = 0
    seen_until: float = -math.inf
    rests_until: float = -math.inf
    is_cut: bool = False


class Promoter:
    """
    Args:
        limits: The limits of the dead set.
        pool: Connections to the Redis with the sets.
        repush: Passes a parsed payload through the client middleware. Returns its queue and bytes, with a score if the
            job has to wait longer, or `None` if a middleware stopped it.
        dialect: Returns the Sidekiq release to follow; called each time.
        report: Called with an error and its context.
        extensions: Asked what else to write for jobs that a middleware stops, and for those that go to `dead`.
        now: Returns the seconds since the epoch.
        monotonic: Returns the time in monotonic seconds.

    Attributes:
        moved: The number of jobs moved so far.
        stopped: The number of jobs that a client middleware stopped.
        unusable: The number of members that went to `dead`.
    """

    def __init__(
        self,
        limits: DeadLimits,
        *,
        pool: Pool,
        repush: Repush,
        dialect: Callable[[], Dialect],
        report: Report,
        extensions: LoadedExtensions | None = None,
        now: Callable[[], float] = clock.now_seconds,
        monotonic: Callable[[], float] = clock.monotonic,
    ) -> None:
        self._limits = limits
        self._pool = pool
        self._repush = repush
        self._dialect = dialect
        self._report = report
        self._extensions = LoadedExtensions() if extensions is None else extensions
        self._now = now
        self._monotonic = monotonic
        self._backoffs = Backoffs(report)
        self._scans = [_Scan(set_key) for set_key in promote.WAITING_SETS]
        # The sets that cannot be read, as reported already.
        self._unreadable: set[str] = set()
        self.moved = 0
        self.stopped = 0
        self.unusable = 0

    @property
    def continues_at(self) -> float:
        """When a pass that was cut is to be continued, in monotonic seconds; infinite if none was."""
        return min((scan.rests_until for scan in self._scans if scan.is_cut), default=math.inf)

    def start_over(self) -> None:
        """Nothing is due any more. If a pass was cut, others have moved the rest."""
        for scan in self._scans:
            scan.is_cut, scan.skip = False, 0

    def move_due(self, goes_on: Callable[[], bool] = lambda: True) -> bool:
        """
        Move the due jobs, `retry` before `schedule`. It spends at most a second on each; the next call does the rest.

        Args:
            goes_on: Called before each slice. If it returns False, the pass is cut there.

        Returns:
            False if all of them stay for now.

        Raises:
            RedisError: The server is in trouble. Jobs that were moved stay moved.
        """
        has_moved = False
        for scan in self._scans:
            try:
                if self._monotonic() < scan.rests_until:
                    has_moved |= self._pass(scan, goes_on, after=scan.seen_until)
                else:
                    has_moved |= self._pass(scan, goes_on)
            finally:
                self._backoffs.end_pass(self._monotonic())
        return has_moved

    def _pass(self, scan: _Scan, goes_on: Callable[[], bool], *, after: float | None = None) -> bool:
        """
        Go through the due members of a set, from where the last pass ended; after the end, start over.

        Args:
            after: If given, read only members that came due since then, epoch seconds.

        Returns:
            True if any left the set, whoever moved it.
        """
        now, has_moved = self._now(), False
        skip = start = scan.skip if after is None else 0
        scan.is_cut = True
        until = self._monotonic() + PASS_SECONDS
        while scan.is_cut and skip - start < MOST_STAYING and self._monotonic() <= until and goes_on():
            members, is_more = self._due_members(scan.set_key, now, after, skip)
            looked_at, staying, taken = self._move_slice(scan.set_key, members, until)
            skip += staying
            has_moved |= staying < looked_at
            scan.is_cut = is_more or looked_at < len(members)
            if taken and taken == looked_at and not skip and after is None:
                # Another poller is at it, and mostly first at the next slice, too. When all went on, five processes
                # sent Redis three times the calls of one for the same jobs, and took longer.
                scan.is_cut = False
        scan.seen_until = now
        if after is None:
            scan.skip = skip if scan.is_cut else 0
            if skip - start >= MANY_STAYING:
                scan.rests_until = self._monotonic() + REST_SECONDS
        return has_moved

    # One slice

    def _due_members(self, set_key: str, now: float, after: float | None, skip: int) -> tuple[list[bytes], bool]:
        """
        Return the due members, and whether there are more. A set that cannot be read yields none, so that the other one
        is still served.
        """
        try:
            due = promote.due_members(self._pool, set_key, now, after=after, skip=skip)
        except RedisReplyError as error:
            if error.is_about_server:
                raise
            if set_key not in self._unreadable:
                self._unreadable.add(set_key)
                self._report(error, {"context": _why_unreadable(set_key, error)})
            return [], False
        self._unreadable.discard(set_key)
        return due

    def _move_slice(self, set_key: str, members: list[bytes], until: float) -> tuple[int, int, int]:
        """
        Move the members that can be moved.

        Args:
            until: Monotonic seconds. No further member is tried after that, because a middleware may be slow.

        Returns:
            How many members were tried, how many of these stay in the set, and how many others had taken meanwhile.
        """
        refusals: dict[bytes, BaseException] = {}
        moves: list[Move] = []
        looked_at = 0
        for member in members:
            if looked_at and self._monotonic() > until:
                break
            looked_at += 1
            step = self._plan(set_key, member, refusals)
            if step is not None:
                moves.append(step)
        before = self.moved, self.stopped, self.unusable
        moved = promote.move(self._pool, set_key, moves, now=self._now(), limits=self._limits)
        for result in moved:
            self._note(set_key, result, refusals)
        if PROMOTE.handlers and before != (self.moved, self.stopped, self.unusable):
            PROMOTE.emit(
                {
                    "set": set_key,
                    "moved": self.moved - before[0],
                    "stopped": self.stopped - before[1],
                    "unusable": self.unusable - before[2],
                }
            )
        staying = looked_at - sum(result.refusal is None for result in moved)
        return looked_at, staying, sum(result.refusal is None and not result.done for result in moved)

    def _plan(self, set_key: str, member: bytes, refusals: dict[bytes, BaseException]) -> Move | None:
        """Decide where a member goes. Returns `None` if it stays for now."""
        if self._backoffs.must_wait(member, self._monotonic()):
            return None
        payload: dict[str, Any] = {}
        try:
            payload = parse_job(member)
            # The middleware gets a copy, so that `payload` stays as it was stored.
            pushed = self._repush(dict(payload))
            if pushed is None:
                end = JobEnd("stopped", payload, member, "", self._now(), self._dialect())
                return Move(member, "nowhere", effects=self._extensions.end_effects(end))
        except (PayloadError, ArgumentError) as error:
            refusals[member] = error
            now = self._now()
            end = JobEnd("dead", payload, member, "", now, self._dialect(), error, member=member, score=now)
            return Move(member, "dead", effects=self._extensions.effects_of_dead(end, self._report))
        # A middleware that raises must cost neither the job nor the thread.
        except BaseException as error:
            if isinstance(error, RedisError) and error.is_about_server:
                raise
            self._hold_back(member, error, f"Client middleware raised; the job stays in {set_key} and is tried again")
            return None
        return promote.move_to(member, pushed.queue, pushed.payload, pushed.score)

    def _note(self, set_key: str, result: Moved, refusals: dict[bytes, BaseException]) -> None:
        member = result.move.member
        if result.refusal is not None:
            self._hold_back(member, result.refusal, f"Redis refused a job, which stays in {set_key} and is tried again")
            return
        self._backoffs.forget(member)
        if not result.done:
            return
        if result.move.target in ("queue", "schedule"):
            self.moved += 1
            if log.isEnabledFor(logging.DEBUG):
                log.debug("enqueued %s: %s", set_key, job_text(member))
        elif result.move.target == "nowhere":
            self.stopped += 1
            log.info("client middleware stopped a job that was due in %s: %s", set_key, job_text(member))
        else:
            self.unusable += 1
            context = {"context": f"A member of {set_key} is not a usable job; it goes to dead", "jobstr": member}
            self._report(refusals[member], context)

    def _hold_back(self, member: bytes, error: BaseException, context: str) -> None:
        self._backoffs.add(member, error, context, self._monotonic())


def _why_unreadable(set_key: str, error: RedisReplyError) -> str:
    if error.code == "WRONGTYPE":
        return f"{set_key} is not a sorted set: something else wrote to this key. Rename or delete it"
    return f"{set_key} cannot be read, so its due jobs stay there. Redis users and their rights: docs/redis.md"
