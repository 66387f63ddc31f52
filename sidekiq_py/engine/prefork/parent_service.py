"""Reports the state of the parent of `--processes N` to systemd, from the parent's only thread."""

from collections.abc import Mapping

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.report.systemd import ServiceNotifier


class ParentService:
    """
    The parent as a service of `Type=notify`.

    Args:
        variables: The environment variables.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._notifier = ServiceNotifier(variables)
        self._watchdog_seconds = self._notifier.watchdog_seconds if self._notifier.is_wanted else None
        self._is_ready_sent = not self._notifier.is_wanted
        self._ping_at = 0.0

    @property
    def next_at(self) -> float | None:
        """When the next watchdog ping is due, on the monotonic clock; None if there is no watchdog."""
        return None if self._watchdog_seconds is None else self._ping_at

    def step(self, *, is_ready: bool) -> None:
        """Send READY once, and ping the watchdog when it is time."""
        if is_ready and not self._is_ready_sent:
            self._is_ready_sent = self._notifier.send("READY=1")
        if self._watchdog_seconds is not None and monotonic() >= self._ping_at:
            self._ping_at = monotonic() + self._watchdog_seconds / 2
            self._notifier.send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the stop has begun. Watchdog pings continue."""
        self._notifier.stopping()
