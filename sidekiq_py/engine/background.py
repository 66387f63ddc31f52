"""Threads of a worker that no error ends."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

_log = logging.getLogger("sidekiq")

_PAUSE_SECONDS = 1.0


def background_thread(name: str, loop: Callable[[], None]) -> threading.Thread:
    """
    A daemon thread, not started yet, that runs *loop* until it returns. Where it raises, the log says so and it is run
    again.

    Each loop handles the errors that it expects. This is for the others: a thread that ends by one is missed by
    nobody (of a SystemExit Python does not print a word) until the lease is gone, or jobs no longer start.
    """

    def run() -> None:
        while True:
            try:
                loop()
                return
            except BaseException:  # noqa: BLE001 — whatever it is, nobody else would go on with this work
                # Without memory, or by a log handler that exits, not even that may be possible.
                with suppress(BaseException):
                    _log.critical("the thread %s failed unexpectedly; it starts again", name, exc_info=True)
            time.sleep(_PAUSE_SECONDS)

    return threading.Thread(target=run, name=name, daemon=True)
