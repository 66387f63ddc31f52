"""
The fetcher that loses no job, and keeps a job from waiting for Redis round trips.

1. Processors take jobs from a local buffer (`buffer`). A processor that finds it empty becomes the leader (`leader`):
   it sends the pending acknowledgements and fetches the next batch in the same round trip (`exchange`).
2. If there is nothing to fetch, the leader waits on all queues at once (`waiters`). It runs the job that arrives
   itself, and another idle processor takes over as leader. While jobs arrive one at a time, a second one waits beside
   the leader, so that nobody has to be woken.
3. While no processor is free, the flusher is on watch. It sends acknowledgements within milliseconds and puts back
   (`side_channel`) the jobs that were fetched ahead but do not start soon, as well as those that still arrive.
4. Any part that hits a Redis error records it (`redis_errors`). The error is reported once, and the jobs in flight
   are then compared with the jobs that this process knows.

Fetching ends once `quiet` was called and the buffer is empty: `take` then returns None.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence

from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.config import CapsuleConfig, Config
from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.fetch.buffer import Buffer
from sidekiq_py.engine.fetch.exchange import Exchange
from sidekiq_py.engine.fetch.flusher import TICK_SECONDS, Alarm, Flusher
from sidekiq_py.engine.fetch.leader import Leader
from sidekiq_py.engine.fetch.redis_errors import RedisErrors
from sidekiq_py.engine.fetch.served_queues import ServedQueues
from sidekiq_py.engine.fetch.settle import Settler
from sidekiq_py.engine.fetch.side_channel import SideChannel
from sidekiq_py.engine.fetch.waiters import Waiters
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork, forget
from sidekiq_py.errors import RedisError, rights_hint
from sidekiq_py.logs import log
from sidekiq_py.outcome import Question
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import in_flight, job_counts
from sidekiq_py.redis_access.job_path.settle_script import Effect, Tally
from sidekiq_py.registry import OnNotices
from sidekiq_py.telemetry import Report

# Both grow with the time of a round trip (`BatchSize.stretch`), the second one only while jobs are fetched ahead.
# A job that ran this long is acknowledged by itself: the round trip costs little, and a kill would repeat real work.
_SLOW_SECONDS = 0.010
# A job that was fetched ahead and has not started after this long goes back.
_GIVE_BACK_SECONDS = 0.020
# A job fetched longer ago may have been revoked since. A revoke of a job in flight waits this long before it returns.
_FRESH_SECONDS = 0.050
# Kept so long that a hard limit that is reached while Redis is down can still be enforced when Redis is back.
_KEPT_AFTER_LIMIT_SECONDS = 24 * 3600


class ReliableFetcher:
    """
    Fetches and settles one capsule's jobs.

    Args:
        report: Called with errors that would otherwise go unreported.
        room: Returns how many more `async def` jobs may start; see `ServedQueues`.
        on_notices: Called with the notices that arrive along with jobs; see `fetch.lua`.
        count: Called with the number of jobs that have succeeded.
    """

    def __init__(
        self,
        capsule: CapsuleConfig,
        config: Config,
        pool: Pool,
        ownership: Ownership,
        *,
        report: Report,
        room: Callable[[], int | None] = lambda: None,
        on_notices: OnNotices | None = None,
        count: Callable[[int], None] = lambda count: None,
        downtime: Downtime | None = None,
    ) -> None:
        weights = capsule.weights
        self._ownership = ownership
        self._alarm = Alarm()
        downtime = downtime or Downtime()
        self._redis_errors = RedisErrors(capsule.name, self._alarm, downtime, report)
        self._queues = ServedQueues(weights, config.idle_waiters, room)
        self._side = SideChannel(pool.new_link(), ownership, self._redis_errors, on_notices)
        self._settler = Settler(
            pool.new_link(),
            on_pending=self._alarm.arm,
            on_lost_connection=self._redis_errors.note,
            count=count,
            downtime=downtime,
        )
        self._exchange = Exchange(
            pool.new_link(), self._settler, ownership, weights, max_bytes=config.buffer_bytes, on_notices=on_notices
        )
        self._buffer = Buffer(
            self._exchange, self._queues, self._side, self._redis_errors, self._alarm, config.buffer_seconds
        )
        self._waiters = Waiters(
            pool,
            ownership,
            self._queues.waited_for,
            config.idle_poll_seconds,
            self._redis_errors.note,
            on_notices,
            self._settler,
        )
        self._leader = Leader(
            self._waiters,
            self._buffer,
            self._queues,
            self._settler,
            ownership,
            self._redis_errors,
            self._alarm,
            config.idle_poll_seconds,
        )
        self._flusher = Flusher(
            f"sidekiq.{capsule.name}/flusher",
            self._alarm,
            lambda: self._redis_errors.attempt(self._tick, "flusher"),
            self._is_needed,
        )
        # The processors' threads. After one of them acknowledges a job, a fetch follows.
        self._takers: set[int] = set()
        self.pulse = self._leader.pulse

    # ---- for the manager

    def start(self) -> None:
        """Start the flusher. The processors do the rest."""
        self._flusher.start()

    def begin_quiet(self) -> None:
        """Stop fetching. Jobs that still arrive go back."""
        self._buffer.stop()
        self._leader.is_quiet = True

    def quiet(self) -> None:
        """Stop fetching and put back the jobs that have not started."""
        self.begin_quiet()
        self._side.quiet()
        self._leader.quiet()
        self._buffer.give_back(older_than=None)
        self._alarm.arm()

    def release(self, processors: int) -> None:
        """Ask this many processors to exit."""
        self._leader.release(processors)

    def close(self) -> None:
        """Send what is still pending and close all connections."""
        self._settler.give_up()
        self._side.stop()
        self._flusher.stop()
        # Acknowledgements that travelled with a move and are not confirmed yet go back to the settler, to be sent
        # again.
        self._waiters.close()
        try:
            self._settler.flush()
        except RedisError as error:
            hint = rights_hint(error)
            log.warning("some finished jobs could not be acknowledged and will run again: %s%s", error, hint)
        self._exchange.close()
        self._side.close()
        self._settler.close()

    def wake(self) -> None:
        """Make the leader check its state: the event loop has room again, or it is time to stop."""
        self._leader.wake()

    # ---- for processors

    def take(self, before_waiting: Callable[[], None] | None = None) -> UnitOfWork | None:
        """See `Fetcher`."""
        buffer, leader, ownership = self._buffer, self._leader, self._ownership
        jobs = buffer.jobs
        while True:
            if leader.leaving and leader.may_leave():
                return None
            try:
                unit = jobs.popleft()
            except IndexError:
                self._takers.add(threading.get_ident())
                if not self._has_fetched_alone() and not leader.wait(before_waiting):
                    return None
                continue
            try:
                if leader.is_quiet:
                    # It may be a job that the stop interrupted, and must not start here again.
                    jobs.appendleft(unit)
                    self._alarm.arm()
                    return None
                if len(jobs) < buffer.low_water:
                    buffer.refill_beside()
                owner = unit.owner
                if owner is not ownership.current:
                    # The job was recovered meanwhile, or will be, so this copy must not start.
                    forget([unit])
                    continue
                now = monotonic()
                if now - owner.confirmed_at > ownership.trust_seconds and not self._side.confirm(owner):
                    if owner is ownership.current:
                        # The process is stopping and Redis is down. A quiet process may go on for hours, so the job
                        # should not wait for its end.
                        self.requeue([unit])
                    else:
                        forget([unit])
                    continue
                if now - unit.fetched_at > _FRESH_SECONDS and now - unit.notices_at > _FRESH_SECONDS:
                    self._side.refresh_notices(unit, jobs, now)
                if not self._alarm.is_armed and self._settler.has_pending:
                    # This thread has a job to run before it can send them.
                    self._alarm.arm()
                return unit
            except BaseException:
                # Whatever happened, the next caller gets the job, or the flusher puts it back.
                jobs.appendleft(unit)
                self._alarm.arm()
                raise

    def _has_fetched_alone(self) -> bool:
        """
        If the end of the last job has commands to write and no processor is waiting, settle and fetch at once. Returns
        True if that brought a job.

        Such a job is often a step of a chain, and brings the next one (`direct_handoff`). Becoming the leader for that
        would cost each step 4 µs.
        """
        if not self._leader.is_alone or not self._settler.has_ends_to_write:
            return False
        self._buffer.refill_beside(1)
        jobs = len(self._buffer.jobs)
        if jobs > 1 and self._leader.idle:
            # Another processor has become the leader meanwhile, and waits for jobs from Redis.
            self._leader.wake()
        return jobs > 0

    @property
    def reserved(self) -> list[UnitOfWork]:
        """See `Fetcher`."""
        return list(self._buffer.jobs)

    @property
    def is_waiting_for_redis(self) -> bool:
        """See `Fetcher`."""
        return self._settler.is_waiting_for_redis

    def acknowledge(self, unit: UnitOfWork, seconds: float) -> None:
        """Acknowledge a job that succeeded after *seconds*."""
        self._buffer.size.ran(seconds)
        if unit.owner is None or unit.is_marked:
            self.settle(unit, (), job_counts.count_commands(now_seconds(), failed=False))
        else:
            self._collect(unit, seconds)

    def finish(
        self,
        unit: UnitOfWork,
        vital: Sequence[Effect],
        counters: Sequence[Effect],
        seconds: float,
        question: Question | None = None,
    ) -> None:
        """Settle a job that succeeded after *seconds*: these commands are sent with the acknowledgements."""
        self._buffer.size.ran(seconds)
        if unit.owner is None or unit.is_marked:
            self.settle(unit, vital, counters)
            return
        # Few objects per job matter: while a large queue is drained, thousands of these are kept.
        unit.end = vital[0] if len(vital) == 1 and type(vital[0]) is Tally else (vital, counters)
        unit.question = question
        self._collect(unit, seconds)

    def acknowledge_early(self, unit: UnitOfWork, *, hard_limit_seconds: float | None = None) -> bool:
        """Acknowledge a job that runs at most once, just before it starts."""
        counters = [in_flight.clear_suspect_command(unit.raw)] if unit.is_marked else []
        vital: Sequence[Effect] = ()
        kept_by = ""
        if hard_limit_seconds is not None:
            kept_by = in_flight.new_kept_name()
            vital = in_flight.kept_commands(
                kept_by, unit.field, unit.raw, math.ceil(hard_limit_seconds) + _KEPT_AFTER_LIMIT_SECONDS
            )
        try:
            was_ours = self._settler.settle_early(unit, vital, counters)
        except RedisError as error:
            # If it is still in Redis, it is an orphan now and goes back.
            self._redis_errors.offline(error)
            was_ours = False
        forget([unit])
        unit.owner, unit.is_marked = None, False
        unit.is_acknowledged_early, unit.kept_by = True, kept_by
        return was_ours

    def settle(self, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
        """
        Settle a job that did not simply succeed: run these commands if the job is still ours. Returns True if it was.
        """
        if unit.is_marked:
            counters = (*counters, in_flight.clear_suspect_command(unit.raw))
        return self._settler.settle(unit, vital, counters)

    def requeue(self, units: Sequence[UnitOfWork]) -> None:
        """Requeue jobs that will not finish here. The first of them will run first."""
        self._side.give_back(units)

    def note_async(self, queue: str) -> None:
        """Record that *queue* brings `async def` jobs."""
        self._queues.note_async(queue)

    # ---- which queues

    def stop_serving(self, queue: str) -> None:
        """
        Stop fetching from *queue*. The whole buffer goes back; jobs from queues that are still served are fetched again
        at once.
        """
        with self._buffer.fetching:
            self._change_queues({name: weight for name, weight in self._queues.weights if name != queue})
            self._queues.unserved |= {queue}
        self._after_change(has_ended=True)

    def serve(self, weights: Mapping[str, int]) -> None:
        """Fetch from exactly these queues, in this order."""
        with self._buffer.fetching:
            has_ended = any(name not in weights for name in self._queues.names)
            self._change_queues(weights)
        self._after_change(has_ended)

    def _change_queues(self, weights: Mapping[str, int]) -> None:
        """Apply the new weights. The caller holds `fetching`, so no batch is on its way."""
        before = set(self._queues.names)
        begun = [name for name in weights if name not in before]
        if begun:
            self._ownership.widen(begun)
        self._queues.change(weights)
        self._exchange.serve(weights, begun)
        self._waiters.serve(self._queues.waited_for)

    def _after_change(self, has_ended: bool) -> None:
        if has_ended:
            self._buffer.give_back(older_than=None)
        self.wake()
        # If there is no leader, the flusher collects the jobs that the open moves bring.
        self._alarm.arm()

    def awaits(self, queue: str) -> bool:
        """True while a blocking move on *queue* is open."""
        return self._waiters.awaits(queue)

    # ---- settling

    def _collect(self, unit: UnitOfWork, seconds: float) -> None:
        """
        Collect the end of a job that took *seconds*. If the calling processor is about to fetch, it goes with that;
        otherwise it is sent at once after a slow job, and soon after others.
        """
        self._settler.acknowledge(unit)
        is_slow = seconds >= _SLOW_SECONDS * self._buffer.size.stretch
        if self._alarm.is_armed and not is_slow:
            return
        if not (self._buffer.jobs or self._leader.is_quiet) and threading.get_ident() in self._takers:
            self._alarm.remind()
        elif not is_slow:
            self._alarm.arm()
        else:
            self._redis_errors.attempt(self._settler.flush, "acknowledging")
            if self._settler.has_pending:
                self._alarm.arm()

    # ---- for the flusher

    def _is_needed(self) -> bool:
        return bool(
            self._settler.has_pending
            or self._buffer.jobs
            or self._redis_errors.is_noted
            or self._leader.has_untended_moves
        )

    def _tick(self) -> None:
        if self._redis_errors.clear():
            self._side.give_back_orphans()
            self._settler.flush()
            self._redis_errors.online("keeping")
        elif self._settler.has_pending and monotonic() - self._settler.flushed_at > TICK_SECONDS:
            self._settler.flush()
        self._leader.read_late_arrivals()
        if self._leader.is_quiet:
            self._buffer.give_back(older_than=None)
        elif self._buffer.jobs:
            stretch = self._buffer.size.stretch if self._buffer.is_ahead else 1.0
            self._buffer.give_back(older_than=_GIVE_BACK_SECONDS * stretch)
