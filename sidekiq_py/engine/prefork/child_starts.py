"""How the children of a prefork pool start: how long to wait after one that died young, and when there is no hope."""

# After a child that died young the next one waits: a program that cannot start must not take the machine.
_YOUNG_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 10.0
# How often each may fail before any has started: a service manager then sees the failure, and tries again in its way.
_ROUNDS = 3


class ChildStarts:
    """
    What is known of starts so far.

    Args:
        processes: How many children are wanted.

    Attributes:
        tries: How many children have died before any was ready.
        next_at: When the next one may start, on the monotonic clock.
    """

    def __init__(self, processes: int) -> None:
        self.next_at = 0.0
        self.tries = 0
        self._most_tries = _ROUNDS * processes
        self._deaths_in_a_row = 0
        self._has_any_started = False

    @property
    def has_given_up(self) -> bool:
        """None has ever become ready, and enough have tried."""
        return not self._has_any_started and self.tries >= self._most_tries

    def note_ready(self) -> None:
        """A child works."""
        self._has_any_started = True

    def note_stop(self) -> None:
        """A child has ended as it was told to."""
        self._deaths_in_a_row = 0

    def note_death(self, *, was_ready: bool, age_seconds: float, now: float) -> float | None:
        """
        A child has died.

        Args:
            now: On the monotonic clock.

        Returns:
            For how many seconds no child is to be started; None where that is no start that failed.
        """
        self.tries += 1
        if was_ready and age_seconds > _YOUNG_SECONDS:
            self._deaths_in_a_row = 0
            return None
        # Five are enough for the longest pause; the power of thousands is no float any more.
        self._deaths_in_a_row = min(self._deaths_in_a_row + 1, 5)
        pause = min(0.5 * 2.0**self._deaths_in_a_row, _LONGEST_PAUSE_SECONDS)
        self.next_at = now + pause
        return pause
