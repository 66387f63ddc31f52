"""
Processors that have nothing to run, of which one leads.

The leader fetches, and where there is nothing to fetch it waits on all queues at once. It runs what comes itself;
another idle processor takes its place.
"""

import os
import threading

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.fetch.buffer import Buffer
from sidekiq_py.engine.fetch.flusher import RETRY_SECONDS, Alarm
from sidekiq_py.engine.fetch.idle_workers import IdleWorkers
from sidekiq_py.engine.fetch.served_queues import ServedQueues
from sidekiq_py.engine.fetch.settle import Settler
from sidekiq_py.engine.fetch.trouble import Trouble
from sidekiq_py.engine.fetch.waiters import BLOCK_SECONDS, Waiters
from sidekiq_py.engine.fetch.wake_pipe import wake_pipe
from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.engine.pulse import Pulse
from sidekiq_py.errors import RedisError, RedisReplyError

# A job that came sooner was there when it was asked for: a trip to Redis and back takes longer than to wait for none.
_AT_ONCE_SECONDS = 0.001
# A job that came while nobody led goes back so much sooner than what was fetched ahead.
_LATE_ARRIVAL_SECONDS = 0.010
# A leader that waits for a reply from a Redis that hangs cannot be called off.
_LEADER_EXIT_SECONDS = 5.0
# What the leader is told through its pipe: to look whether it is to go on, or to hand in what has succeeded.
_LOOK_UP = b"."
_HAND_IN = b"!"


