"""
The fetcher that loses nothing, and keeps Redis round trips out of a job's way.

1. Processors take jobs from a local buffer. One that finds it empty becomes the leader: it hands in the
   acknowledgements that are due and fetches the next batch in the same round trip (`exchange`).
2. Where there is nothing to fetch, the leader waits on all queues at once and runs what comes itself; another idle
   processor takes its place.
3. While no processor is free the keeper watches: acknowledgements go out within milliseconds, what was fetched ahead
   and does not start soon goes back, and so does what still arrives.

It ends when `quiet` was called and the buffer is empty: `take` returns None.
"""

import logging
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.config import CapsuleConfig, Config
from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.fetch.batch_size import BatchSize
from sidekiq_py.engine.fetch.exchange import Exchange
from sidekiq_py.engine.fetch.fetcher import listed_among, note_fetched
from sidekiq_py.engine.fetch.flusher import RETRY_SECONDS, TICK_SECONDS, Flusher
from sidekiq_py.engine.fetch.idle_workers import IdleWorkers
from sidekiq_py.engine.fetch.settle import Settler, forget, utc_day
from sidekiq_py.engine.fetch.waiters import Waiters
from sidekiq_py.engine.fetch.wake_pipe import wake_pipe
from sidekiq_py.engine.ownership.owner import Owner, Ownership, UnitOfWork
from sidekiq_py.errors import RedisConnectionError, RedisError, RedisReplyError, ReplyLostError
from sidekiq_py.outcome import Question
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.extension import revoked
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.redis_access.job_path.in_flight import Effect
from sidekiq_py.registry import OnNotices

_log = logging.getLogger("sidekiq")

# A job that ran as long is acknowledged by itself: the round trip weighs little, and a kill would repeat real work.
_SLOW_SECONDS = 0.005
# What was fetched ahead and has not started by then goes back.
_GIVE_BACK_SECONDS = 0.020
_LATE_ARRIVAL_SECONDS = 0.010
# What was fetched longer ago may have been revoked since: a revoke of a job in flight waits as long before it returns.
_FRESH_SECONDS = 0.050
# A hard limit that comes due while Redis is away is kept when it is back.
_KEPT_AFTER_LIMIT_SECONDS = 24 * 3600
# A job that came sooner was there when it was asked for: a trip to Redis and back takes longer than to wait for none.
_AT_ONCE_SECONDS = 0.001
# A leader that waits for a reply from a Redis that hangs cannot be called off.
_LEADER_EXIT_SECONDS = 5.0


