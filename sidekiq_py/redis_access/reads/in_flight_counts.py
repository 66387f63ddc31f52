"""How many jobs each owner has in flight, by queue: jobs that have left their queue and are not settled."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from sidekiq_py.errors import PayloadError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.wire import keys
from sidekiq_py.wire.json_dialect import loads


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
        return self.owner.rpartition(":")[0]


def counts(pool: Pool) -> list[InFlightCount]:
    """
    The counts of all registered owners, including those that died and are not recovered yet. Anything that cannot be
    read (a key of the wrong type, a field written by another program) is not counted.
    """
    owners = _owners(pool)
    if not owners:
        return []
    inboxes = [(owner, queue) for owner, queues in owners.items() for queue in queues]
    hashes = pool.readable([("HKEYS", keys.in_flight(owner)) for owner in owners])
    lengths = pool.readable([("LLEN", keys.inbox(owner, queue)) for owner, queue in inboxes])
    total: Counter[tuple[str, str]] = Counter()
    for owner, fields in zip(owners, hashes, strict=True):
        total.update((owner, in_flight.split_field(field)[2]) for field in fields or () if in_flight.is_field(field))
    for place, length in zip(inboxes, lengths, strict=True):
        total[place] += length or 0
    return [InFlightCount(owner, queue, count) for (owner, queue), count in sorted(total.items()) if count]


def _owners(pool: Pool) -> dict[str, list[str]]:
    """
    Maps each owner to the queues that it fetches from. Departed owners are included, because their inboxes may have a
    job.
    """
    entered, departed = pool.batch([("HGETALL", keys.OWNERS), ("HGETALL", keys.DEPARTED)])
    # The entry of a departed owner starts with a time: "<epoch s> <JSON>".
    return {
        owner.decode(errors="surrogateescape"): queues_of(about)
        for owner, about in [
            *_pairs(entered),
            *((owner, about.partition(b" ")[2]) for owner, about in _pairs(departed)),
        ]
    }


def jobs(pool: Pool, owner: str) -> list[tuple[str, bytes]]:
    """The queue and the bytes of each job that an owner has in flight. A key of the wrong type has none."""
    about, flat = pool.well_typed([("HGET", keys.OWNERS, owner), ("HGETALL", keys.in_flight(owner))])
    found = [(in_flight.split_field(field)[2], raw) for field, raw in _pairs(flat or []) if in_flight.is_field(field)]
    queues = queues_of(about or b"")
    listed = pool.well_typed([("LRANGE", keys.inbox(owner, queue), 0, -1) for queue in queues])
    return found + [(queue, raw) for queue, raws in zip(queues, listed, strict=True) for raw in raws or ()]


def queues_of(about: bytes) -> list[str]:
    """The queues in an owner's entry; empty if it cannot be parsed."""
    try:
        noted = loads(about)
    except PayloadError:
        return []
    queues = noted.get("queues") if isinstance(noted, dict) else None
    return [queue for queue in queues if isinstance(queue, str)] if isinstance(queues, list) else []


def _pairs(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)
