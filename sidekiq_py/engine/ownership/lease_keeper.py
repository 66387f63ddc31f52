"""
The thread that sees to it that the lease is renewed, and does nothing else.

Usually the housekeeper renews it, in a packet that it sends anyway. This thread does so if that is a second late, and
with every third beat, over a connection of its own that is therefore open. When it opened one only in need, Redis would
not let it in after its password had changed, and a job that outlived a stop ran twice.

When a lease has been missing for long enough, other processes recover the owner's jobs. So this thread waits for
nothing but its own connection. Everything else that can block is left to other threads: recovery, the program's
handlers, locks that are held across a round trip, and a log whose reader is slow. When the thread that renewed the
lease also checked 1,200 departed owners over a connection with 40 ms latency, the lease ran out during a job, which
then ran twice.

The one thing it cannot avoid is Python's interpreter lock. While a job holds that lock (a C extension, a regular
expression that never ends), the lease is not renewed. All this thread can do is to log it afterwards.
"""

import math
import threading
import time
from typing import Any

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.background import background_thread, wait_for_end
from sidekiq_py.engine.callback_thread import CallbackThread
from sidekiq_py.engine.downtime import Outage
from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.engine.pulse import Pulse
from sidekiq_py.errors import RedisError, ReplyLostError
from sidekiq_py.logs import log
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.telemetry import Report

_RETRY_SECONDS = 0.5
# How late the housekeeper may be, as a share of its beat.
_LATE_SHARE = 0.2
# How often this thread renews the lease in any case.
_OWN_BEATS = 3


class LeaseKeeper:
    """
    Renews the lease until stopped. Stopping twice, or before a start, is fine.

    Args:
        pool: Opens this thread's own connection.
        beat_seconds: The time from one renewal by the housekeeper to the next.
        callbacks: The thread that calls *report* and writes to the log.
        report: Called with errors.

    Attributes:
        pulse: The thread's pulse.
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
        # Give up on a reply early enough to try another connection before the lease runs out.
        patience = min(pool.settings.socket_timeout_seconds, self._lease_seconds / 3)
        self._link = pool.new_link(timeout_seconds=patience)
        self._ownership = ownership
        self._beat_seconds = beat_seconds
        self._callbacks = callbacks
        self._report = report
        self._outage = Outage(self._queue_report, "the lease could not be renewed; trying again")
        self._end = threading.Event()
        self.pulse = Pulse()
        self._thread = background_thread("sidekiq.lease", self._run)

    def start(self) -> None:
        """Start the thread. Does not block."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. From here on nothing protects this process's jobs from recovery."""
        self._end.set()
        wait_for_end(self._thread, self._link.timeout_seconds + 1)
        if not self._thread.is_alive():
            self._link.close()

    def _run(self) -> None:
        due, cpu_seconds = monotonic(), time.process_time()
        # When this thread last renewed the lease itself.
        own_at = -math.inf
        while not self._end.wait(self.pulse.waits(max(0.0, due - monotonic()))):
            now = monotonic()
            self._note_delay(now - due, time.process_time() - cpu_seconds)
            due = min(
                self._ownership.current.renewed_at + self._beat_seconds * (1 + _LATE_SHARE),
                own_at + self._beat_seconds * _OWN_BEATS,
            )
            if due <= now:
                is_renewed = self._renew()
                # Counted from the request, not from the reply: a slow connection must not stretch the beat. But the
                # time in which Redis did not reply is no delay of this process.
                retry_seconds = min(_RETRY_SECONDS, self._beat_seconds)
                due = now + self._beat_seconds if is_renewed else monotonic() + retry_seconds
                # Nothing is sent before the owner is registered.
                own_at = now if is_renewed and self._link.is_open else -math.inf
            cpu_seconds = time.process_time()

    def _renew(self) -> bool:
        try:
            try:
                self._ownership.renew(self._link)
            except ReplyLostError:
                # Redis may have closed the idle connection while the request was on its way.
                self._ownership.renew(self._link)
        except RedisError as error:
            self._outage.failed(error)
            return False
        except Exception as error:  # noqa: BLE001 — without this thread the process would count as dead
            self._queue_report(error, {"context": "lease"})
            return False
        self._outage.over()
        return True

    def _queue_report(self, error: BaseException, context: dict[str, Any]) -> None:
        self._callbacks.call(lambda: self._report(error, context))

    def _note_delay(self, seconds: float, cpu_seconds: float) -> None:
        """Log it if a renewal was *seconds* late, which is too much. The process used *cpu_seconds* meanwhile."""
        if seconds < self._lease_seconds / 3:
            return
        if cpu_seconds > seconds / 2:
            reason = (
                "A job held Python's interpreter lock (a C extension, or a regular expression that never ends). Make "
                "it release the lock, or run it in a worker with a longer --lease-seconds"
            )
        else:
            reason = (
                "The process was frozen, the machine is overloaded, or native code was waiting while it held the lock"
            )
        text = (
            "The lease was renewed %.1f seconds late. After %g s without a renewal, other workers may run this "
            "worker's jobs. %s"
        )
        self._callbacks.call(lambda: log.warning(text, seconds, self._lease_seconds, reason))
