"""
Tells handlers of telemetry what becomes of batches, in whichever language they are opened and end.

A batch ends inside Redis, by the script that ends its last member. So one process of the fleet looks, and tells of what
has changed since its last look.
"""

from sidekiq_py.extensions.batches import steps
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.telemetry import BATCH

MOST = 1000
"""So many batches are watched, the newest; each costs Redis one HMGET a look."""

_ENDS = ("complete", "success", "death")
_FIELDS = ("created_at", *(f"{event}_at" for event in _ENDS))


class Telling:
    """What one process knows of batches: those there were at its first look are no news."""

    def __init__(self) -> None:
        # By birth; what was told of each.
        self._watched: dict[bytes, set[str]] = {}
        # The latest birth so far, and who shares that second.
        self._latest: float | None = None
        self._born_then: set[bytes] = set()

    def run(self, pool: Pool) -> None:
        """
        One look; none if nobody listens.

        Raises:
            RedisError: As `Pool.run` does.
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
                BATCH.emit({"bid": bid.decode(), "event": "created"})
        for bid in list(self._watched)[:-MOST]:
            del self._watched[bid]
        self._look(pool, is_news=not is_first)

    def _births(self, pool: Pool) -> list[bytes]:
        if self._latest is None:
            found = pool.command("ZREVRANGE", steps.ALL, 0, 0, "WITHSCORES")
            self._latest = float(found[1]) if found else 0.0
        found = pool.command("ZRANGEBYSCORE", steps.ALL, self._latest, "+inf", "WITHSCORES")
        births = [(bid, float(score)) for bid, score in zip(found[::2], found[1::2], strict=True)]
        new = [bid for bid, _ in births if bid not in self._born_then]
        if births:
            self._latest = births[-1][1]
            self._born_then = {bid for bid, score in births if score == self._latest}
        return new

    def _look(self, pool: Pool, *, is_news: bool) -> None:
        bids = list(self._watched)
        commands = [("HMGET", steps.key(bid.decode()), *_FIELDS) for bid in bids]
        for bid, (created_at, *moments) in zip(bids, pool.batch(commands) if bids else (), strict=True):
            told = self._watched[bid]
            for event, moment in zip(_ENDS, moments, strict=True):
                if moment is not None and event not in told:
                    told.add(event)
                    if is_news:
                        BATCH.emit({"bid": bid.decode(), "event": event})
            if "success" in told or created_at is None:
                del self._watched[bid]
