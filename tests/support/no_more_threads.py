"""A system that allows no more threads."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

# As much as there are addresses, so the kernel refuses it. Programs in other processes may set it themselves.
IMPOSSIBLE_STACK_BYTES = 2**47


def without_more_threads(call: Callable[[], T]) -> T:
    """
    Make a call while no thread of this process can start, and return its result.

    It is made in a thread of its own: CPython 3.11.7 loses the exceptions that are raised from outside in a thread that
    once could not start another one, and later tests raise some in the main thread.
    """

    def run() -> T:
        before = threading.stack_size(IMPOSSIBLE_STACK_BYTES)
        try:
            return call()
        finally:
            threading.stack_size(before)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()
