"""
The thread that looks after a capsule's jobs while every processor is busy.

It sleeps until it is armed, ticks every few milliseconds for as long as there is something to look after, and sleeps
again: an idle process has no flusher that wakes up.
"""

import threading
from collections.abc import Callable
from typing import Any

from sidekiq_py.engine.background import background_thread
from sidekiq_py.errors import RedisError

TICK_SECONDS = 0.005
RETRY_SECONDS = 0.5


class Alarm:
    """Tells the flusher that there is something to look after. From any thread."""

    __slots__ = ("_event", "is_armed")

    def __init__(self) -> None:
        self.is_armed = False
        self._event = threading.Event()

    def arm(self) -> None:
        """There is something to look after. Costs next to nothing where that is known already."""
        if not self.is_armed:
            self.is_armed = True
            self._event.set()

    def ring(self) -> None:
        """Let who waits look, whether it is armed or not."""
        self._event.set()

    def wait(self) -> None:
        """Until it is armed."""
        self._event.wait()
        self._event.clear()


class Flusher:
    """
    Calls `tick` while it is needed. Stopping twice is fine.

    Args:
        name: Of the thread.
        alarm: Wakes it.
        tick: Looks after whatever there is.
        is_needed: There is something to look after.
        on_offline: Told when Redis was out of reach in a tick.
        report: Told of any other error.
    """

    def __init__(
        self,
        name: str,
        alarm: Alarm,
        tick: Callable[[], None],
        is_needed: Callable[[], bool],
        *,
        on_offline: Callable[[RedisError], None],
        report: Callable[[BaseException, dict[str, Any]], None],
    ) -> None:
        self._tick = tick
        self._is_needed = is_needed
        self._on_offline = on_offline
        self._report = report
        self._alarm = alarm
        self._is_stopped = False
        self._thread = background_thread(name, self._run)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; one that waits for Redis is not waited for."""
        self._is_stopped = True
        self._alarm.ring()
        if self._thread.is_alive():
            self._thread.join(timeout=1)

    def _run(self) -> None:
        pause = threading.Event()
        if self._alarm.is_armed:
            # It was, when this thread failed.
            self._alarm.ring()
        while not self._is_stopped:
            self._alarm.wait()
            while not self._is_stopped:
                pause.wait(TICK_SECONDS)
                if not self._tick_safely():
                    pause.wait(RETRY_SECONDS)
                if not self._is_needed():
                    self._alarm.is_armed = False
                    # What came between the look and the flag would go unseen.
                    if self._is_needed():
                        self._alarm.arm()
                    break

    def _tick_safely(self) -> bool:
        try:
            self._tick()
        except RedisError as error:
            self._on_offline(error)
            return False
        except Exception as error:  # noqa: BLE001 — the flusher must outlive any single failure
            self._report(error, {"context": "flusher"})
            return False
        return True
