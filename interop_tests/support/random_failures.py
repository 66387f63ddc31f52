"""Random payloads of jobs that raise, with keys in any order, at any point of their life, and with all options."""

import random
from typing import Any

BACKTRACE = ["app/a.rb:1:in `x'", "app/é.rb:2:in `y'", "app/c.rb:3:in `z'"]
MESSAGES = ["boom", "", "é\u2028😀", "x" * 9_999, "x" * 10_000, "x" * 10_001, 'a\nb"\\', "\u0000"]
CLASSES = [*["FixtureJob"] * 6, "RetryThreeJob", "RetryFalseJob", "RetryInJob", "NeverDeadJob"]
# Marks a key that is absent.
ABSENT = object()


class RandomFailures:
    """
    Generates payloads.

    Args:
        seed: The same seed gives the same payloads.
        milliseconds: True for times in Sidekiq 8's format.
    """

    def __init__(self, seed: int, *, milliseconds: bool) -> None:
        self._random = random.Random(seed)
        self._milliseconds = milliseconds

    def payload(self) -> dict[str, Any]:
        """One payload; its job raises what its arguments say."""
        error = self._random.choice(["FixtureError", "Fixtures::NestedError"])
        fields: dict[str, list[Any]] = {
            "retry": [*[True] * 6, False, None, ABSENT, 0, 1, 3, 25, "3", 1.5, -1],
            "queue": ["default", "default", "elsewhere"],
            "class": [*CLASSES],
            "args": [["raise", self._random.choice(MESSAGES), error, BACKTRACE]],
            "jid": ["a" * 24, "odd", "é"],
            "created_at": [self._time(1_699_999_000.5), 1_699_999_000.25, ABSENT],
            "enqueued_at": [self._time(1_699_999_001.5), ABSENT],
            **(self._earlier_failure() if self._random.random() < 0.6 else {}),
            "backtrace": [*[ABSENT] * 5, True, False, 0, 1, 2, 5, "2", -1, None],
            "retry_queue": [*[ABSENT] * 5, "slow", None],
            "dead": [*[ABSENT] * 5, True, False, None],
            "retry_for": [*[ABSENT] * 5, None, 10, 600, 3600, 30 * 86_400],
            "extra": [ABSENT, ABSENT, {"b": 1, "a": 10**25}, [1.5, 1e22, 1e-7, -0.0]],
            "tags": [ABSENT, ["x"]],
        }
        drawn = [(name, self._random.choice(values)) for name, values in fields.items()]
        if self._random.random() < 0.5:
            self._random.shuffle(drawn)
        return {name: value for name, value in drawn if value is not ABSENT}

    def _earlier_failure(self) -> dict[str, list[Any]]:
        failed_at = [self._time(1_699_999_500.5), self._time(1_699_999_500.5), 1_699_990_000.5, 1_699_999_999.5]
        return {
            "retry_count": [0, 0, 1, 2, 3, 8, 23, 24, 25, 100, None],
            "failed_at": failed_at,
            "error_message": ["old", ABSENT],
            "error_class": ["OldError", ABSENT],
            "retried_at": [self._time(1_699_999_600.5), ABSENT],
            "error_backtrace": [ABSENT, ABSENT, "eJyLjgUAARUAuQ=="],
        }

    def _time(self, seconds: float) -> float | int:
        return int(seconds * 1000) if self._milliseconds else seconds
