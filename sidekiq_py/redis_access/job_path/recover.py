"""
Finds the jobs that dead owners left behind and puts them back in their queues.

Reads are plain commands. Each move back is one script, which writes nothing unless the job is still in flight.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.replies import pairs, raise_first, readable
from sidekiq_py.redis_access.connection.scan import pages
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.connection.slices import slices_by_bytes, slices_of
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.wire import keys
from sidekiq_py.wire.number_text import finite

RECOVER = Script("recover")
FORGET_SUSPECTS = Script("forget_suspects")
ENTER_LOST = Script("enter_lost")

SUSPECT_TTL_SECONDS = 72 * 3600
_PAGE = 200
# Redis needs about a millisecond for so many names.
_SCAN_COUNT = 5000
# An identity ends in a pid and a random number, an owner in an epoch; a queue may have any name.
_LEFT_BEHIND_PATTERN = "sidekiq_py:in*"
_LEFT_BEHIND = re.compile(r"sidekiq_py:(?:inflight:(.+)|inbox:(.+?:[0-9]+:[0-9a-f]+:[0-9]+):(.+))", re.DOTALL)


class Entry(NamedTuple):
    """
    A job in an owner's in-flight hash, or in one of its inboxes.

    Args:
        field: The job's field in the hash; for a job in an inbox, `0.<n>@<queue>`.
    """

    field: bytes
    raw: bytes
    is_listed: bool = False

    @property
    def is_marked(self) -> bool:
        """True if it was a suspect and had started."""
        return in_flight.split_field(self.field)[1]

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return in_flight.split_field(self.field)[2]


class Fate(NamedTuple):
    """
    What to do with a job: put it back with this number of deaths, the first of them at the epoch second *first*, or
    move it to `dead` if it is a poison pill.
    """

    entry: Entry
    deaths: int
    first: float
    is_poison: bool = False


def owners(link: Link) -> dict[str, bytes]:
    """All registered owners: maps each name to its entry."""
    return {name.decode(): about for name, about in pairs(link.command("HGETALL", keys.OWNERS)) if _is_text(name)}


def departed(link: Link) -> dict[str, tuple[float, bytes]]:
    """All owners that left or were fenced lately: maps each name to the time (epoch s) and its entry."""
    found = {}
    for name, text in pairs(link.command("HGETALL", keys.DEPARTED)):
        left_at, _, about = text.partition(b" ")
        # Anything else there is not ours, and must not keep the other owners' jobs from being recovered.
        if _is_text(name) and (at := finite(left_at)) is not None:
            found[name.decode()] = (at, about)
    return found


def lost_owners(link: Link) -> dict[str, list[str]]:
    """
    All owners that have jobs in flight but are in no registry, as after the loss of `sidekiq_py:owners`: maps each name
    to the queues of its inboxes. For this, Redis goes through the names of all its keys.

    Raises:
        RedisError: Redis cannot be reached, or this user may not use SCAN.
    """
    found: dict[str, set[str]] = {}
    for page in pages(link.command, ("SCAN",), "MATCH", _LEFT_BEHIND_PATTERN, "COUNT", _SCAN_COUNT):
        for match in (_LEFT_BEHIND.fullmatch(key.decode()) for key in page if _is_text(key)):
            if match is not None:
                found.setdefault(match[1] or match[2], set()).update(match.groups()[2:] if match[3] else ())
    known = owners(link).keys() | departed(link).keys()
    return {name: sorted(queues) for name, queues in sorted(found.items()) if name not in known}


def enter_lost(link: Link, owner: str, queues: Sequence[str], *, with_lease: bool = False) -> bool:
    """
    Register an owner again that `lost_owners` has found. Recovery then handles it like any other owner.

    Args:
        with_lease: Also register an owner that still has a lease.

    Returns:
        True if this call registered it.
    """
    about = json.dumps({"boot": "", "pidns": "", "pid": 0, "start": 0, "queues": list(queues)}, separators=(",", ":"))
    names = [keys.OWNERS, keys.DEPARTED, keys.lease(owner)]
    return bool(ENTER_LOST.run(link, names, [owner, about, "1" if with_lease else "0"]))


def lease_seconds(link: Link, owner_names: Sequence[str]) -> dict[str, float]:
    """How long the lease of each owner is still valid; those without a lease are missing."""
    left = raise_first(link.batch([("PTTL", keys.lease(name)) for name in owner_names])) if owner_names else []
    return {name: ms / 1000 for name, ms in zip(owner_names, left, strict=True) if ms >= 0}


def leased(link: Link, owner_names: Sequence[str]) -> set[str]:
    """Those of the owners that have a lease, read in one command for the whole fleet."""
    if not owner_names:
        return set()
    values = link.command("MGET", *[keys.lease(name) for name in owner_names])
    return {name for name, value in zip(owner_names, values, strict=True) if value is not None}


def forget_processes(link: Link, identities: Iterable[str]) -> None:
    """Remove processes that are known to be dead from Web UIs, where their last beat would stay for a minute."""
    commands: list[tuple[str, ...]] = []
    for identity in identities:
        names = [identity, keys.work(identity), keys.work(identity, suffix="workers"), keys.signals(identity)]
        commands += [("SREM", keys.PROCESSES, identity), ("UNLINK", *names)]
    link.batch(commands)


def fence_all(link: Link, owner_names: Sequence[str], *, certain: bool, now: float) -> list[str]:
    """
    Fence owners, like `in_flight.fence`, all in one round trip.

    Returns:
        The owners that this call fenced.
    """
    calls = [in_flight.fence_parts(name, certain=certain, now=now) for name in owner_names]
    done = in_flight.FENCE.run_all(link, calls)
    return [name for name, is_done in zip(owner_names, done, strict=True) if is_done]


def leaving_something(link: Link, queues_of: Mapping[str, Sequence[str]]) -> set[str]:
    """
    Those of these owners that left a job behind. It takes one command if none did, because most owners leave cleanly,
    hundreds of them in a deploy.

    Args:
        queues_of: Maps each owner to the queues for which it may have inboxes.
    """
    places = {
        owner: [keys.in_flight(owner), *[keys.inbox(owner, queue) for queue in queues]]
        for owner, queues in queues_of.items()
    }
    if not places or not link.command("EXISTS", *itertools.chain.from_iterable(places.values())):
        return set()
    counts = raise_first(link.batch([("EXISTS", *names) for names in places.values()]))
    return {owner for owner, count in zip(places, counts, strict=True) if count}


def remove_departed(link: Link, owner_names: Sequence[str]) -> None:
    """Remove departed owners that have nothing left in flight."""
    if owner_names:
        link.command("HDEL", keys.DEPARTED, *owner_names)


def entries(link: Link, owner: str, queues: Sequence[str]) -> Iterator[list[Entry]]:
    """
    An owner's jobs in flight, in slices. The last one fetched comes first, so that the first one fetched is the first
    to run again.

    Args:
        queues: The queues for which the owner may have inboxes.
    """
    listed: list[Entry] = []
    inboxes = link.batch([("LRANGE", keys.inbox(owner, name), 0, -1) for name in queues])
    for queue, raws in zip(queues, inboxes, strict=True):
        if isinstance(raws, RedisReplyError):
            if raws.is_about_server:
                raise raws
            # The key has the wrong type, which the doctor reports. The other jobs go back.
            continue
        listed += [Entry(f"0.{number}@{queue}".encode(), raw, is_listed=True) for number, raw in enumerate(raws)]
    # The bytes of such a job are sent along when it goes back.
    for part in slices_by_bytes(listed, lambda entry: len(entry.raw)):
        yield from slices_of(part, _PAGE)
    found = link.command("HKEYS", keys.in_flight(owner))
    fields = in_flight.sorted_by_batch(field for field in found if in_flight.is_field(field))[::-1]
    for page in slices_of(fields, _PAGE):
        values = link.command("HMGET", keys.in_flight(owner), *page)
        yield [Entry(field, raw) for field, raw in zip(page, values, strict=True) if raw is not None]


def records(link: Link, raws: Sequence[bytes]) -> list[tuple[int, float] | None]:
    """For each job, its deaths and the epoch second of the first; None if it was never recovered."""
    if not raws:
        return []
    digests = [hashlib.sha1(raw, usedforsecurity=False).hexdigest() for raw in raws]
    [values] = readable(link.batch([("HMGET", keys.SUSPECTS, *digests)]))
    if values is None:
        # Without this record the jobs only count as less suspect. Held back, they would be stuck.
        return [None] * len(raws)
    return [_parse_record(value) for value in values]


def forget_suspects(link: Link, cursor: bytes, *, now: float) -> bytes:
    """
    Go through one page of suspects and remove those that are older than 72 hours. This is needed because each new
    suspect restarts the key's time to live, and a suspect that a Ruby process has run is never cleared.

    Args:
        cursor: "0" for the first page.

    Returns:
        The cursor of the next page; "0" after the last.
    """
    following: bytes
    following, flat = link.command("HSCAN", keys.SUSPECTS, cursor, "COUNT", _PAGE)
    stale = [pair for pair in pairs(flat) if _is_stale(pair[1], now)]
    if stale:
        FORGET_SUSPECTS.run(link, [keys.SUSPECTS], [part for pair in stale for part in pair])
    return following


def _is_stale(value: bytes, now: float) -> bool:
    record = _parse_record(value)
    return record is not None and now - record[1] > SUSPECT_TTL_SECONDS


def put_back(link: Link, owner: str, fates: Sequence[Fate]) -> list[bytes]:
    """
    Put a fenced owner's jobs back in their queues.

    Args:
        fates: The job that should run first comes last.

    Returns:
        The fields that this call moved. If Redis refuses one job (because this user may not write its queue's key),
        that job stays in flight.
    """
    if not fates:
        return []
    try:
        return _put_back(link, owner, fates)
    except RedisReplyError as error:
        if error.is_about_server:
            raise
        if len(fates) == 1:
            return []
    return [field for fate in fates for field in put_back(link, owner, [fate])]


def _put_back(link: Link, owner: str, fates: Sequence[Fate]) -> list[bytes]:
    numbers = {keys.in_flight(owner): 1, keys.SUSPECTS: 2, keys.QUEUES: 3}
    arguments: list[Any] = [SUSPECT_TTL_SECONDS]
    for fate in fates:
        entry = fate.entry
        source = numbers.setdefault(keys.inbox(owner, entry.queue), len(numbers) + 1) if entry.is_listed else 1
        queue = numbers.setdefault(keys.queue(entry.queue), len(numbers) + 1)
        named = entry.raw if entry.is_listed else entry.field
        arguments += [entry.field, source, named, queue, f"{fate.deaths}:{fate.first:.3f}"]
    moved: list[bytes] = RECOVER.run(link, list(numbers), arguments)
    return moved


def _parse_record(value: bytes | None) -> tuple[int, float] | None:
    if value is None:
        return None
    deaths, _, first = value.partition(b":")
    count, at = finite(deaths), finite(first)
    return None if count is None or at is None else (int(count), at)


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
