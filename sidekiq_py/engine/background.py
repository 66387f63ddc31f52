"""Background threads of a worker that survive any error."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from sidekiq_py.copied_threads import bind
from sidekiq_py.logs import log

_PAUSE_SECONDS = 1.0


def background_thread(name: str, loop: Callable[[], None]) -> threading.Thread:
    """
    Create a daemon thread that runs *loop* until it returns. If *loop* raises, that is logged and it runs again. The
    thread is not started.

    Each loop handles the errors that it expects. This is for all others: if one of them ended the thread, it would go
    unnoticed until the lease is gone or jobs no longer start. For a SystemExit, Python prints nothing at all.
    """

    def run() -> None:
        bind()
        while True:
            try:
                loop()
                return
            except BaseException:  # noqa: BLE001 — no other thread would take over this work
                # Logging may fail, too: without memory, or with a log handler that exits.
                with suppress(BaseException):
                    log.critical("the thread %s failed unexpectedly; it starts again", name, exc_info=True)
            time.sleep(_PAUSE_SECONDS)

    return threading.Thread(target=run, name=name, daemon=True)


def started(thread: threading.Thread) -> threading.Thread:
    """
    Start *thread* and return it, so that an attribute holds only a thread that runs: `self._thread = started(…)`.

    Raises:
        RuntimeError: The system allows no more threads.
    """
    thread.start()
    return thread


def wait_for_end(thread: threading.Thread | None, seconds: float) -> None:
    """Wait this long for the end of *thread*, unless it was never started or is the calling thread itself."""
    if thread is not None and thread is not threading.current_thread() and thread.is_alive():
        thread.join(timeout=seconds)
