"""
How a worker process ends once its work is done: at once.

Python would first wait for threads of executors, for threads that are no daemons and for processes of
`multiprocessing`, which a job of long ago may have left behind: a deploy would wait with it for ever.
"""

import atexit
import logging
import os
import sys
import threading
import time
from typing import NoReturn

# What the handlers of `atexit` are given, all together.
_HANDLERS_SECONDS = 3.0


def end_process(code: int) -> NoReturn:
    """Call the program's `atexit` handlers, write out what is buffered, and end this process. In the main thread."""
    try:
        threading.Thread(target=_end_later, args=(code,), name="sidekiq.end", daemon=True).start()
        _flush()
        _call_exit_handlers()
        logging.shutdown()
        _flush()
    finally:
        os._exit(code)


def _end_later(code: int) -> None:
    time.sleep(_HANDLERS_SECONDS)
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            # There is none, it is closed, or nobody reads it any more.
            pass


def _call_exit_handlers() -> None:
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is None:
        atexit._run_exitfuncs()
        return
    # Its own handler waits for processes without a limit: it comes last, and waits for none but daemons, which it ends.
    atexit.unregister(multiprocessing._exit_function)
    atexit._run_exitfuncs()
    children = sys.modules["multiprocessing.process"].active_children
    multiprocessing._exit_function(active_children=lambda: [child for child in children() if child.daemon])
