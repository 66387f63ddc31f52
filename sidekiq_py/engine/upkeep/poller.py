"""
Moves due jobs from `retry` and `schedule` to their queues.

1. Read up to 100 due members, or 4 MB of them.
2. Make of each what a push makes of it: parse, client middleware, bytes.
3. Swap them in one script, each only if it is still in the set. So any number of pollers, Ruby's too, may work at once.

One process holds the lease `sidekiq_py:poller`. It looks every 100 ms whether anything comes due before the next look,
and every 50 ms while something does. So a job that waits for longer than that is moved on time and any other within
100 ms. While nothing comes due within two seconds, it looks every two seconds, and when Redis says that a set has
changed (`due_watch`); where Redis cannot say that, every 100 ms all the same. A Redis with nothing else to do wakes up
for each look, which costs it 0.1 ms: looks every 100 ms were all that two idle processes cost it more than Ruby's. The
others keep Sidekiq's interval, which grows with the number of processes, and so do their tries for the lease: all of
them together try twice a second at most.

No job is lost on the way, where Ruby loses some: a member that is no job goes to `dead`, one whose middleware raises or
that Redis refuses stays where it is and is tried again, and neither stops those behind it. However many stay: each has
a back-off of its own, a look goes on where the last one ended, and what comes due meanwhile is looked at first.
"""

import logging
import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sidekiq_py import clock
from sidekiq_py.config import Config
from sidekiq_py.engine.background import background_thread
from sidekiq_py.engine.downtime import Outage, Report
from sidekiq_py.engine.pulse import Pulse
from sidekiq_py.engine.upkeep.backoff import Backoffs
from sidekiq_py.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    PayloadError,
    RedisError,
    RedisReplyError,
)
from sidekiq_py.extension import JobEnd
from sidekiq_py.loaded_extensions import LoadedExtensions
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import promote
from sidekiq_py.redis_access.job_path.due_watch import DueWatch
from sidekiq_py.redis_access.job_path.failed_jobs import DeadLimits
from sidekiq_py.redis_access.job_path.promote import Move, Moved
from sidekiq_py.redis_access.job_path.push import Outgoing
from sidekiq_py.redis_access.job_path.settle_script import Effect
from sidekiq_py.redis_access.processes import process_set
from sidekiq_py.telemetry import PROMOTE
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.payload import parse_job

Repush = Callable[[dict[str, Any]], Outgoing | None]

LEASE_SECONDS = 3.0
LEASE_TRY_SECONDS = 2.0
# Tries of all processes together. With one of each process every two seconds, those of 20 were a fifth of what Redis
# did at rest.
MOST_LEASE_TRIES_PER_SECOND = 2
# Where the lease lapsed and few of many processes are ours, Sidekiq's own interval has passed by then.
LONGEST_LEASE_TRY_SECONDS = 30.0
INITIAL_WAIT_SECONDS = 10
# From so many processes on, their draws spread evenly by themselves.
MANY_PROCESSES = 10
# With so many jobs that stay in a set, it is not read from its start at every look, twenty times a second.
MANY_STAYING = 100
# A pass over one set ends after so many jobs that stay, or so long: the other set has waited meanwhile.
MOST_STAYING = 1000
PASS_SECONDS = 1.0
# The quick poller looks so many times more rarely while nothing comes due before the next look.
LOOK_AHEAD = 2
REST_SECONDS = 2.0
# Longer than from one renewal of the lease to the next: of these it hears where it hears of changes.
QUIET_SECONDS = 2.0

_log = logging.getLogger("sidekiq")


@dataclass(slots=True)
class _Scan:
    """
    How far the poller has come in one set.

    Args:
        skip: How many due members, the earliest, stay where they are and have had their turn in this round.
        seen_until: Epoch s; what came due later was not looked at yet.
        rests_until: Monotonic s; until then only what came due since is looked at.
        is_cut: The last pass ended before its set did.
    """

    set_key: str
    skip: int = 0
    seen_until: float = -math.inf
    rests_until: float = -math.inf
    is_cut: bool = False


