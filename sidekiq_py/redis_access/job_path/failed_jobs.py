"""Where failed jobs wait: what to send to add to `retry` and `dead`, and how `dead` is kept small."""

from dataclasses import dataclass
from typing import Any

from sidekiq_py.wire import keys
from sidekiq_py.wire.payload import score_text

Command = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class DeadLimits:
    """
    What the dead set keeps.

    Args:
        max_jobs: One more than the entries that stay, as in Ruby, whose UI then shows the same number.
        timeout_seconds: Entries that are older go.
    """

    max_jobs: int
    timeout_seconds: int

    def oldest_score(self, now: float) -> str:
        """Entries up to this score go."""
        return score_text(now - self.timeout_seconds)

    @property
    def last_rank(self) -> int:
        """Entries from rank 0 to this one go."""
        return -self.max_jobs


def add_to_retry(member: bytes, score: float) -> Command:
    """The command that lets a job wait until *score*, epoch seconds."""
    return ("ZADD", keys.RETRY, score_text(score), member)


def add_to_dead(member: bytes, now: float) -> Command:
    """The command that keeps a job for a person to look at."""
    return ("ZADD", keys.DEAD, score_text(now), member)


def trim_dead(now: float, limits: DeadLimits) -> list[Command]:
    """
    The commands that follow `add_to_dead`.

    Source: Sidekiq 6.4.1, api.rb, `DeadSet#kill`; 8.1.7, job_retry.rb, `send_to_morgue`.
    """
    return [
        ("ZREMRANGEBYSCORE", keys.DEAD, "-inf", limits.oldest_score(now)),
        ("ZREMRANGEBYRANK", keys.DEAD, 0, limits.last_rank),
    ]
