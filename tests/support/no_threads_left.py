"""
A test that fails may leave a thread behind that nothing ends, and Python waits at its exit for every thread that is no
daemon: the run would be over, and its process never. Here it says what they do, and ends with an error.

The hooks work in every conftest.py that imports them.
"""

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import thread as executors

import pytest

PATIENCE_SECONDS = 10.0


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_unconfigure() -> Generator[None, object, object]:
    """The outermost, so that reports are written and summaries printed by then."""
    result = yield
    deadline = time.monotonic() + PATIENCE_SECONDS
    left = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    # As at the exit: threads of executors end when they have nothing to do.
    with executors._global_shutdown_lock:
        executors._shutdown = True
    for work in list(executors._threads_queues.values()):
        work.put(None)
    for thread in left:
        thread.join(max(0.0, deadline - time.monotonic()))
    stuck = [thread.name for thread in left if thread.is_alive()]
    if stuck:
        print(f"\nERROR threads were left that do not end: {', '.join(stuck)}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(sys.__stderr__)
        sys.stdout.flush()
        os._exit(1)
    return result
