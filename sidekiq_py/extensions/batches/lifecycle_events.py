"""
Emits telemetry events for batches, whichever language opens and finishes them.

A batch ends inside Redis, in the script that settles its last member. So one process of the fleet polls, and emits
events for what has changed since the last time.
"""

from sidekiq_py.extensions.batches import steps
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import name_in, pairs
from sidekiq_py.telemetry import BATCH

MOST = 1000
"""The newest batches are watched, up to this many; each costs Redis one HMGET per check."""

_ENDS = ("complete", "success", "death")
_FIELDS = ("created_at", *(f"{event}_at" for event in _ENDS))


class LifecycleEvents:
    """What one process knows of batches. Those that exist at its first check cause no events."""

    def __init__(self) -> None:
        # In order of creation; the events that were emitted for each.
        self._watched: dict[bytes, set[str]] = {}
        # The latest creation time so far, and the batches created in that second.
        self._latest: float | None = None
        self._born_then: set[bytes] = set()

    def run(self, pool: Pool) -> None:
        """
        Check once; does nothing if there are no handlers.

        Raises:
            RedisError: As for `Pool.run`.
        """
        if not BATCH.handlers:
            self._watched, self._latest = {}, None
            return
        is_first = self._latest is None
        if is_first:
            running = pool.command("ZREVRANGE", steps.RUNNING, 0, MOST - 1)
            self._watched = {bid: set() for bid in reversed(running)}
        for bid in self._births(pool):
            self._watched.setdefault(bid, set())
            if not is_first:
                BATCH.emit({"bid": name_in(bid), "event": "created"})
        for bid in list(self._watched)[:-MOST]:
            del self._watched[bid]
        self._look(pool, is_news=not is_first)

    def _births(self, pool: Pool) -> list[bytes]:
        if self._latest is None:
            found = pool.command("ZREVRANGE", steps.ALL, 0, 0, "WITHSCORES")
            self._latest = float(found[1]) if found else 0.0
        found = pool.command("ZRANGEBYSCORE", steps.ALL, self._latest, "+inf", "WITHSCORES")
        births = [(bid, float(score)) for bid, score in pairs(found)]
        new = [bid for bid, _ in births if bid not in self._born_then]
        if births:
            self._latest = births[-1][1]
            self._born_then = {bid for bid, score in births if score == self._latest}
        return new

    def _look(self, pool: Pool, *, is_news: bool) -> None:
        bids = list(self._watched)
        commands = [("HMGET", steps.key(name_in(bid)), *_FIELDS) for bid in bids]
        for bid, reply in zip(bids, pool.well_typed(commands), strict=True):
            if reply is None:
                # Another program has overwritten the batch.
                del self._watched[bid]
                continue
            created_at, *moments = reply
            emitted = self._watched[bid]
            for event, moment in zip(_ENDS, moments, strict=True):
                if moment is not None and event not in emitted:
                    emitted.add(event)
                    if is_news:
                        BATCH.emit({"bid": name_in(bid), "event": event})
            if "success" in emitted or created_at is None:
                del self._watched[bid]