class ReliableFetcher:
    """
    One capsule's jobs.

    Args:
        report: Told of errors that nobody else would hear of.
        room: How many more `async def` jobs may start; None: none runs. While there is none, queues that have brought
            such jobs are left alone, and the others are not.
        on_notices: Handed the orders that come along with jobs; see `fetch.lua`.
        count: Takes how many jobs have succeeded.
    """

    def __init__(
        self,
        capsule: CapsuleConfig,
        config: Config,
        pool: Pool,
        ownership: Ownership,
        *,
        report: Callable[[BaseException, dict[str, Any]], None],
        room: Callable[[], int | None] = lambda: None,
        on_notices: OnNotices | None = None,
        count: Callable[[int], None] = lambda count: None,
        downtime: Downtime | None = None,
    ) -> None:
        self._capsule = capsule
        self._downtime = downtime or Downtime()
        self._config = config
        self._ownership = ownership
        self._report = report
        self._room = room
        self._on_notices = on_notices
        self._queues = [(name, capsule.weights[name]) for name in capsule.queue_names]
        self._flusher = Flusher(
            f"sidekiq.{capsule.name}/keeper", self._tick, self._is_needed, on_offline=self._note_offline, report=report
        )
        self._service_link = pool.new_link()
        self._service_lock = threading.Lock()
        self._settler = Settler(
            pool.new_link(),
            on_pending=self._flusher.arm,
            on_trouble=self._note_trouble,
            count=count,
            is_given_up=lambda: self._is_closed,
        )
        self._exchange = Exchange(
            pool.new_link(),
            self._settler,
            ownership,
            capsule.queue_names,
            max_bytes=config.buffer_bytes,
            on_refused=self._flusher.arm,
            on_notices=on_notices,
        )
        waited_for = capsule.queue_names[: config.idle_waiters]
        self._waited_for = tuple(waited_for)
        self._waiters = Waiters(pool, ownership, waited_for, config.idle_poll_seconds, self._note_trouble, on_notices)

        self._jobs: deque[UnitOfWork] = deque()
        self._size = BatchSize(config.buffer_seconds)
        self._low_water = 0
        self._left = 0
        self._refilled_at = monotonic()
        # More jobs may wait than the last look has brought, so that the next is to be a fetch.
        self._has_backlog = True
        # Moves on all queues are open while the leader waits.
        self._waits_for_all = False
        self._async_queues: set[str] = set()
        self._unserved: frozenset[str] = frozenset()

        self._fetch_lock = threading.Lock()
        self._idle_change = IdleWorkers()
        self._idle = 0
        # Threads of processors: what they hand in is followed by a fetch.
        self._takers: set[int] = set()
        # How many processors are to end.
        self._leaving = 0
        self._has_leader = False
        self._wake_read, self._wake_write = wake_pipe(self)

        self._is_quiet = False
        self._quiet = threading.Event()
        self._is_closed = False
        self._has_trouble = False

    def __repr__(self) -> str:
        return f"<ReliableFetcher {self._capsule.name} buffered={len(self._jobs)} idle={self._idle}>"

    # ---- for the manager

    def start(self) -> None:
        """Start the keeper; processors do the rest."""
        self._flusher.start()

    def quiet(self) -> None:
        """Fetch no more, and give back what has not started."""
        with self._idle_change:
            self._is_quiet = True
            self._idle_change.wake_all()
        self._quiet.set()
        self.wake()
        # From here on nobody leads: late arrivals are the keeper's, who gives them back.
        give_up_at = monotonic() + _LEADER_EXIT_SECONDS
        while not self._take_the_lead() and monotonic() < give_up_at:
            threading.Event().wait(0.001)
        self._give_back_buffer(older_than=None)
        self._flusher.arm()

    def release(self, processors: int) -> None:
        """So many processors are to end."""
        with self._idle_change:
            self._leaving += processors
            self._idle_change.wake(processors)
        # Of idle ones, the leader may be the only one.
        self.wake()

    def close(self) -> None:
        """Hand in what is due and let go of all connections."""
        self._is_closed = True
        try:
            self._settler.flush()
        except RedisError as error:
            _log.warning("some finished jobs could not be acknowledged and will run again: %s", error)
        self._flusher.stop()
        self._waiters.close()
        self._exchange.close()
        with self._service_lock:
            self._service_link.close()
        self._settler.close()

    def wake(self) -> None:
        """Let the leader look up: there is room again, or it is time to stop."""
        try:
            os.write(self._wake_write, b".")
        except BlockingIOError:
            pass

    # ---- for processors

    def take(self) -> UnitOfWork | None:
        """The next job to run; waits for one. None: stop."""
        jobs = self._jobs
        ownership = self._ownership
        while True:
            if self._leaving and self._may_leave():
                return None
            try:
                unit = jobs.popleft()
            except IndexError:
                if not self._wait():
                    return None
                continue
            try:
                if len(jobs) < self._low_water and self._fetch_lock.acquire(blocking=False):
                    self._refill_beside()
                owner = unit.owner
                if owner is not ownership.current:
                    # Recovered meanwhile: this copy is not ours to start.
                    continue
                now = monotonic()
                if now - owner.confirmed_at > ownership.trust_seconds and not self._confirm(owner):
                    if owner is ownership.current:
                        # The process stops and Redis is away; it may stay quiet for hours.
                        self.requeue([unit])
                    continue
                if now - unit.fetched_at > _FRESH_SECONDS and self._on_notices is not None:
                    self._hear_again(unit, self._on_notices)
                return unit
            except BaseException:
                # Whatever it was: the next who asks gets the job, or the keeper gives it back.
                jobs.appendleft(unit)
                self._flusher.arm()
                raise

    @property
    def reserved(self) -> list[UnitOfWork]:
        """See `Fetcher`."""
        return list(self._jobs)

    def acknowledge(self, unit: UnitOfWork, seconds: float) -> None:
        """The job succeeded; it ran for *seconds*."""
        self._size.ran(seconds)
        if unit.owner is None:
            self.settle(unit, (), in_flight.count_commands(utc_day(now_seconds()), failed=False))
            return
        if unit.is_marked:
            self._settle_marked(unit)
            return
        self._settler.acknowledge(unit)
        self._hand_in_after(seconds)

    def finish(
        self,
        unit: UnitOfWork,
        vital: Sequence[Effect],
        counters: Sequence[Effect],
        seconds: float,
        question: Question | None = None,
    ) -> None:
        """The job succeeded after *seconds*, and these commands are its end: handed in with the acknowledgements."""
        self._size.ran(seconds)
        if unit.owner is None or unit.is_marked:
            self.settle(unit, vital, counters)
            return
        unit.end = (vital, counters)
        unit.question = question
        self._settler.acknowledge(unit)
        self._hand_in_after(seconds)

    def acknowledge_early(self, unit: UnitOfWork, *, hard_limit_seconds: float | None = None) -> bool:
        """The job is about to start and is to run at most once: acknowledge it."""
        counters = [in_flight.clear_suspect_command(unit.raw)] if unit.is_marked else []
        vital: Sequence[Effect] = ()
        kept_by = ""
        if hard_limit_seconds is not None:
            kept_by = in_flight.kept_name(os.urandom(12).hex())
            vital = in_flight.kept_commands(
                kept_by, unit.field, unit.raw, math.ceil(hard_limit_seconds) + _KEPT_AFTER_LIMIT_SECONDS
            )
        try:
            was_ours = self._settler.acknowledge_early(unit, vital, counters)
        except RedisError as error:
            # Whether it has left Redis is not known; if it has not, it is a stranger and goes back.
            self._note_offline(error)
            was_ours = False
        if unit.owner is not None:
            forget(unit.owner, [unit.field])
        unit.owner, unit.is_marked = None, False
        unit.is_acknowledged_early, unit.kept_by = True, kept_by
        return was_ours

    def settle(self, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
        """The job ended otherwise: run these commands if it is still ours. True if it was."""
        if unit.is_marked:
            counters = (*counters, in_flight.clear_suspect_command(unit.raw))
        return self._settler.settle(unit, vital, counters)

    def requeue(self, units: Sequence[UnitOfWork]) -> None:
        """Put jobs back that are not to be run to their end here; the first of them is to run first."""
        by_owner: dict[Owner, list[UnitOfWork]] = {}
        for unit in units:
            if unit.owner is None:
                _log.warning("a job that runs at most once was cut off, and will not run again: %s", unit)
            else:
                by_owner.setdefault(unit.owner, []).append(unit)
        for owner, theirs in by_owner.items():
            fields = [unit.field for unit in theirs]
            try:
                with self._service_lock:
                    in_flight.give_back(self._service_link, owner.name, fields, listed_among(theirs))
            except RedisError as error:
                self._note_offline(error)
            except Exception as error:  # noqa: BLE001 — the callers have nobody else to hand the jobs to
                self._note_trouble()
                self._report(error, {"context": "giving jobs back; those that are left go back later"})
            finally:
                # What is still in flight is a stranger from now on, and goes back once Redis answers again.
                forget(owner, fields)

    def note_async(self, queue: str) -> None:
        """*queue* brings `async def` jobs."""
        self._async_queues.add(queue)

    def stop_serving(self, queue: str) -> None:
        """Take no more jobs from *queue*. The whole buffer goes back; what is still served is fetched again at once."""
        with self._fetch_lock:
            self._change_queues({name: weight for name, weight in self._queues if name != queue})
            self._unserved |= {queue}
        self._after_change(has_ended=True)

    def serve(self, weights: Mapping[str, int]) -> None:
        """Take jobs from these queues, in this order, and from no others."""
        with self._fetch_lock:
            has_ended = any(name not in weights for name, _ in self._queues)
            self._change_queues(weights)
        self._after_change(has_ended)

    def _change_queues(self, weights: Mapping[str, int]) -> None:
        """The caller holds the fetch lock: no batch is on its way."""
        before = {name for name, _ in self._queues}
        begun = [name for name in weights if name not in before]
        if begun:
            self._ownership.widen(begun)
        self._queues = list(weights.items())
        self._unserved = (self._unserved | before) - weights.keys()
        self._exchange.serve(weights, begun)
        # Who has a connection keeps it.
        ordered = sorted(weights, key=lambda name: name not in self._waited_for)
        self._waited_for = tuple(ordered[: self._config.idle_waiters])
        self._waiters.serve(self._waited_for)

    def _after_change(self, has_ended: bool) -> None:
        if has_ended:
            self._give_back_buffer(older_than=None)
        self.wake()
        # Where nobody leads, it is the keeper who collects what the open moves bring.
        self._flusher.arm()

    def awaits(self, queue: str) -> bool:
        """A blocking move on *queue* is still open."""
        return self._waiters.awaits(queue)

    # ---- idle processors

    def _wait(self) -> bool:
        """Until there are jobs in the buffer; False: stop. One of those that wait leads."""
        self._takers.add(threading.get_ident())
        # With a backlog the next fetch is near, and takes it along.
        if self._has_leader and self._settler.has_pending and not self._has_backlog:
            self._flush()
        with self._idle_change:
            self._idle += 1
            while True:
                if self._is_quiet or self._jobs or self._leaving:
                    self._idle -= 1
                    return not self._is_quiet
                if not self._has_leader:
                    self._has_leader = True
                    break
                self._idle_change.park()
        try:
            self._lead()
        finally:
            with self._idle_change:
                self._has_leader = False
                self._idle -= 1
                is_last = self._idle < max(1, len(self._jobs))
                # As many as there is work for, and always one to take the lead.
                self._idle_change.wake(max(1, len(self._jobs)))
            if is_last and self._waiters.any_open:
                # Nobody leads until a job has ended, and what the other moves bring must not wait for that.
                self._flusher.arm()
        return True

    def _may_leave(self) -> bool:
        """The processor that asks is one of those that are to end."""
        with self._idle_change:
            may = self._leaving > 0
            self._leaving -= may
            return may

    def _take_the_lead(self) -> bool:
        with self._idle_change:
            if self._has_leader:
                return False
            self._has_leader = True
            return True

    def _lead(self) -> None:
        """
        Fetch or wait until the buffer holds something, or it is time to stop.

        Where nothing has ended, one move is to be opened, and the last job had to be waited for, nothing is fetched
        first: the move brings what there is just as well.
        """
        is_due = self._has_backlog or self._settler.has_pending or not self._waits_for_all or self._waiters.closed > 1
        while not (self._is_quiet or self._jobs or self._leaving):
            work = "waiting"
            try:
                # After a long sleep this owner may have been struck off: a fetch finds out, a move would not.
                if is_due or not self._ownership.trusts(monotonic()):
                    work = "fetching"
                    owner = self._ownership.current
                    with self._fetch_lock:
                        self._refill(self._idle)
                        self._note_online(work)
                    if self._jobs:
                        return
                    self._has_backlog = False
                    if owner is not self._ownership.current:
                        # The next epoch can wait for jobs only when a fetch has entered it.
                        continue
                    work = "waiting"
                is_due = self._watch()
                self._note_online(work)
            except RedisError as error:
                is_due = True
                if isinstance(error, RedisReplyError) and error.code == "OOM":
                    # Into a full Redis nothing is moved by a blocking command; a fetch goes through.
                    self._quiet.wait(self._config.idle_poll_seconds)
                    continue
                self._note_offline(error, work)
                self._quiet.wait(RETRY_SECONDS)

    def _watch(self) -> bool:
        """Wait on the queues; True if a fetch is due afterwards."""
        full = self._full_queues()
        shut = {*self._exchange.paused, *full, *self._exchange.fresh}
        self._waiters.open(shut)
        self._waits_for_all = not shut and all(name in self._waited_for for name, _ in self._queues)
        seconds = None if self._waits_for_all else self._config.idle_poll_seconds
        asked_at = monotonic()
        cool_until = self._waiters.cool_until
        if cool_until:
            seconds = min(seconds or 1.0, max(0.001, cool_until - monotonic()))
        units, was_woken = self._waiters.collect(self._wake_read, seconds)
        if was_woken:
            self._drain_wake()
        has_come = self._keep(units)
        if has_come:
            self._left = len(self._jobs)
            self._refilled_at = monotonic()
            # A move that did not have to wait has met a queue with jobs.
            self._has_backlog = self._refilled_at - asked_at < _AT_ONCE_SECONDS
        return was_woken or (seconds is not None and not has_come)

    def _keep(self, units: list[UnitOfWork]) -> int:
        """
        Put what moves have brought into the buffer; what came too late from a queue that is served no more goes back.

        Returns:
            How many are in the buffer now.
        """
        unserved = self._unserved
        served = [unit for unit in units if unit.queue not in unserved] if unserved else units
        self._jobs.extend(served)
        if len(served) < len(units):
            self.requeue([unit for unit in units if unit.queue in unserved])
        note_fetched(served)
        return len(served)

    def _full_queues(self) -> set[str]:
        """The queues to leave alone, as the event loop has no room for what they bring."""
        room = self._room() if self._async_queues else None
        return self._async_queues if room is not None and room <= 0 else set()

    def _drain_wake(self) -> None:
        try:
            while os.read(self._wake_read, 1024):
                pass
        except BlockingIOError:
            pass

    # ---- fetching

    def _refill(self, idle: int) -> None:
        """
        Hand in what is due and fetch a batch, in one round trip. The caller holds the fetch lock.

        Args:
            idle: Processors that wait.
        """
        now = monotonic()
        buffered = len(self._jobs)
        ahead = self._size.refilled(max(0, self._left - buffered), now - self._refilled_at)
        full = self._full_queues()
        queues = [entry for entry in self._queues if entry[0] not in full] if full else self._queues
        wanted = self._within_room(idle, ahead) - buffered
        if wanted <= 0 or not queues or self._is_quiet:
            self._low_water = 0
            return
        try:
            fetched = self._exchange.run(queues, wanted, now)
            self._jobs.extend(fetched)
        except RedisError as error:
            if isinstance(error, ReplyLostError | RedisConnectionError):
                self._note_trouble()
            raise
        self._left = len(self._jobs)
        self._low_water = self._left // 4 if ahead else 0
        self._refilled_at = monotonic()
        if self._jobs:
            self._flusher.arm()
        note_fetched(fetched)

    def _refill_beside(self) -> None:
        """As `_refill`, by a processor that has a job to run. It has taken the fetch lock, which is released here."""
        try:
            self._refill(0)
        except RedisError as error:
            self._note_offline(error, "fetching")
        except Exception as error:  # noqa: BLE001 — the job at hand can run all the same
            self._report(error, {"context": "fetching"})
        finally:
            self._fetch_lock.release()

    def _within_room(self, idle: int, ahead: int) -> int:
        """How many jobs to have: for the *idle* processors, and *ahead*, as far as they can start."""
        room = self._room() if self._async_queues else None
        if room is None:
            return idle + ahead
        if all(name in self._async_queues for name, _ in self._queues):
            return min(idle + ahead, max(room, 0))
        return idle + min(ahead, max(room, 0))

    def _confirm(self, owner: Owner) -> bool:
        """Ask Redis whether *owner* stands, for as long as it takes; False: it does not, or it is time to stop."""
        while not self._is_closed:
            try:
                with self._service_lock:
                    if self._ownership.trusts(monotonic()):
                        break
                    self._ownership.renew(self._service_link)
                break
            except RedisError as error:
                self._note_offline(error)
                if self._is_quiet:
                    return False
                threading.Event().wait(RETRY_SECONDS)
        return owner is self._ownership.current

    def _hear_again(self, unit: UnitOfWork, on_notices: OnNotices) -> None:
        """Ask what a fetch would tell of *unit* now. Where Redis cannot be asked, nobody can have revoked it."""
        try:
            with self._service_lock:
                on_notices(revoked.told_of(self._service_link, unit.raw))
        except RedisError as error:
            self._note_offline(error)
        except Exception as error:  # noqa: BLE001 — what is told is a hint, and the job is at hand
            self._report(error, {"context": "what was told of a job could not be taken in"})

    # ---- settling

    def _settle_marked(self, unit: UnitOfWork) -> None:
        counters = in_flight.count_commands(utc_day(now_seconds()), failed=False)
        self._settler.settle(unit, (), [*counters, in_flight.clear_suspect_command(unit.raw)])

    def _hand_in_after(self, seconds: float) -> None:
        """After a slow job at once; by a processor that is about to fetch, with that."""
        if seconds >= _SLOW_SECONDS and (self._jobs or self._is_quiet or threading.get_ident() not in self._takers):
            self._flush()

    def _flush(self) -> None:
        try:
            self._settler.flush()
        except RedisError as error:
            self._note_offline(error)
        except Exception as error:  # noqa: BLE001 — what is gathered is kept, and the job that called is among it
            self._report(error, {"context": "acknowledging"})

    # ---- for the keeper

    def _is_needed(self) -> bool:
        nobody_leads = not self._has_leader or self._is_quiet
        return bool(
            self._settler.has_pending or self._jobs or self._has_trouble or (nobody_leads and self._waiters.any_open)
        )

    def _tick(self) -> None:
        if self._has_trouble:
            self._has_trouble = False
            with self._service_lock:
                self._ownership.give_back_orphans(self._service_link)
            self._settler.flush()
            self._note_online("keeping")
        elif self._settler.has_pending and monotonic() - self._settler.flushed_at > TICK_SECONDS:
            self._settler.flush()
        self._read_late_arrivals()
        if self._is_quiet:
            self._give_back_buffer(older_than=None)
        elif self._jobs:
            self._give_back_buffer(older_than=_GIVE_BACK_SECONDS)

    def _read_late_arrivals(self) -> None:
        """While nobody leads: what the waiters bring now has no processor free."""
        with self._idle_change:
            if self._has_leader and not self._is_quiet:
                return
            if not self._waiters.any_open:
                return
            units, _ = self._waiters.collect(None, 0)
        for unit in units:
            # It is due to go back sooner than what was fetched ahead.
            unit.fetched_at -= _GIVE_BACK_SECONDS - _LATE_ARRIVAL_SECONDS
        has_come = self._keep(units)
        if has_come:
            with self._idle_change:
                self._idle_change.wake(has_come)

    def _give_back_buffer(self, older_than: float | None) -> None:
        """
        Give back what waits in the buffer; None: all of it, else if its first job was fetched more seconds ago.

        With a late job goes all that stands behind it: it would start later still, and before the late one. From the
        end, so that a processor that comes free meanwhile takes what is to run first.
        """
        deadline = None if older_than is None else monotonic() - older_than
        if not self._is_any_late(deadline):
            return
        late: list[UnitOfWork] = []
        # A fetch meanwhile would bring less urgent jobs than those that are on their way back.
        with self._fetch_lock:
            try:
                while self._is_any_late(deadline):
                    try:
                        late.append(self._jobs.pop())
                    except IndexError:
                        break
            finally:
                self._low_water = 0
                if late:
                    self.requeue(late[::-1])

    def _is_any_late(self, deadline: float | None) -> bool:
        """A job at either end of the buffer was fetched before *deadline*; None: there is one at all."""
        try:
            return deadline is None or min(self._jobs[0].fetched_at, self._jobs[-1].fetched_at) <= deadline
        except IndexError:
            return False

    # ---- Redis out of reach

    def _note_trouble(self) -> None:
        """A connection broke: what it carried may have been done."""
        self._has_trouble = True
        self._flusher.arm()

    def _note_offline(self, error: RedisError, work: str = "keeping") -> None:
        """
        A call failed.

        Args:
            work: What it was part of. Redis may refuse the one and do the other; while it is away it does nothing.
        """
        self._note_trouble()
        if self._downtime.failed(error, f"{self._capsule.name}: {work}"):
            what = "refuses what a worker needs" if isinstance(error, RedisReplyError) else "is out of reach"
            self._report(error, {"context": f"Redis {what}; trying again until it is back"})

    def _note_online(self, work: str) -> None:
        if self._downtime.is_on:
            self._downtime.works(f"{self._capsule.name}: {work}")
