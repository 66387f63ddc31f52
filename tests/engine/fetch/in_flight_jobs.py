"""Short ways to fetch and to look at what is in flight."""

import hashlib
from collections.abc import Iterable
from typing import Any

import redis

from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.redis_access.job_path.in_flight import FETCH, FetchPlan

OWNER = "host:1:abc:1"
ABOUT = '{"boot":"b","pidns":"n","pid":1,"start":2,"queues":["default","low"]}'


def fetch(
    link: Link,
    *queues: tuple[str, int],
    owner: str = OWNER,
    batch: int = 1,
    registration: str = ABOUT,
    max_jobs: int = 10,
    max_bytes: int = 1_000_000,
    seed: int = 1,
    may_take_marked: bool = True,
    lease_ms: int = 30_000,
) -> list[tuple[bytes, bytes]]:
    """Run `fetch.lua`; the fields and the bytes of the jobs that it took."""
    plan = FetchPlan(
        owner, registration, lease_ms, batch, queues or (("default", 0),), max_jobs, max_bytes, seed, may_take_marked
    )
    reply = FETCH.run(link, *plan.command_parts())
    return list(zip(reply[2::2], reply[3::2], strict=True))


def claim(link: Link, raw: bytes, *, owner: str = OWNER, number: str = "7.0", queue: str = "default") -> bytes | None:
    """Run `claim.lua` for a job in an inbox; the field of what was claimed."""
    reply: list[bytes] | None = in_flight.claim(link, owner, number, queue, raw)
    return reply[0] if reply is not None else None


def acknowledge(link: Link, *fields: bytes, listed: Iterable[tuple[str, bytes]] = ()) -> int:
    """Acknowledge jobs; how many were still in flight."""
    return sum(link.batch(in_flight.acknowledge_commands(OWNER, fields, listed)))


def jobs_of(pairs: list[tuple[bytes, bytes]]) -> list[bytes]:
    """Only the bytes."""
    return [raw for _, raw in pairs]


def push(client: redis.Redis, *jobs: str, queue: str = "default") -> None:
    """Push jobs; the first is the next to run."""
    client.lpush(f"queue:{queue}", *jobs)


def held(client: redis.Redis, owner: str = OWNER) -> dict[bytes, bytes]:
    """What is in flight."""
    found: Any = client.hgetall(f"sidekiq_py:inflight:{owner}")
    return found  # type: ignore[no-any-return]


def digest(raw: bytes) -> str:
    """The name of a suspect."""
    return hashlib.sha1(raw, usedforsecurity=False).hexdigest()
