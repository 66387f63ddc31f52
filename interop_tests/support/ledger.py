"""Helpers for inspecting Redis: the ledger that jobs write, making sets due, and masking what differs in payloads."""

import json
import re
from typing import Any, cast

import redis

LEDGER = "fixture:ledger"
GATE = "fixture:gate"

# A jid that Sidekiq or the client generated, and times in the format of any release.
_DRAWN = re.compile(
    rb'"(jid|created_at|enqueued_at|failed_at|retried_at)":("[0-9a-f]{24}"|\d{10}\.\d{1,7}|\d{13})(?=[,}])'
)


def entries(client: redis.Redis, key: str = LEDGER) -> list[Any]:
    """The entries of the runs, in the order of the ledger."""
    return [line["entry"] for line in lines(client, key)]


def lines(client: redis.Redis, key: str = LEDGER) -> list[dict[str, Any]]:
    """The ledger: `entry`, `jid`, `by` ("ruby" or "python") and `pid` of each run."""
    return [json.loads(line) for line in client.lrange(key, 0, -1)]


def open_gate(client: redis.Redis) -> None:
    """Open the gate, so that the jobs waiting for it end."""
    client.set(GATE, "1")


def raw_jobs(client: redis.Redis, queue: str) -> list[bytes]:
    """The raw texts of a queue, newest first."""
    return cast(list[bytes], client.lrange(f"queue:{queue}", 0, -1))


def members(client: redis.Redis, set_name: str) -> list[bytes]:
    """The raw texts of a sorted set, by score."""
    return cast(list[bytes], client.zrange(set_name, 0, -1))


def make_due(client: redis.Redis, set_name: str) -> None:
    """Set every score of a sorted set to the past, so that the next poll takes all of it."""
    for member in members(client, set_name):
        client.zadd(set_name, {member: 1.0}, xx=True)


def only_member(client: redis.Redis, set_name: str) -> bytes | None:
    """The raw text of the one member of a sorted set; None unless there is exactly one."""
    found = members(client, set_name)
    return found[0] if len(found) == 1 else None


def only_job(client: redis.Redis, set_name: str) -> dict[str, Any] | None:
    """The payload of the one member of a sorted set; None unless there is exactly one."""
    member = only_member(client, set_name)
    return json.loads(member) if member is not None else None


def masked(raw: bytes) -> bytes:
    """A payload's bytes with `_` for each generated jid and each time; only those in a valid format are replaced."""
    return _DRAWN.sub(rb'"\1":_', raw)
