"""Exceptions that strike a call at the beginning and end of each Python function that it calls."""

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any


class Struck(BaseException):
    """Raised by `strike_everywhere`."""


def strike_everywhere(call: Callable[[], object], check: Callable[[], None]) -> int:
    """
    Call *call* in a thread again and again, struck at its first, second, … beginning or end of a Python function.

    Args:
        check: Called after each of these calls, in this thread.

    Returns:
        The number of places.
    """
    places = 0
    while True:
        is_over: list[bool] = []
        thread = threading.Thread(target=_struck_at, args=(places, call, is_over), daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), f"after place {places} the call hangs"
        check()
        if is_over:
            return places
        places += 1


def _struck_at(place: int, call: Callable[[], object], is_over: list[bool]) -> None:
    seen = -1

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal seen
        frame.f_trace_lines = False
        seen += 1
        if seen == place:
            raise Struck
        return trace

    before = sys.gettrace()
    # The collector may run anywhere, and a strike in the destructor of another test's garbage is reported as an error.
    gc.disable()
    sys.settrace(trace)
    try:
        call()
        is_over.append(True)
    except Struck:
        pass
    finally:
        sys.settrace(before)
        gc.enable()