def initial_wait_seconds(config: Config, draw: float) -> float:
    """
    How long a process without the lease waits before its first look.

    Args:
        draw: From [0, 1).

    Source: Sidekiq 4.2 to 8.1.7, scheduled.rb, `initial_wait`.
    """
    return (0 if config.poll_interval_average_seconds else INITIAL_WAIT_SECONDS) + 5 * draw


def poll_interval_seconds(process_count: int, draw: float, *, config: Config, dialect: Dialect) -> float:
    """
    How long a process without the lease waits before its next look. Ruby up to 6.5.3 computed the average once for a
    process's life; here it follows the number of processes.

    Args:
        process_count: Of all processes on this Redis, Ruby's too.
        draw: From [0, 1).

    Source: Sidekiq 6.4.1 and 8.1.7, scheduled.rb, `random_poll_interval`.
    """
    average = config.poll_interval_average_seconds or process_count * config.average_scheduled_poll_seconds
    if process_count < MANY_PROCESSES:
        return average * draw + average / 2
    return average * draw * (2 if dialect.doubles_large_poll_interval else 1)


class Poller:
    """
    A thread that moves due jobs. Starting does not block; stopping twice, or before a start, is fine.

    Args:
        config: The intervals and the limits of the dead set.
        pool: To the Redis whose sets are watched.
        identity: Of this process, for the lease.
        repush: A parsed payload to its queue and bytes through the client middleware, with a score if it is to wait
            longer; `None` if that stopped it.
        dialect: The release to follow, asked each time.
        report: Takes an error and its context.
        extensions: Told of jobs that a middleware stops, and of those that go to `dead`.
        now: Seconds since the epoch.
        monotonic: Seconds that never go back.
        draw: From [0, 1).

    Attributes:
        pulse: Of the thread.
    """

    def __init__(
        self,
        config: Config,
        *,
        pool: Pool,
        identity: str,
        repush: Repush,
        dialect: Callable[[], Dialect],
        report: Report,
        extensions: LoadedExtensions | None = None,
        now: Callable[[], float] = clock.now_seconds,
        monotonic: Callable[[], float] = clock.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._config = config
        self._pool = pool
        self._identity = identity
        self._repush = repush
        self._dialect = dialect
        self._report = report
        self._extensions = LoadedExtensions() if extensions is None else extensions
        self._now = now
        self._monotonic = monotonic
        self._draw = draw
        self._limits = DeadLimits(config.dead_max_jobs, config.dead_timeout_seconds)
        self._end = clock.Wakeable()
        self._watch = DueWatch(pool)
        # Nothing comes due soon, and a change would be heard.
        self._is_at_rest = False
        self.pulse = Pulse()
        self._thread: threading.Thread | None = None
        self._backoffs = Backoffs(report)
        self._scans = [_Scan(set_key) for set_key in promote.WAITING_SETS]
        self._outage = Outage(report, "Error moving due jobs")
        # The sets that cannot be read, once that was reported.
        self._unreadable: set[str] = set()
        self._lease_at = self._look_at = self._looked_at = self._clean_at = 0.0
        # Of the fleet, when it was asked for the lease.
        self._processes = 1
        self.is_quick = False
        self.moved = 0
        self.stopped = 0
        self.unusable = 0

    def __repr__(self) -> str:
        pace = "quick" if self.is_quick else "slow"
        return f"<Poller {pace} moved={self.moved} stopped={self.stopped} unusable={self.unusable}>"

    def start(self) -> None:
        """Start the thread; it goes for the lease at once, and without it waits as Sidekiq does."""
        if self._thread is None:
            self._begin()
            self._thread = background_thread("sidekiq.poller", self._run)
            self._thread.start()

    def terminate(self) -> None:
        """Ask it to end after the slice at hand; returns at once."""
        self._end.wake()
        self._watch.abandon()

    def stop(self) -> None:
        """End it, and give the lease up, so that another process goes on; a Redis that hangs is not waited for."""
        self.terminate()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=self._pool.join_seconds)

    def move_due(self) -> None:
        """
        Move what is due, `retry` before `schedule`. A second in each at most: what is left comes with the next call.

        Raises:
            RedisError: The server is in trouble; what was moved stays moved.
        """
        for scan in self._scans:
            try:
                if self._monotonic() < scan.rests_until:
                    self._pass(scan, after=scan.seen_until)
                else:
                    self._pass(scan)
            finally:
                self._backoffs.end_pass()

    def _pass(self, scan: _Scan, *, after: float | None = None) -> None:
        """
        Go through what is due in a set: on from where the last pass ended, then from the start again.

        Args:
            after: Only what came due since, epoch s.
        """
        now = self._now()
        skip = start = scan.skip if after is None else 0
        scan.is_cut = True
        until = self._monotonic() + PASS_SECONDS
        while scan.is_cut and not self._end.wait(0) and skip - start < MOST_STAYING and self._monotonic() <= until:
            self._keep_lease()
            members, is_more = self._due_members(scan.set_key, now, after, skip)
            looked_at, staying = self._move_slice(scan.set_key, members, until)
            skip += staying
            scan.is_cut = is_more or looked_at < len(members)
        scan.seen_until = now
        if after is None:
            scan.skip = skip if scan.is_cut else 0
            if skip - start >= MANY_STAYING:
                scan.rests_until = self._monotonic() + REST_SECONDS

    # The thread

    def _begin(self) -> None:
        began = self._monotonic()
        self._lease_at = began
        self._look_at = self._clean_at = began + initial_wait_seconds(self._config, self._draw())

    def _run(self) -> None:
        pause = 0.0
        while not self._waited(self.pulse.waits(pause)):
            pause = self._turn()
        self._watch.close()
        self._leave()

    def _waited(self, seconds: float) -> bool:
        """Wait until the next turn; True if it is time to end."""
        if not self._is_at_rest:
            return self._end.wait(seconds)
        if not self._end.wait(0) and self._watch.wait(seconds):
            # Once for all that changes until then.
            self._look_at = min(self._look_at, self._looked_at + self._config.poll_seconds * LOOK_AHEAD)
            self._is_at_rest = False
            return self._end.wait(max(0.0, min(self._look_at, self._lease_at) - self._monotonic()))
        return self._end.wait(0)

    def _turn(self) -> float:
        """Do what is due; returns the seconds until the next turn."""
        try:
            self._keep_lease()
            self._look()
            self._clean()
        except Exception as error:  # noqa: BLE001 - the thread must outlive whatever fails in it
            # What this process believes about the lease is as old as the connection.
            self.is_quick = self._is_at_rest = False
            self._lease_at = self._monotonic()
            return self._outage.failed(error)
        self._outage.over()
        return max(0.0, min(self._lease_at, self._look_at, self._clean_at) - self._monotonic())

    def _keep_lease(self) -> None:
        at = self._monotonic()
        if at < self._lease_at or self._thread is None:
            return
        was_quick = self.is_quick
        self.is_quick = self._holds_lease()
        # A third leaves room for two attempts that fail before another process takes over.
        self._lease_at = at + (LEASE_SECONDS / 3 if self.is_quick else self._lease_try_seconds())
        if self.is_quick and not was_quick:
            self._look_at = at
        elif was_quick and not self.is_quick:
            self._watch.close()
            self._is_at_rest = False
            self._look_at = at + self._interval()

    def _look(self) -> None:
        if self._monotonic() < self._look_at:
            return
        pause = self._config.poll_seconds
        if not self.is_quick:
            self.move_due()
            pause = self._interval()
        else:
            # Unless it is heard of, a job may be scheduled for sooner than the next look.
            ahead_seconds = pause * LOOK_AHEAD
            (is_due, comes_soon, comes), is_heard = self._watch.look(self._now(), (0.0, ahead_seconds, QUIET_SECONDS))
            self._is_at_rest = is_heard and not comes
            if is_due:
                self.move_due()
            elif not comes_soon:
                pause = QUIET_SECONDS if self._is_at_rest else ahead_seconds
        at = self._looked_at = self._monotonic()
        for scan in self._scans:
            if scan.is_cut:
                pause = min(pause, max(0.0, scan.rests_until - at))
        self._look_at = at + pause

    def _interval(self) -> float:
        count = max(1, process_set.count(self._pool))
        return poll_interval_seconds(count, self._draw(), config=self._config, dialect=self._dialect())

    def _holds_lease(self) -> bool:
        """Take it or renew it; False if another process has it."""
        if not self.is_quick:
            holder, self._processes = promote.look_at_poller(self._pool)
            if holder not in (None, self._identity.encode()):
                return False
        return promote.hold_poller(self._pool, self._identity, int(LEASE_SECONDS * 1000))

    def _lease_try_seconds(self) -> float:
        """Drawn, so that the tries of processes that were started together spread."""
        average = max(LEASE_TRY_SECONDS, self._processes / MOST_LEASE_TRIES_PER_SECOND)
        return min(average, LONGEST_LEASE_TRY_SECONDS) * (0.5 + self._draw())

    def _clean(self) -> None:
        """Once: the number of processes decides how often each one looks, so the dead should not count."""
        if self._monotonic() >= self._clean_at:
            process_set.prune(self._pool)
            self._clean_at = math.inf

    def _leave(self) -> None:
        if not self.is_quick:
            return
        self.is_quick = False
        try:
            promote.leave_poller(self._pool, self._identity)
        except RedisError:
            _log.debug("the poller's lease was not given up; it ends by itself within %s s", LEASE_SECONDS)

    # One slice

    def _due_members(self, set_key: str, now: float, after: float | None, skip: int) -> tuple[list[bytes], bool]:
        """Those that are due, and if there are more; none from a set that cannot be read: the other must go on."""
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

    def _move_slice(self, set_key: str, members: list[bytes], until: float) -> tuple[int, int]:
        """
        Move what can be moved.

        Args:
            until: Look at no further member from then on, monotonic s: a middleware that raises may take its time.

        Returns:
            How many members were looked at, and how many of these stay in the set.
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
            counts = self.moved - before[0], self.stopped - before[1], self.unusable - before[2]
            PROMOTE.emit({"set": set_key, **dict(zip(("moved", "stopped", "unusable"), counts, strict=True))})
        return looked_at, looked_at - sum(result.refusal is None for result in moved)

    def _plan(self, set_key: str, member: bytes, refusals: dict[bytes, BaseException]) -> Move | None:
        """What is to become of a member; `None` if it stays for now."""
        if self._backoffs.must_wait(member, self._monotonic()):
            return None
        payload: dict[str, Any] = {}
        try:
            payload = parse_job(member)
            # Its own copy: what a middleware does to the payload is not what is stored.
            pushed = self._repush(dict(payload))
            effects = self._ends_of_stopped(payload, member) if pushed is None else ()
        except (PayloadError, ArgumentTypeError, ArgumentValueError) as error:
            refusals[member] = error
            effects = self._extensions.effects_of_dead(
                member, payload, "", error, now=self._now(), dialect=self._dialect(), report=self._report
            )
            return Move(member, "dead", effects=effects)
        # A middleware that raises must cost neither the job nor the thread.
        except BaseException as error:
            if isinstance(error, RedisError) and error.is_about_server:
                raise
            self._hold_back(member, error, f"Client middleware raised; the job stays in {set_key} and is tried again")
            return None
        if pushed is None:
            return Move(member, "nowhere", effects=effects)
        return promote.move_to(member, pushed.queue, pushed.payload, pushed.score)

    def _ends_of_stopped(self, payload: dict[str, Any], member: bytes) -> tuple[Effect, ...]:
        if not self._extensions.minds(payload):
            return ()
        return self._extensions.end_effects(JobEnd("stopped", payload, member, "", self._now(), self._dialect()))

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
            _log.debug("enqueued %s: %r", set_key, member)
        elif result.move.target == "nowhere":
            self.stopped += 1
            _log.info("client middleware stopped a job that was due in %s: %r", set_key, member)
        else:
            self.unusable += 1
            context = {"context": f"A member of {set_key} is no usable job; it is kept in dead", "jobstr": member}
            self._report(refusals[member], context)

    def _hold_back(self, member: bytes, error: BaseException, context: str) -> None:
        self._backoffs.add(member, error, context, self._monotonic())


def _why_unreadable(set_key: str, error: RedisReplyError) -> str:
    if error.code == "WRONGTYPE":
        return f"{set_key} is not a sorted set: something else wrote to this key. Rename or delete it"
    return f"{set_key} cannot be read, so its due jobs stay there. Redis users and their rights: docs/redis.md"
