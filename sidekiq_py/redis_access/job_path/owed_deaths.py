"""
Which death handlers are still to be called.

The script that ends a job for good also writes down that its death is to be announced; once the handlers have been
called it is struck off. What a process that was killed has left is taken over by another one, and by one only.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError, PayloadError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.redis_access.job_path.settle_script import SETTLE
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.payload import dump, parse_job

# Without any process that has death handlers nobody strikes off what was written by `sidekiq-py recover`.
_TTL_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Death:
    """
    A job that will not be tried again.

    Args:
        payload: As death handlers get it.
        error_class: The name of what it failed by, and `message`.
    """

    payload: dict[str, Any]
    error_class: str
    message: str


def record_of(payload: Mapping[str, Any], raw: bytes, error_class: str, message: str, dialect: Dialect) -> bytes:
    """
    What is written down of a death.

    Args:
        raw: The job's own bytes: they stand for a payload that cannot be written again.
    """
    try:
        job = dump(payload, dialect=dialect)
    except (ArgumentTypeError, ArgumentValueError):
        job = raw
    return json.dumps({"error_class": error_class, "message": message}).encode() + b"\n" + job


def death_of(record: bytes) -> Death | None:
    """The other way round; None for what nobody of ours has written."""
    about, _, job = record.partition(b"\n")
    try:
        said = json.loads(about)
        return Death(parse_job(job), str(said["error_class"]), str(said["message"]))
    except (ValueError, TypeError, KeyError, PayloadError):
        return None


def field_of(owner: str, number: int) -> bytes:
    """Names a death that this owner has to announce."""
    return f"{owner} {number}".encode()


def owner_in(field: bytes) -> str:
    """Who has to announce it."""
    return field.rpartition(b" ")[0].decode(errors="replace")


def owe(field: bytes, record: bytes) -> Sequence[Command]:
    """The commands that write a death down; they go among the counters of its script, as nothing depends on them."""
    return ("HSET", keys.DEATHS, field, record), ("EXPIRE", keys.DEATHS, _TTL_SECONDS)


def fields(link: Link) -> list[bytes]:
    """Of all deaths that are still to be announced."""
    found: list[bytes] = link.command("HKEYS", keys.DEATHS)
    return found


def entered(link: Link, owners: Collection[str]) -> set[str]:
    """Those of the owners that stand in the registry."""
    names = list(owners)
    if not names:
        return set()
    values = link.command("HMGET", keys.OWNERS, *names)
    return {name for name, value in zip(names, values, strict=True) if value is not None}


def record(link: Link, field: bytes) -> bytes | None:
    """What is written down under *field*; None if somebody has taken it over, or called the handlers."""
    found: bytes | None = link.command("HGET", keys.DEATHS, field)
    return found


def take_over(link: Link, field: bytes, own: bytes, text: bytes) -> bool:
    """
    Write a death down under another field.

    Returns:
        False if it does not stand under *field* any more.
    """
    return bool(SETTLE.run(link, [keys.DEATHS], [field, "0", 1, 4, "HSET", 1, own, text]))


def strike_off(pool: Pool, field: bytes) -> None:
    """The handlers have been called."""
    pool.command("HDEL", keys.DEATHS, field)