class Leader:
    """
    One capsule's. Safe from any thread.

    Args:
        waiters: Used by the leader, or by the flusher while there is none.
        buffer: Where jobs go.
        settler: Has what is handed in along the way.
        alarm: Rung when the flusher is to look after open moves.
        poll_seconds: So often queues are looked at that nobody waits for.

    Attributes:
        is_quiet: Nobody leads any more.
        idle: How many processors wait.
        leaving: How many are to end.
        pulse: Of whoever leads; it rests while no processor is idle.
    """

    def __init__(
        self,
        waiters: Waiters,
        buffer: Buffer,
        queues: ServedQueues,
        settler: Settler,
        ownership: Ownership,
        trouble: Trouble,
        alarm: Alarm,
        poll_seconds: float,
    ) -> None:
        self._waiters = waiters
        self._buffer = buffer
        self._queues = queues
        self._settler = settler
        self._ownership = ownership
        self._trouble = trouble
        self._alarm = alarm
        self._poll_seconds = poll_seconds
        self._change = IdleWorkers()
        self.idle = 0
        self.leaving = 0
        self.pulse = Pulse()
        self._is_led = False
        # More jobs may wait than the last look has brought, so that the next is to be a fetch.
        self._has_backlog = True
        # Moves on all queues are open while the leader waits.
        self._waits_for_all = False
        self._wake_read, self._wake_write = wake_pipe(self)
        self.is_quiet = False
        self._quiet = threading.Event()

    def __repr__(self) -> str:
        return f"<Leader of {self.idle} idle{', led' if self._is_led else ''}>"

    # ---- for processors

    def wait(self) -> bool:
        """Until there are jobs in the buffer; False: stop. One of those that wait leads."""
        # With a backlog the next fetch is near, and takes it along.
        if self._is_led and self._settler.has_pending and not self._has_backlog:
            if self._settler.has_plain_pending:
                self._signal(_HAND_IN)
            else:
                self._flush()
        jobs = self._buffer.jobs
        with self._change:
            self.idle += 1
            while True:
                if self.is_quiet or jobs or self.leaving:
                    self.idle -= 1
                    if not self.idle:
                        self.pulse.rests()
                    elif not self._is_led:
                        # It was woken to lead, perhaps, and has found a job that came meanwhile. Unless another one
                        # leads, idle processors stand beside a full queue until one of those at work has ended.
                        self._change.wake(1)
                    return not self.is_quiet
                if not self._is_led:
                    self._is_led = True
                    break
                self._change.park()
        try:
            self._lead()
        finally:
            with self._change:
                self._is_led = False
                self.idle -= 1
                if self.idle:
                    # Another one takes the lead, or a job.
                    self.pulse.waits(0.0)
                else:
                    self.pulse.rests()
                is_last = self.idle < max(1, len(jobs))
                # As many as there is work for, and always one to take the lead.
                self._change.wake(max(1, len(jobs)))
            if is_last and self._waiters.any_open:
                # Nobody leads until a job has ended, and what the other moves bring must not wait for that.
                self._alarm.arm()
        return True

    def may_leave(self) -> bool:
        """The processor that asks is one of those that are to end."""
        with self._change:
            may = self.leaving > 0
            self.leaving -= may
            return may

    # ---- for others

    def release(self, processors: int) -> None:
        """So many processors are to end."""
        with self._change:
            self.leaving += processors
            self._change.wake(processors)
        # Of idle ones, the leader may be the only one.
        self.wake()

    def wake(self) -> None:
        """Let the leader look up: there is room again, or it is time to stop."""
        self._signal(_LOOK_UP)

    def quiet(self) -> None:
        """Send the processors away; late arrivals are the flusher's from here on."""
        with self._change:
            self.is_quiet = True
            self._change.wake_all()
        self._quiet.set()
        self.wake()
        give_up_at = monotonic() + _LEADER_EXIT_SECONDS
        while self._is_led and monotonic() < give_up_at:
            threading.Event().wait(0.001)

    @property
    def has_untended_moves(self) -> bool:
        """
        Moves are open, and nobody leads who would look after them. A leader that was told to go may still be opening
        one: who reads that connection beside it takes its replies away, and it waits for them until a timeout.
        """
        return not self._is_led and self._waiters.any_open

    def read_late_arrivals(self) -> None:
        """While nobody leads: what the waiters bring now has no processor free."""
        with self._change:
            if not self.has_untended_moves:
                return
            units, _ = self._waiters.collect(None, 0)
        for unit in units:
            unit.fetched_at -= _LATE_ARRIVAL_SECONDS
        has_come = self._buffer.keep(units)
        if has_come:
            with self._change:
                self._change.wake(has_come)
                is_led = self._is_led
            if is_led:
                # By one that came in between, and waits for other jobs.
                self.wake()

    # ---- leading

    def _lead(self) -> None:
        """
        Fetch or wait until the buffer holds something, or it is time to stop.

        Where no end is to be written, one move is to be opened, and the last job had to be waited for, nothing is
        fetched first: the move brings what there is just as well, and takes along what has succeeded.
        """
        has_ends = self._settler.has_pending and not self._settler.has_plain_pending
        is_due = self._has_backlog or has_ends or not self._waits_for_all or self._waiters.closed > 1
        while not (self.is_quiet or self._buffer.jobs or self.leaving):
            work = "waiting"
            self.pulse.waits(0.0)
            try:
                # After a long sleep this owner may have been struck off: a fetch finds out, a move would not.
                if is_due or not self._ownership.trusts(monotonic()):
                    work = "fetching"
                    owner = self._ownership.current
                    with self._buffer.fetching:
                        self._buffer.refill(self.idle)
                        self._trouble.online(work)
                    if self._buffer.jobs:
                        return
                    self._has_backlog = False
                    if owner is not self._ownership.current:
                        # The next epoch can wait for jobs only when a fetch has entered it.
                        continue
                    work = "waiting"
                is_due = self._watch()
                self._trouble.online(work)
            except RedisError as error:
                is_due = True
                if isinstance(error, RedisReplyError) and error.code == "OOM":
                    # Into a full Redis nothing is moved by a blocking command; a fetch goes through.
                    self._quiet.wait(self._poll_seconds)
                    continue
                self._trouble.offline(error, work)
                self._quiet.wait(RETRY_SECONDS)

    def _watch(self) -> bool:
        """Wait on the queues; True if a fetch is due afterwards."""
        shut = self._buffer.shut_queues
        self._waiters.open(shut)
        if self._settler.has_pending:
            self._flush()
        self._waits_for_all = not shut and self._queues.are_all_waited_for
        seconds = None if self._waits_for_all else self._poll_seconds
        asked_at = monotonic()
        cool_until = self._waiters.cool_until
        if cool_until:
            seconds = min(seconds or 1.0, max(0.001, cool_until - monotonic()))
        self.pulse.waits(BLOCK_SECONDS if seconds is None else seconds)
        units, is_signalled = self._waiters.collect(self._wake_read, seconds)
        must_look_up = is_signalled and _LOOK_UP in self._signals()
        has_come = self._buffer.keep(units)
        if has_come:
            # A move that did not have to wait has met a queue with jobs.
            self._has_backlog = self._buffer.note_arrival() - asked_at < _AT_ONCE_SECONDS
        return must_look_up or (seconds is not None and not has_come)

    def _flush(self) -> None:
        self._trouble.attempt(self._settler.flush, "acknowledging")

    def _signal(self, what: bytes) -> None:
        try:
            os.write(self._wake_write, what)
        except BlockingIOError:
            pass

    def _signals(self) -> bytes:
        """What came through the pipe."""
        found = b""
        try:
            while part := os.read(self._wake_read, 1024):
                found += part
        except BlockingIOError:
            pass
        return found
