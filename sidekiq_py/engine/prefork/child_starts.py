"""When a prefork pool starts its children: the backoff after one that died young, and when to give up."""

# After a child that died young, the next start waits: a program that cannot start must not use up the machine.
_YOUNG_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 10.0
# How often each child may fail before any has started. A service manager then sees the failure and can restart us.
_ROUNDS = 3


class ChildStarts:
    """
    Keeps track of starts and failures.

    Args:
        processes: The wanted number of children.

    Attributes:
        tries: The number of children that have died.
        next_at: When the next child may start, on the monotonic clock.
        are_refused: True if a child has refused the settings, as any other would.
    """

    def __init__(self, processes: int) -> None:
        self.next_at = 0.0
        self.tries = 0
        self.are_refused = False
        self._most_tries = _ROUNDS * processes
        self._deaths_in_a_row = 0
        self._has_any_started = False

    @property
    def has_given_up(self) -> bool:
        """True if no child has ever become ready, and enough have tried or the settings are refused."""
        return not self._has_any_started and (self.are_refused or self.tries >= self._most_tries)

    def note_ready(self) -> None:
        """A child has become ready."""
        self._has_any_started = True

    def note_stop(self) -> None:
        """A child has ended as it was asked to."""
        self._deaths_in_a_row = 0

    def note_death(self, *, was_ready: bool, age_seconds: float, now: float) -> float | None:
        """
        A child has died.

        Args:
            age_seconds: How long ago it became ready, or was forked if it did not.
            now: The current time on the monotonic clock.

        Returns:
            How many seconds to wait before the next start; None if the child did not die young.
        """
        self.tries += 1
        if was_ready and age_seconds > _YOUNG_SECONDS:
            self._deaths_in_a_row = 0
            return None
        # Five deaths reach the longest pause. Without this bound, 2.0 ** thousands would overflow a float.
        self._deaths_in_a_row = min(self._deaths_in_a_row + 1, 5)
        pause = min(0.5 * 2.0**self._deaths_in_a_row, _LONGEST_PAUSE_SECONDS)
        self.next_at = now + pause
        return pause
