"""
Ends a worker process at once when its work is done.

Python itself would first wait for executor threads, for non-daemon threads and for `multiprocessing` processes. A job
may have left one behind long ago, and a deploy would then wait forever.
"""

import atexit
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any, NoReturn

from sidekiq_py.logs import log

# The time for all `atexit` handlers together.
_HANDLERS_SECONDS = 3.0
# The part of it that the process pools get.
_POOLS_SECONDS = 1.0


def end_process(code: int) -> NoReturn:
    """Call the program's `atexit` handlers, flush the output streams, and exit. Call it from the main thread."""
    try:
        threading.Thread(target=_end_later, args=(code,), name="sidekiq.end", daemon=True).start()
        _flush()
        _call_exit_handlers()
        logging.shutdown()
        _flush()
    finally:
        os._exit(code)


def call_exit_handlers_while_jobs_run() -> None:
    """
    Call the program's `atexit` handlers, for a process in which jobs go on running until it ends.

    They run in a thread of their own, because the main thread may be one that a job keeps.
    """
    calling = threading.Thread(target=_call_exit_handlers, name="sidekiq.exit_handlers", daemon=True)
    try:
        calling.start()
    except RuntimeError as error:
        log.error("the program's exit handlers cannot be called: %s", error)
        return
    calling.join(_HANDLERS_SECONDS)


def _end_later(code: int) -> None:
    time.sleep(_HANDLERS_SECONDS)
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # There may be no such stream, it may be closed, or its reader may be gone.
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()


def _call_exit_handlers() -> None:
    end_process_pools()
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is None:
        atexit._run_exitfuncs()
        return
    # The handler of `multiprocessing` waits for processes without a limit. So it runs last, and waits only for daemon
    # processes, which it terminates.
    atexit.unregister(multiprocessing._exit_function)
    atexit._run_exitfuncs()
    children = sys.modules["multiprocessing.process"].active_children
    multiprocessing._exit_function(active_children=lambda: [child for child in children() if child.daemon])


def end_process_pools() -> None:
    """
    End the processes of every `ProcessPoolExecutor`. They would outlive this one, and wait for calls forever.

    Those that are busy get a moment to finish. Nobody could receive what they return later.
    """
    pools: Any = sys.modules.get("concurrent.futures.process")
    # A process that was forked has copies of its parent's threads, and must leave the parent's pools alone.
    managers = [] if pools is None else [thread for thread in list(pools._threads_wakeups) if thread.is_alive()]
    if not managers:
        return
    processes = [process for manager in managers for process in list(manager.processes.values())]
    # What Python calls before its own `atexit` handlers. It waits without a limit.
    ending = threading.Thread(target=pools._python_exit, name="sidekiq.pools", daemon=True)
    ending.start()
    ending.join(_POOLS_SECONDS)
    for process in processes:
        with suppress(ValueError):  # it is closed
            process.terminate()
