"""A system that allows no more threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

# As much as there are addresses, so the kernel refuses it. Programs in other processes may set it themselves.
IMPOSSIBLE_STACK_BYTES = 2**47


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Within the context, no thread of this process can start; those that run go on."""
    before = threading.stack_size(IMPOSSIBLE_STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(before)
