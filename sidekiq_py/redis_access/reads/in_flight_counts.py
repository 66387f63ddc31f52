"""How many jobs each owner has in flight, by queue: jobs that have left their queue and are not settled."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import name_in, pairs
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.wire import keys
from sidekiq_py.wire.json_dialect import loads_or_none


@dataclass(frozen=True, slots=True)
class InFlightCount:
    """
    The number of jobs from one queue that one owner has in flight.

    Args:
        owner: `<identity>:<epoch>`.
        count: How many. Most are in the process's buffer and wait for a free thread; the rest are running.
    """

    owner: str
    queue: str
    count: int

    @property
    def identity(self) -> str:
        """The process's identity."""
        return keys.identity_of(self.owner)


def counts(pool: Pool) -> list[InFlightCount]:
    """
    The counts of all registered owners, including those that died and are not recovered yet. Anything that cannot be
    read (a key of the wrong type, a field written by another program) is not counted.
    """
    owners = owners_of(*pool.batch([("HGETALL", keys.OWNERS), ("HGETALL", keys.DEPARTED)]))
    inboxes = [(owner, queue) for owner, queues in owners.items() for queue in queues]
    hashes = pool.well_typed([("HKEYS", keys.in_flight(owner)) for owner in owners])
    lengths = pool.well_typed([("LLEN", keys.inbox(owner, queue)) for owner, queue in inboxes])
    return counts_of(dict(zip(owners, hashes, strict=True)), dict(zip(inboxes, lengths, strict=True)))


def counts_of(hashes: Mapping[str, Any], lengths: Mapping[tuple[str, str], int | None]) -> list[InFlightCount]:
    """
    The counts, without those that are 0.

    Args:
        hashes: Maps each owner to the fields of its hash, or to None.
        lengths: Maps owner and queue of each inbox to its length, or to None.
    """
    total: Counter[tuple[str, str]] = Counter()
    for owner, fields in hashes.items():
        total.update((owner, in_flight.split_field(field)[2]) for field in fields or () if in_flight.is_field(field))
    for place, length in lengths.items():
        total[place] += length or 0
    return [InFlightCount(owner, queue, count) for (owner, queue), count in sorted(total.items()) if count]


def totals(counts: Iterable[InFlightCount], of: Callable[[InFlightCount], str]) -> Counter[str]:
    """How many jobs are in flight in all, by queue, owner or process: `totals(counts, attrgetter("queue"))`."""
    total: Counter[str] = Counter()
    for entry in counts:
        total[of(entry)] += entry.count
    return total


def owners_of(entered: Sequence[bytes], departed: Sequence[bytes]) -> dict[str, list[str]]:
    """
    Maps each owner to the queues that it fetches from. Departed owners are included, because their inboxes may have a
    job.

    Args:
        entered: The fields and values of the hash of owners.
        departed: Those of the hash of departed owners, whose values start with a time: "<epoch s> <JSON>".
    """
    return {
        name_in(owner): queues_of(about)
        for owner, about in [
            *pairs(entered),
            *((owner, about.partition(b" ")[2]) for owner, about in pairs(departed)),
        ]
    }


def jobs(pool: Pool, owner: str) -> list[tuple[str, bytes]]:
    """The queue and the bytes of each job that an owner has in flight. A key of the wrong type has none."""
    about, flat = pool.well_typed([("HGET", keys.OWNERS, owner), ("HGETALL", keys.in_flight(owner))])
    found = [(in_flight.split_field(field)[2], raw) for field, raw in pairs(flat or []) if in_flight.is_field(field)]
    queues = queues_of(about or b"")
    listed = pool.well_typed([("LRANGE", keys.inbox(owner, queue), 0, -1) for queue in queues])
    return found + [(queue, raw) for queue, raws in zip(queues, listed, strict=True) for raw in raws or ()]


def queues_of(about: bytes) -> list[str]:
    """The queues in an owner's entry; empty if it cannot be parsed."""
    noted = loads_or_none(about)
    queues = noted.get("queues") if isinstance(noted, dict) else None
    return [queue for queue in queues if isinstance(queue, str)] if isinstance(queues, list) else []
