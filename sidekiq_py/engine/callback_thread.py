"""
Calls the program's handlers in a separate thread, on behalf of threads that must not wait for them.

The lease keeper protects this process's jobs, and the housekeeper recovers those of dead processes. Neither may wait
for an error handler that talks to a slow service, or for a death handler that sends an email.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from sidekiq_py.engine.background import background_thread, started
from sidekiq_py.logs import counted, log


class CallbackThread:
    """
    Makes one call after the other, in a thread that starts with the first call. Stopping twice, or before a start, is
    fine.
    """

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def call(self, handler: Callable[[], object]) -> None:
        """Call *handler* soon, in the callback thread."""
        with self._change:
            self._calls.append(handler)
            if self._thread is None:
                # If the system allows no more threads, the next call tries again and takes this one along.
                with suppress(RuntimeError):
                    self._thread = started(background_thread("sidekiq.handlers", self._run))
            self._change.notify()

    def stop(self, within_seconds: float) -> None:
        """Wait up to this long for the pending calls."""
        with self._change:
            self._is_stopped = True
            self._change.notify()
        if self._thread is not None:
            self._thread.join(within_seconds)
            if self._calls:
                log.warning("%s not called, because earlier ones took too long", counted(len(self._calls), "handler"))

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._calls:
                    if self._is_stopped:
                        return
                    self._change.wait()
                handler = self._calls.popleft()
            try:
                handler()
            except BaseException:  # noqa: BLE001 — the next handlers must still be called
                log.exception("a handler failed")
