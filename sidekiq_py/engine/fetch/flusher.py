"""
The thread that takes care of a capsule's jobs while every processor is busy.

It sleeps until its alarm is armed, ticks every few milliseconds as long as there is work, and goes back to sleep. In an
idle process it never wakes up. While jobs arrive one at a time, processors acknowledge them themselves, and only remind
the flusher: it looks 20 times a second. Waking it for each of them was a third of a worker's context switches.
"""

import threading
from collections.abc import Callable

from sidekiq_py.engine.background import background_thread, wait_for_end

TICK_SECONDS = 0.005
REMINDER_SECONDS = 0.05
RETRY_SECONDS = 0.5


class Alarm:
    """Wakes the flusher when there is work. Safe to use from any thread."""

    __slots__ = ("_event", "_is_reminded", "is_armed")

    def __init__(self) -> None:
        self.is_armed = False
        self._is_reminded = False
        self._event = threading.Event()

    def arm(self) -> None:
        """Announce work for the flusher. Costs next to nothing if the alarm is already armed."""
        if not self.is_armed:
            self.is_armed = True
            self._event.set()

    def remind(self) -> None:
        """Announce work that the calling thread is about to do itself, in case it does not get to it."""
        if not (self._is_reminded or self.is_armed):
            self._is_reminded = True
            self._event.set()

    def ring(self) -> None:
        """Wake the flusher whether or not the alarm is armed."""
        self._event.set()

    def wait(self) -> None:
        """Block until the alarm is armed or rung, or until `REMINDER_SECONDS` after a reminder."""
        self._event.wait()
        self._event.clear()
        if self._is_reminded and not self.is_armed:
            self._event.wait(REMINDER_SECONDS)
            self._event.clear()
        # What is announced from here on counts as a new reminder.
        self._is_reminded = False


class Flusher:
    """
    Calls `tick` as long as there is work. Stopping twice is fine.

    Args:
        name: The thread's name.
        alarm: Wakes the thread.
        tick: Does the work that is due. Returns False if that failed; the next tick then comes later.
        is_needed: Returns True while there is work.
    """

    def __init__(self, name: str, alarm: Alarm, tick: Callable[[], bool], is_needed: Callable[[], bool]) -> None:
        self._tick = tick
        self._is_needed = is_needed
        self._alarm = alarm
        self._is_stopped = False
        self._thread = background_thread(name, self._run)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Waits at most one second for it, even if it is waiting for Redis."""
        self._is_stopped = True
        self._alarm.ring()
        wait_for_end(self._thread, 1)

    def _run(self) -> None:
        pause = threading.Event()
        # There may be work left from an earlier run of this thread, which failed.
        self._alarm.ring()
        while not self._is_stopped:
            self._alarm.wait()
            while not self._is_stopped and (self._alarm.is_armed or self._is_needed()):
                pause.wait(TICK_SECONDS)
                if not self._tick():
                    pause.wait(RETRY_SECONDS)
                if not self._is_needed():
                    # Work that came since that check is found by the next one.
                    self._alarm.is_armed = False
