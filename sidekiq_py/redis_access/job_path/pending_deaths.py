"""
Pending calls of death handlers.

The script that ends a job for good also records that its death must be announced. The record is removed once the
handlers have been called. If the process is killed before that, exactly one other process takes the record over.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sidekiq_py.errors import ArgumentError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.redis_access.job_path.settle_script import SETTLE
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.payload import dump, parse_job

# If no process has death handlers, nothing removes the records that `sidekiq-py recover` wrote.
_TTL_SECONDS = 30 * 24 * 3600


class Death(NamedTuple):
    """
    A job that will not be retried.

    Args:
        payload: The payload for death handlers.
        error_class: The name of the class of the error that it failed with; `message` is that error's message.
    """

    payload: dict[str, Any]
    error_class: str
    message: str


def record_of(payload: Mapping[str, Any], raw: bytes, error_class: str, message: str, dialect: Dialect) -> bytes:
    """
    The record of a death.

    Args:
        raw: The job's own bytes, used if the payload cannot be written.
    """
    try:
        job = dump(payload, dialect=dialect)
    except ArgumentError:
        job = raw
    return json.dumps({"error_class": error_class, "message": message}).encode() + b"\n" + job


def death_of(record: bytes) -> Death | None:
    """Parse a record. Returns None if it is not one of ours."""
    about, _, job = record.partition(b"\n")
    try:
        said = json.loads(about)
        return Death(parse_job(job), str(said["error_class"]), str(said["message"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def field_of(owner: str, number: int) -> bytes:
    """The field of a death that this owner has to announce."""
    return f"{owner} {number}".encode()


def owner_in(field: bytes) -> str:
    """The owner that has to announce it."""
    return field.rpartition(b" ")[0].decode(errors="replace")


def commands_of(field: bytes, record: bytes) -> Sequence[Command]:
    """The commands that record a death. They go among the counters of its script, because nothing depends on them."""
    return ("HSET", keys.DEATHS, field, record), ("EXPIRE", keys.DEATHS, _TTL_SECONDS)


def fields(link: Link) -> list[bytes]:
    """The fields of all deaths that are not announced yet."""
    found: list[bytes] = link.command("HKEYS", keys.DEATHS)
    return found


def entered(link: Link, owners: Collection[str]) -> set[str]:
    """Those of the owners that are in the registry."""
    names = list(owners)
    if not names:
        return set()
    values = link.command("HMGET", keys.OWNERS, *names)
    return {name for name, value in zip(names, values, strict=True) if value is not None}


def record(link: Link, field: bytes) -> bytes | None:
    """The record under *field*; None if another process has taken it over or the handlers were called."""
    found: bytes | None = link.command("HGET", keys.DEATHS, field)
    return found


def take_over(link: Link, field: bytes, own: bytes, text: bytes) -> bool:
    """
    Move a death's record to another field.

    Returns:
        False if it is no longer under *field*.
    """
    return bool(SETTLE.run(link, [keys.DEATHS], [field, "0", 1, 4, "HSET", 1, own, text]))


def remove(pool: Pool, field: bytes) -> None:
    """Remove a record once the handlers have been called."""
    pool.command("HDEL", keys.DEATHS, field)
