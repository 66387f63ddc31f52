"""
A thread that calls functions at set times: for bootsteps, `worker.timer.call_repeatedly(…)`, and for the snapshots of
monitors.
"""

import logging
import sched
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

logger = logging.getLogger("celery.timer")


class Entry:
    """A scheduled call."""

    def __init__(self, call: Callable[[], Any], repeats_after: float | None = None) -> None:
        self.call = call
        self.repeats_after = repeats_after
        self.canceled = False

    def __call__(self) -> Any:
        """Call the function now, as well."""
        return self.call()

    def cancel(self) -> None:
        """Cancel this call."""
        self.canceled = True


class Timer:
    """Starts its thread with the first call that is scheduled. An error in a call is logged."""

    def __init__(self) -> None:
        self._calls = sched.scheduler(time.monotonic)
        self._changed = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def call_after(
        self,
        secs: float,
        fun: Callable[..., Any],
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
        priority: int = 0,
    ) -> Entry:
        """Call *fun* once, in *secs* seconds."""
        return self._enter(secs, Entry(lambda: fun(*args, **(kwargs or {}))))

    def call_at(
        self,
        eta: float | datetime,
        fun: Callable[..., Any],
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
        priority: int = 0,
    ) -> Entry:
        """Call *fun* once, at *eta*: a datetime, or seconds since the epoch."""
        at = eta.timestamp() if isinstance(eta, datetime) else eta
        return self.call_after(at - time.time(), fun, args, kwargs)

    def call_repeatedly(
        self,
        secs: float,
        fun: Callable[..., Any],
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
        priority: int = 0,
    ) -> Entry:
        """Call *fun* every *secs* seconds."""
        return self._enter(secs, Entry(lambda: fun(*args, **(kwargs or {})), repeats_after=secs))

    def cancel(self, tref: Entry) -> None:
        """Cancel that call."""
        tref.cancel()

    def clear(self) -> None:
        """Cancel all calls."""
        for call in self._calls.queue:
            call.argument[0].cancel()

    def stop(self) -> None:
        """Make no more calls, and wait for one that is running."""
        self._is_stopped = True
        self._changed.set()
        with self._starting:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _enter(self, seconds: float, entry: Entry) -> Entry:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="celery.timer", daemon=True)
                thread.start()
                self._thread = thread
        self._calls.enter(seconds, 0, self._call, (entry,))
        self._changed.set()
        return entry

    def _run(self) -> None:
        while not self._is_stopped:
            self._changed.wait(self._calls.run(blocking=False))
            self._changed.clear()

    def _call(self, entry: Entry) -> None:
        if entry.canceled or self._is_stopped:
            return
        try:
            entry.call()
        except Exception as error:
            logger.error("Timer error: %r", error, exc_info=error)
        if entry.repeats_after is not None:
            self._enter(entry.repeats_after, entry)


class Hub:
    """
    The timer, with the calls that programs make to Celery's event loop: `worker.hub.call_repeatedly(…)`.

    Args:
        timer: The worker's.
    """

    def __init__(self, timer: Timer) -> None:
        self.timer = timer

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Entry:
        """Call *callback* once, on the timer's thread."""
        return self.timer.call_after(0, callback, args)

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Entry:
        """Call *callback* once, in *delay* seconds."""
        return self.timer.call_after(delay, callback, args)

    def call_at(self, when: float | datetime, callback: Callable[..., Any], *args: Any) -> Entry:
        """Call *callback* once, at *when*: a datetime, or seconds since the epoch."""
        return self.timer.call_at(when, callback, args)

    def call_repeatedly(self, delay: float, callback: Callable[..., Any], *args: Any) -> Entry:
        """Call *callback* every *delay* seconds."""
        return self.timer.call_repeatedly(delay, callback, args)
