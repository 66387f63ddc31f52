"""
Revoked jobs: they must not be started any more, wherever they are.

`sidekiq_py:revoked` is a sorted set of their ids, scored by the time until which each is kept. The scripts that take
jobs from queues (`fetch.lua`, `claim.lua`) report the ids that are in it. `sidekiq_py:orders` is a number that goes up
whenever any other order that workers keep a copy of changes.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import raise_first
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.connection.slices import slices_of
from sidekiq_py.wire import keys
from sidekiq_py.wire.payload import parse_job_or_empty

REVOKE = Script("revoke")

MOST_KEPT = 50_000
"""How many ids are kept at most, as in Celery's workers."""
# Jobs that wait for longer are not considered.
_MOST_SECONDS = 10 * 365 * 24 * 3600
_AFTER_THE_LAST_SECONDS = 24 * 3600
_SLICE = 1000


class Revoked(NamedTuple):
    """
    The result of a revoke.

    Args:
        may_start: True if one of the jobs may be in flight: it may have been fetched just before, and may still start.
        forgotten: How many other ids were dropped to make room.
    """

    may_start: bool
    forgotten: int


def revoke(pool: Pool, jids: Sequence[str], *, now: float, kept_seconds: float) -> Revoked:
    """
    Keep jobs from being started.

    Args:
        jids: The ids; the jobs need not exist.
        now: Seconds since the epoch.
        kept_seconds: How long to keep the ids at least. They always cover jobs that are scheduled now.
    """
    names = [keys.REVOKED, keys.SCHEDULE, keys.RETRY, keys.OWNERS, keys.in_flight(""), keys.INBOX_PREFIX]
    until, at_most = f"{now + kept_seconds:.3f}", f"{now + _MOST_SECONDS:.3f}"
    given = [f"{now:.3f}", until, _AFTER_THE_LAST_SECONDS, at_most, MOST_KEPT]
    may_start, forgotten = False, 0
    for part in slices_of(jids, _SLICE):
        in_flight, gone = pool.run(lambda link, part=part: REVOKE.run(link, names, [*given, *part]))  # type: ignore[misc]
        may_start, forgotten = may_start or bool(in_flight), forgotten + gone
    return Revoked(may_start, forgotten)


def is_revoked(pool: Pool, jid: str, now: float) -> bool:
    """True if a job must not be started."""
    until = pool.command("ZSCORE", keys.REVOKED, jid)
    return until is not None and float(until) > now


def list_revoked(pool: Pool, now: float, most: int) -> list[str]:
    """The ids of revoked jobs; if there are more than *most*, those that are kept the longest."""
    found: list[bytes] = pool.command("ZREVRANGEBYSCORE", keys.REVOKED, "+inf", f"({now:.3f}", "LIMIT", 0, most)
    return [jid.decode(errors="replace") for jid in reversed(found)]


def told_of(link: Link, raws: Sequence[bytes]) -> list[bytes]:
    """
    The notices that a fetch of these jobs would return now; see `fetch.lua`.

    Raises:
        RedisError: Redis did not answer, or refused to. In a notice, an error reply would revoke the job.
    """
    jids = [str(parse_job_or_empty(raw).get("jid")) for raw in raws]
    questions = [("ZSCORE", keys.REVOKED, jid) for jid in jids]
    number, *found = raise_first(link.batch([("GET", keys.NOTICES), *questions]))
    revoked = (jid for jid, until in zip(jids, found, strict=True) if until is not None)
    return [number or b"", *(jid.encode(errors="replace") for jid in revoked)]
