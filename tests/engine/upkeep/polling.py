"""Parts that move due jobs, and the jobs that they move."""

import json
from collections.abc import Callable
from typing import Any

import redis

from sidekiq_py.config import Config
from sidekiq_py.engine.upkeep.poller import Poller
from sidekiq_py.engine.upkeep.promoter import Promoter
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path.push import Outgoing
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.payload import for_queue, prepare_repush

V6 = Dialect.pinned("6.4.1")
NOW = 1_700_000_000.5
LONG_AGO = 1_600_000_000


def job(jid: str, **changes: Any) -> bytes:
    """A scheduled payload in Ruby's spelling."""
    payload = {"retry": True, "queue": "default", "class": "Hard", "args": [], "jid": jid, "created_at": 1.5, **changes}
    return json.dumps(payload, separators=(",", ":")).encode()


def repush(payload: dict[str, Any]) -> Outgoing | None:
    """What a client without middleware makes of a stored payload."""
    ready = prepare_repush(payload, dialect=V6, now=NOW, jid="")
    return Outgoing(ready["jid"], ready["queue"], None, for_queue(ready, dialect=V6, now=NOW))


class Polling:
    """Makes pollers and promoters on one server, and keeps what they report."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.reported: list[tuple[BaseException, dict[str, Any]]] = []
        self._pollers: list[Poller] = []
        self._pools: list[Pool] = []

    def promoter(self, repush: Callable[[dict[str, Any]], Outgoing | None] = repush, **clocks: Any) -> Promoter:
        """One with a pool of its own."""
        return Promoter(
            Config().dead_limits,
            pool=self._new_pool(),
            repush=repush,
            dialect=lambda: V6,
            report=self._report,
            **clocks,
        )

    def poller(
        self, identity: str = "me", config: Config | None = None, promoter: Promoter | None = None, **options: Any
    ) -> Poller:
        """One with a pool of its own."""
        poller = Poller(
            config or Config(),
            pool=self._new_pool(),
            identity=identity,
            promoter=promoter or self.promoter(),
            dialect=lambda: V6,
            report=self._report,
            **options,
        )
        self._pollers.append(poller)
        return poller

    def close(self) -> None:
        """End all."""
        for poller in self._pollers:
            poller.stop()
        for pool in self._pools:
            pool.close()

    def _new_pool(self) -> Pool:
        self._pools.append(Pool(RedisSettings(self.url, socket_timeout_seconds=2)))
        return self._pools[-1]

    def _report(self, error: BaseException, context: dict[str, Any]) -> None:
        self.reported.append((error, context))


def contents(client: redis.Redis, name: str) -> list[Any]:
    """A queue, the job that runs next first."""
    members: Any = client.lrange(f"queue:{name}", 0, -1)
    return list(reversed(members))


def jids(members: Any) -> list[str]:
    """The jids of payloads."""
    return [json.loads(member)["jid"] for member in members]
