"""The commands that add failed jobs to `retry` and `dead`, and that trim `dead`."""

from typing import Any, NamedTuple

from sidekiq_py.wire import keys
from sidekiq_py.wire.payload import score_text

Command = tuple[Any, ...]


class DeadLimits(NamedTuple):
    """
    The limits of the dead set.

    Args:
        max_jobs: One more than the number of entries that stay, as in Ruby, whose UI then shows the same number.
        timeout_seconds: Older entries are removed.
    """

    max_jobs: int
    timeout_seconds: int

    def oldest_score(self, now: float) -> str:
        """Entries up to this score are removed."""
        return score_text(now - self.timeout_seconds)

    @property
    def last_rank(self) -> int:
        """Entries from rank 0 to this one are removed."""
        return -self.max_jobs


def add_to_retry(member: bytes, score: float) -> Command:
    """The command that adds a job to the retry set until *score*, epoch seconds."""
    return ("ZADD", keys.RETRY, score_text(score), member)


def add_to_dead(member: bytes, now: float) -> Command:
    """The command that adds a job to the dead set, for a person to look at."""
    return ("ZADD", keys.DEAD, score_text(now), member)


def trim_dead(now: float, limits: DeadLimits) -> list[Command]:
    """
    The commands that trim the dead set after `add_to_dead`.

    Source: Sidekiq 6.4.1, api.rb, `DeadSet#kill`; 8.1.7, job_retry.rb, `send_to_morgue`.
    """
    return [
        ("ZREMRANGEBYSCORE", keys.DEAD, "-inf", limits.oldest_score(now)),
        ("ZREMRANGEBYRANK", keys.DEAD, 0, limits.last_rank),
    ]
