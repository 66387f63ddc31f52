"""A promise that threads share: the one that waits for a result, and the one in which it arrives."""

import sys
import threading
from typing import Any

from vine import promise  # type: ignore[import-untyped]
from vine.abstract import Thenable  # type: ignore[import-untyped]


class SharedPromise(promise):  # type: ignore[misc]
    """
    One of kombu's promises, which calls each callback once.

    vine's own loses a callback that is added while it is fulfilled, and calls one that was added later again if it is
    fulfilled again, as by a `get` of the same result.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Never held while a callback runs.
        self._changing = threading.Lock()
        self._waiting: list[Any] = []
        super().__init__(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._changing:
            if self.ready or self.failed or self.cancelled:
                return None
            fulfilled = super().__call__(*args, **kwargs)
            waiting = self._taken()
        args, kwargs = self.value
        for callback in waiting:
            callback(*args, **kwargs)
        return fulfilled

    def then(self, callback: Any, on_error: Any = None) -> Any:
        """Call *callback* once this is fulfilled; at once if it is."""
        waits = callback if isinstance(callback, Thenable) else promise(callback, on_error=on_error)
        with self._changing:
            if not (self.ready or self.failed or self.cancelled):
                self._waiting.append(waits)
                return waits
        # Not left to vine, which would tell it again if this fails now or later.
        if self.cancelled:
            waits.cancel()
        elif self.failed:
            waits.throw(self.reason)
        else:
            args, kwargs = self.value
            waits(*args, **kwargs)
        return waits

    def cancel(self) -> None:
        """Call none of the callbacks."""
        with self._changing:
            waiting = self._taken()
            super().cancel()
        for callback in waiting:
            callback.cancel()

    def throw(self, exc: BaseException | None = None, tb: Any = None, propagate: bool = True) -> None:
        """Fail, and raise."""
        with self._changing:
            waiting = self._taken()
            if not self.cancelled:
                # Those that are added from here on are told at once.
                self.failed, self.reason = True, exc or sys.exc_info()[1]
        try:
            super().throw(exc, tb, propagate)
        finally:
            for callback in waiting:
                callback.throw1(self.reason)

    def _taken(self) -> list[Any]:
        waiting, self._waiting = self._waiting, []
        return waiting
