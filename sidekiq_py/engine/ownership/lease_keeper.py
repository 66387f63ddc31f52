"""
The thread that renews the lease, and does nothing else.

Whoever misses a lease for long enough takes the jobs behind it. So this thread waits for nothing but its own
connection: recovery, handlers of the program, locks that others hold across a round trip and a log that is read slowly
are all the business of other threads. Renewed by the thread that also looked after 1,200 departed owners over a link of
40 ms, the lease ran out in the middle of a job, which then ran twice.

One thing it cannot do without is Python's interpreter lock. A job that keeps it (a C extension, a regular expression
without end) keeps the lease from being renewed, and all that can be done here is to say so afterwards.
"""

import logging
import threading
import time
from typing import Any

from sidekiq_py.clock import Wakeable, monotonic
from sidekiq_py.engine.background import background_thread
from sidekiq_py.engine.callback_thread import CallbackThread
from sidekiq_py.engine.downtime import Outage, Report
from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.engine.pulse import Pulse
from sidekiq_py.errors import RedisError, ReplyLostError
from sidekiq_py.redis_access.connection.pool import Pool

_log = logging.getLogger("sidekiq")

_RETRY_SECONDS = 0.5


class LeaseKeeper:
    """
    Starts, renews until stopped. Stopping twice, or before a start, is fine.

    Args:
        pool: A link of its own comes from there.
        beat_seconds: From one renewal to the next.
        callbacks: Where *report* is called, and the log written.
        report: Told of errors.

    Attributes:
        pulse: Of the thread.
    """

    def __init__(
        self,
        pool: Pool,
        ownership: Ownership,
        beat_seconds: float,
        *,
        callbacks: CallbackThread,
        report: Report,
    ) -> None:
        self._lease_seconds = ownership.lease_ms / 1000
        # A reply that has not come by then is not waited for: another connection may still be in time.
        patience = min(pool.settings.socket_timeout_seconds, self._lease_seconds / 3)
        self._link = pool.new_link(timeout_seconds=patience)
        self._ownership = ownership
        self._beat_seconds = beat_seconds
        self._callbacks = callbacks
        self._report = report
        self._outage = Outage(self._tell, "the lease could not be renewed; trying again")
        self._end = Wakeable()
        self.pulse = Pulse()
        self._thread = background_thread("sidekiq.lease", self._run)

    def start(self) -> None:
        """Start the thread. Does not block."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; from here on nothing keeps this process's claim to its jobs."""
        self._end.wake()
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._thread.join(timeout=self._link.timeout_seconds + 1)
        if not self._thread.is_alive():
            self._link.close()

    def _run(self) -> None:
        due, cpu_seconds = monotonic(), time.process_time()
        while not self._end.wait(self.pulse.waits(max(0.0, due - monotonic()))):
            asked_at = monotonic()
            self._note_delay(asked_at - due, time.process_time() - cpu_seconds)
            is_renewed = self._renew()
            # From the question, not from the reply: a slow link must not stretch the beat.
            due = asked_at + (self._beat_seconds if is_renewed else min(_RETRY_SECONDS, self._beat_seconds))
            cpu_seconds = time.process_time()

    def _renew(self) -> bool:
        try:
            try:
                self._ownership.renew(self._link)
            except ReplyLostError:
                # Redis may have closed the connection, as it was idle, while the question was on its way.
                self._ownership.renew(self._link)
        except RedisError as error:
            self._outage.failed(error)
            return False
        except Exception as error:  # noqa: BLE001 — without this thread the process would be taken for dead
            self._tell(error, {"context": "lease"})
            return False
        self._outage.over()
        return True

    def _tell(self, error: BaseException, context: dict[str, Any]) -> None:
        self._callbacks.call(lambda: self._report(error, context))

    def _note_delay(self, seconds: float, cpu_seconds: float) -> None:
        """It got no turn for so long, in which this process used so much CPU time."""
        if seconds < self._lease_seconds / 3:
            return
        if cpu_seconds > seconds / 2:
            reason = (
                "A job kept Python's interpreter lock (a C extension, or a regular expression without end). Make it "
                "release the lock, or run it in a worker with a longer --lease-seconds"
            )
        else:
            reason = (
                "The process was frozen, the machine is overloaded, or native code waited with the lock in its hands"
            )
        text = "The lease was renewed %.1f seconds late, of the %g after which others may run this worker's jobs. %s"
        self._callbacks.call(lambda: _log.warning(text, seconds, self._lease_seconds, reason))
