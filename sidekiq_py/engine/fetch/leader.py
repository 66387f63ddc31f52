"""
Coordinates the idle processors of a capsule: one of them is the leader.

The leader fetches jobs. If there are none, it waits on all queues at once. It runs the job that arrives itself, and
another idle processor takes over as leader.

While jobs arrive one at a time, a second processor waits beside the leader: the one whose job has just ended, on the
connection that carries its acknowledgement. Whichever of the two gets the next job starts it at once, because the other
one still waits. Waking a processor to take over as leader would delay the job by 20 µs, a tenth of the time from push
to start.
"""

import os
import threading
from collections.abc import Callable

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.fetch.buffer import Buffer
from sidekiq_py.engine.fetch.flusher import RETRY_SECONDS, Alarm
from sidekiq_py.engine.fetch.idle_workers import IdleWorkers
from sidekiq_py.engine.fetch.redis_errors import RedisErrors
from sidekiq_py.engine.fetch.served_queues import ServedQueues
from sidekiq_py.engine.fetch.settle import Settler
from sidekiq_py.engine.fetch.waiters import BLOCK_SECONDS, Waiters
from sidekiq_py.engine.fetch.wake_pipe import wake_pipe
from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.engine.pulse import Pulse
from sidekiq_py.errors import RedisError, RedisReplyError

# A job that arrives sooner than this was already in the queue when the move was sent.
_AT_ONCE_SECONDS = 0.001
# A job that arrives while there is no leader goes back this much sooner than one that was fetched ahead.
_LATE_ARRIVAL_SECONDS = 0.010
# How soon to notice that a queue is no longer paused, or its key a list again. That may take days, and a fetch every
# 50 ms cost Redis 200 commands a second for each process.
_PAUSED_SECONDS = 0.5
# How long `quiet` waits for the leader: one that waits for a reply from a hanging Redis cannot be interrupted.
_LEADER_EXIT_SECONDS = 5.0
# Messages to a waiting processor through its pipe: check whether to go on, or only open the moves that are missing and
# send the pending acknowledgements.
_LOOK_UP = b"."
_LOOK_ON = b"!"


