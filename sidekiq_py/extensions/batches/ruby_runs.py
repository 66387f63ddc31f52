"""
Members that Ruby processes run: noted at their start by the support file, as Sidekiq's BRPOP leaves them nowhere in
Redis.

Where the process is gone they are pushed again.
"""

import logging
import time
from collections.abc import Iterator

from sidekiq_py.extensions.batches import steps
from sidekiq_py.extensions.batches.steps import RUBY_PROCESSES, ruby_runs_key
from sidekiq_py.logs import counted
from sidekiq_py.redis_access.connection.pool import Pool

_log = logging.getLogger("sidekiq")

# Ruby's processes beat every ten seconds.
_TWO_BEATS_SECONDS = 20.0


def payloads(pool: Pool) -> Iterator[bytes]:
    """The bytes of what all Ruby processes run of batches."""
    for identity in pool.command("SMEMBERS", RUBY_PROCESSES):
        for text in pool.command("HVALS", ruby_runs_key(identity.decode())):
            yield text.partition(b"\n")[2]


class RubyRuns:
    """
    Looks after them.

    Args:
        away_seconds: A process whose heartbeat is gone for so long counts as dead.
    """

    def __init__(self, *, away_seconds: float = _TWO_BEATS_SECONDS) -> None:
        self._away_seconds = away_seconds
        self._away_since: dict[str, float] = {}

    def run(self, pool: Pool) -> float | None:
        """
        One look.

        Raises:
            RedisError: As `Pool.run` does.
        """
        identities = [identity.decode() for identity in pool.command("SMEMBERS", RUBY_PROCESSES)]
        beats = pool.batch([("EXISTS", identity) for identity in identities]) if identities else []
        away = {identity for identity, beat in zip(identities, beats, strict=True) if not beat}
        now = time.monotonic()
        self._away_since = {identity: self._away_since.get(identity, now) for identity in away}
        for identity, since in list(self._away_since.items()):
            if now - since >= self._away_seconds:
                count = steps.recover_ruby(pool, identity)
                if count:
                    _log.warning(
                        "the Ruby process %s is gone; pushed again: %s of batches", identity, counted(count, "job")
                    )
                del self._away_since[identity]
        return min(self._away_seconds / 2, 10.0) if self._away_since else None
