"""Time that is handed in."""

from datetime import UTC, datetime, timedelta


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)

    def now(self) -> datetime:
        """The time that was set."""
        return self.time

    def advance(self, seconds: float) -> None:
        """Later; or earlier."""
        self.time += timedelta(seconds=seconds)