class Leader:
    """
    Makes one idle processor of a capsule the leader and wakes the others. Safe to use from any thread.

    Args:
        waiters: The blocking moves. Used by the leader, or by the flusher while there is no leader.
        buffer: Receives the jobs.
        settler: Supplies the acknowledgements that travel with a fetch.
        alarm: Armed when the flusher has to read the open moves, or may have to send acknowledgements.
        poll_seconds: How often to check the queues that no connection blocks on.

    Attributes:
        is_quiet: True once the fetcher is to stop; no processor leads after that.
        idle: The number of waiting processors.
        leaving: The number of processors that still have to exit.
        pulse: The leader's pulse; at rest while no processor is idle.
    """

    def __init__(
        self,
        waiters: Waiters,
        buffer: Buffer,
        queues: ServedQueues,
        settler: Settler,
        ownership: Ownership,
        redis_errors: RedisErrors,
        alarm: Alarm,
        poll_seconds: float,
    ) -> None:
        self._waiters = waiters
        self._buffer = buffer
        self._queues = queues
        self._settler = settler
        self._ownership = ownership
        self._redis_errors = redis_errors
        self._alarm = alarm
        self._poll_seconds = poll_seconds
        self._change = IdleWorkers()
        self.idle = 0
        self.leaving = 0
        self.pulse = Pulse()
        self._is_led = False
        # A second processor waits beside the leader.
        self._is_accompanied = False
        # The queues may hold more jobs than the last request brought, so the next request is a fetch.
        self._has_backlog = True
        # While the leader waits, a blocking move is open on every queue.
        self._waits_for_all = False
        self._leader_pipe = wake_pipe(self)
        self._companion_pipe = wake_pipe(self)
        self.is_quiet = False
        self._quiet = threading.Event()

    # ---- for processors

    def wait(self, before_waiting: Callable[[], None] | None = None, *, may_accompany: bool = True) -> bool:
        """
        Block until the buffer has jobs. Returns False when the processor should exit. One of the waiting processors
        becomes the leader.

        Args:
            before_waiting: See `Fetcher.take`.
            may_accompany: False if this processor has just waited beside the leader, and no job came.
        """
        settler = self._settler
        # With a backlog the next fetch is close and carries the acknowledgements.
        if self._is_led and not self._has_backlog and settler.has_ends_to_write:
            self._flush()
        if before_waiting is not None and self._is_led:
            # Not while the lock is held: it may run handlers of signals.
            before_waiting()
        jobs = self._buffer.jobs
        with self._change.lock:
            self.idle += 1
            while True:
                if self.is_quiet or jobs or self.leaving:
                    self.idle -= 1
                    if not self.idle:
                        self.pulse.rests()
                        if self._waiters.any_unwatched:
                            # This processor was woken to lead, but found the job of a leader that a resize let go.
                            self._alarm.arm()
                    elif not (self._is_led or self._is_accompanied):
                        # This processor may have been woken to lead and found a job that arrived meanwhile. Another one
                        # has to lead instead: without a leader, the idle processors would ignore a full queue until a
                        # busy processor finishes its job.
                        self._change.wake(1)
                    return not self.is_quiet
                leads = not self._is_led
                if leads:
                    self._is_led = True
                    break
                if settler.has_pending:
                    if not self._has_backlog:
                        if may_accompany and self._has_room_beside:
                            self._is_accompanied = True
                            break
                        _send(self._leader_pipe, _LOOK_ON)
                    # The leader may wait for a reply first.
                    self._alarm.arm()
                self._change.park()
        try:
            if leads:
                self._lead(before_waiting)
            else:
                self._accompany(before_waiting)
        finally:
            self._leave(leads)
        return leads or bool(jobs) or self.wait(before_waiting, may_accompany=False)

    @property
    def _has_room_beside(self) -> bool:
        """True if a second processor may wait, and there is nothing to do for it but that."""
        return (
            not self._is_accompanied
            and self._waits_for_all
            and not self._settler.has_ends_to_write
            and self._ownership.trusts(monotonic())
        )

    def _leave(self, leads: bool) -> None:
        """Stop waiting. See to it that the other jobs in the buffer start, and that all queues are still waited on."""
        with self._change.lock:
            if leads:
                self._is_led = False
            else:
                self._is_accompanied = False
            self.idle -= 1
            jobs = len(self._buffer.jobs)
            is_waited = self._is_led or self._is_accompanied
            # Wake one processor per job, and always one to take the lead.
            wanted = jobs - 1 if is_waited else max(1, jobs)
            woken = self._change.wake(wanted) if wanted > 0 else 0
            is_last = self.idle < wanted
            if not self.idle:
                self.pulse.rests()
            elif not is_waited:
                # One of them will lead or take a job.
                self.pulse.waits(0.0)
        if not is_waited:
            if is_last and self._waiters.any_unwatched:
                # There is no leader until a job ends, and jobs from the other open moves must not wait that long.
                self._alarm.arm()
        elif woken < wanted or not (self._waits_for_all and self._waiters.are_complete):
            _send(self._leader_pipe if self._is_led else self._companion_pipe, _LOOK_ON)

    def may_leave(self) -> bool:
        """Returns True if the calling processor should exit, and counts it as gone."""
        with self._change.lock:
            may = self.leaving > 0
            self.leaving -= may
            return may

    @property
    def is_alone(self) -> bool:
        """True while no processor is waiting, and the calling one may go on."""
        return not (self.idle or self._is_led or self.is_quiet or self.leaving)

    # ---- for others

    def release(self, processors: int) -> None:
        """Ask this many processors to exit."""
        with self._change.lock:
            self.leaving += processors
            self._change.wake(processors)
        # The leader may be the only idle one.
        self.wake()

    def wake(self) -> None:
        """Make the leader check its state: the event loop has room again, or it is time to stop."""
        _send(self._leader_pipe, _LOOK_UP)
        if self._is_accompanied:
            _send(self._companion_pipe, _LOOK_UP)

    def quiet(self) -> None:
        """Send all processors away. From here on the flusher handles late arrivals."""
        with self._change.lock:
            self.is_quiet = True
            self._change.wake_all()
        self._quiet.set()
        self.wake()
        give_up_at = monotonic() + _LEADER_EXIT_SECONDS
        while (self._is_led or self._is_accompanied) and monotonic() < give_up_at:
            threading.Event().wait(0.001)

    @property
    def has_untended_moves(self) -> bool:
        """
        True while blocking moves are open and there is nobody to read their replies.

        Checking for the leader matters even in shutdown: one that was asked to exit may still be opening a move.
        Another thread that reads its connection then takes its replies away, and the leader waits for them until a
        timeout.
        """
        return not (self._is_led or self._is_accompanied) and self._waiters.any_unwatched

    def read_late_arrivals(self) -> None:
        """Collect the jobs that arrive while there is no leader, and so no free processor."""
        with self._change.lock:
            if not self.has_untended_moves:
                return
            units, _ = self._waiters.collect(None, 0)
        for unit in units:
            unit.fetched_at -= _LATE_ARRIVAL_SECONDS
        has_come = self._buffer.keep(units)
        if has_come:
            with self._change.lock:
                self._change.wake(has_come)
                is_waited = self._is_led or self._is_accompanied
            if is_waited:
                # A processor became the leader in between, and is waiting for other jobs.
                self.wake()

    # ---- leading

    def _lead(self, before_waiting: Callable[[], None] | None) -> None:
        """
        Fetch or wait until the buffer holds a job or it is time to stop.

        The first fetch is skipped if all of these hold: no job's end has commands to write, only one move has to be
        opened, the last job had to be waited for, and Redis accepts fetches. The move then brings whatever is there
        just as well, and carries the pending acknowledgements.
        """
        settler = self._settler
        is_due = (
            self._has_backlog
            or settler.has_ends_to_write
            or not self._waits_for_all
            or self._waiters.closed > 1
            or self._redis_errors.is_refused("fetching")
        )
        pause = self._poll_seconds
        while not (self.is_quiet or self._buffer.jobs or self.leaving):
            work = "waiting"
            self.pulse.waits(0.0)
            try:
                # After a long sleep this owner may have been recovered, and a new one has to be registered before it
                # waits: nobody looks into the inboxes of others. A fetch sees to both.
                if is_due or not self._ownership.trusts(monotonic()):
                    work = "fetching"
                    owner = self._ownership.current
                    with self._buffer.fetching:
                        self._buffer.refill(self.idle)
                    if self._buffer.jobs:
                        return
                    self._has_backlog = False
                    if owner is not self._ownership.current:
                        # The new epoch may wait for jobs only after a fetch has registered it.
                        continue
                    work = "waiting"
                if before_waiting is not None:
                    before_waiting()
                is_due = self._watch()
            except RedisError as error:
                is_due = True
                if before_waiting is not None:
                    before_waiting()
                if _is_out_of_memory(error):
                    # With its memory full, Redis refuses blocking moves, but the fetch script still works.
                    self._quiet.wait(pause)
                    pause = min(2 * pause, RETRY_SECONDS)
                    continue
                self._redis_errors.offline(error, work)
                self._quiet.wait(RETRY_SECONDS)

    def _accompany(self, before_waiting: Callable[[], None] | None) -> None:
        """Wait beside the leader, once, on the connection that carries the acknowledgements."""
        try:
            if before_waiting is not None:
                before_waiting()
            self._open_moves()
            if self._waiters.any_unwatched and self._collect(self._companion_pipe, None):
                self._has_backlog = True
        except RedisError as error:
            # The leader tries again, after a pause.
            if not _is_out_of_memory(error):
                self._redis_errors.offline(error, "waiting")

    def _watch(self) -> bool:
        """Wait on the queues. Returns True if a fetch is due afterwards."""
        is_each_open, is_each_waited_for = self._open_moves(), self._queues.are_all_waited_for
        self._waits_for_all = is_each_open and is_each_waited_for
        seconds = None if self._waits_for_all else self._poll_seconds
        if not is_each_open and is_each_waited_for and self._buffer.are_only_paused:
            seconds = _PAUSED_SECONDS
        cool_until = self._waiters.cool_until
        if cool_until:
            seconds = min(seconds or 1.0, max(0.001, cool_until - monotonic()))
        return self._collect(self._leader_pipe, seconds)

    def _open_moves(self) -> bool:
        """Open the blocking moves and send the acknowledgements. Returns False if some queues must not be waited on."""
        shut = self._buffer.shut_queues
        self._waiters.open(shut)
        if self._settler.has_pending:
            self._flush()
        return not shut

    def _collect(self, pipe: tuple[int, int], seconds: float | None) -> bool:
        """Wait for jobs for up to *seconds*. Returns True if a fetch is due afterwards."""
        asked_at = monotonic()
        self.pulse.waits(BLOCK_SECONDS if seconds is None else seconds)
        units, is_signalled = self._waiters.collect(pipe[0], seconds)
        # At once: if the next lines raise, as the program's log may, another call takes the jobs from there.
        has_come = self._buffer.keep(units)
        # A signal may end the wait before Redis has said that it refuses the move.
        if units or not is_signalled:
            self._redis_errors.online("waiting")
        must_look_up = is_signalled and _LOOK_UP in _received(pipe)
        if has_come:
            # The queue already had jobs if the move did not have to wait.
            self._has_backlog = self._buffer.note_arrival() - asked_at < _AT_ONCE_SECONDS
        return must_look_up or (seconds is not None and not has_come)

    def _flush(self) -> None:
        self._redis_errors.attempt(self._settler.flush, "acknowledging")


def _is_out_of_memory(error: RedisError) -> bool:
    return isinstance(error, RedisReplyError) and error.code == "OOM"


def _send(pipe: tuple[int, int], message: bytes) -> None:
    try:
        os.write(pipe[1], message)
    except BlockingIOError:
        pass


def _received(pipe: tuple[int, int]) -> bytes:
    found = b""
    try:
        while part := os.read(pipe[0], 1024):
            found += part
    except BlockingIOError:
        pass
    return found
