"""What the parent of `--processes N` tells systemd, if it listens. By its one thread: there is no other."""

from collections.abc import Mapping

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.report.systemd import ServiceNotifier, watchdog_seconds


class ParentService:
    """
    The parent as a service of `Type=notify`.

    Args:
        variables: The environment's variables.
        pid: Of this process.
    """

    def __init__(self, variables: Mapping[str, str], pid: int) -> None:
        self._notifier = ServiceNotifier(variables)
        self._watchdog_seconds = watchdog_seconds(variables, pid) if self._notifier.is_wanted else None
        self._is_ready_sent = not self._notifier.is_wanted
        self._ping_at = 0.0

    @property
    def next_at(self) -> float | None:
        """When the watchdog is to be fed, on the monotonic clock; None: never."""
        return None if self._watchdog_seconds is None else self._ping_at

    def step(self, *, is_ready: bool) -> None:
        """Say READY once, and feed the watchdog when it is time."""
        if is_ready and not self._is_ready_sent:
            self._is_ready_sent = self._notifier.send("READY=1")
        if self._watchdog_seconds is not None and monotonic() >= self._ping_at:
            self._ping_at = monotonic() + self._watchdog_seconds / 2
            self._notifier.send("WATCHDOG=1")

    def stopping(self) -> None:
        """The stop has begun. The watchdog is fed on."""
        self._notifier.stopping()
