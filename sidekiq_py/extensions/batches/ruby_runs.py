"""
Members that Ruby processes are running. The support file records them at their start, because Sidekiq's BRPOP leaves no
trace of them in Redis.

If the process dies, they are pushed again.
"""

import time
from collections.abc import Iterator

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extensions.batches import steps
from sidekiq_py.extensions.batches.steps import RUBY_PROCESSES, ruby_runs_key
from sidekiq_py.logs import counted, log
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import name_in

# Ruby's processes send a heartbeat every ten seconds.
_TWO_BEATS_SECONDS = 20.0


def payloads(pool: Pool) -> Iterator[bytes]:
    """The payloads of all batch members that Ruby processes are running."""
    # A key of the wrong type must not hide what the other processes run.
    for texts in pool.well_typed([("HVALS", ruby_runs_key(identity)) for identity in _identities(pool)]):
        for text in texts or ():
            yield text.partition(b"\n")[2]


class RubyRuns:
    """
    Recovers the members that dead Ruby processes were running.

    Args:
        away_seconds: A process counts as dead after its heartbeat was missing for this long.
    """

    def __init__(self, *, away_seconds: float = _TWO_BEATS_SECONDS) -> None:
        self._away_seconds = away_seconds
        self._away_since: dict[str, float] = {}
        # The processes whose members cannot be pushed again, as logged already.
        self._refused: set[str] = set()

    def run(self, pool: Pool) -> float | None:
        """
        Check all processes once.

        Raises:
            RedisError: As for `Pool.run`.
        """
        identities = _identities(pool)
        beats = pool.batch([("EXISTS", identity) for identity in identities])
        away = {identity for identity, beat in zip(identities, beats, strict=True) if not beat}
        now = time.monotonic()
        self._away_since = {identity: self._away_since.get(identity, now) for identity in away}
        for identity, since in list(self._away_since.items()):
            if now - since >= self._away_seconds:
                count = self._recover(pool, identity)
                if count:
                    log.warning(
                        "the Ruby process %s is gone; pushed again: %s of batches", identity, counted(count, "job")
                    )
                del self._away_since[identity]
        return min(self._away_seconds / 2, 10.0) if self._away_since else None

    def _recover(self, pool: Pool, identity: str) -> int:
        """Push what a process was running again, as far as no other program has written to its key or the queues'."""
        try:
            pushed, left = steps.recover_ruby(pool, identity)
        except RedisReplyError as error:
            if error.is_about_server:
                raise
            self._refuse(identity, str(error))
            return 0
        if left:
            self._refuse(identity, f"{left} of its entries cannot be read, or a queue's key is not a list")
        return pushed

    def _refuse(self, identity: str, reason: str) -> None:
        if identity not in self._refused:
            self._refused.add(identity)
            key = ruby_runs_key(identity)
            log.error("not all that %s was running can be pushed again: %s; see %s", identity, reason, key)


def _identities(pool: Pool) -> list[str]:
    return [*map(name_in, pool.command("SMEMBERS", RUBY_PROCESSES))]
