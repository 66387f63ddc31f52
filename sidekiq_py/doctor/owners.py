"""What Python processes hold in flight, whether they are heard of, and what nobody has entered."""

from dataclasses import dataclass

from sidekiq_py.doctor.keyspace import Keyspace
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.reads import in_flight_counts, survey
from sidekiq_py.wire import keys


@dataclass(frozen=True, slots=True)
class OwnerFacts:
    """
    One owner.

    Args:
        name: `<identity>:<epoch>`.
        jobs: In its in-flight hash and its inboxes.
        has_lease: It was heard of lately.
        is_departed: It left or was struck off, and is looked after.
        queues: Of its inboxes with a job.
    """

    name: str
    jobs: int
    has_lease: bool
    is_departed: bool
    queues: tuple[str, ...]

    @property
    def identity(self) -> str:
        """Of its process."""
        return self.name.rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class Owners:
    """
    All of them.

    Args:
        entered: In the registry, or departed.
        unentered: With jobs, and in neither: nobody looks after them.
        suspects: Jobs that were in flight when their process died.
    """

    entered: tuple[OwnerFacts, ...]
    unentered: tuple[OwnerFacts, ...]
    suspects: int


def gather(pool: Pool, keyspace: Keyspace) -> Owners:
    """
    Read the registry. Done after the walk over the keys, so that an owner that was seen there stands here.

    Raises:
        RedisError: Redis did not answer, or does not let this user ask.
    """
    present = survey.hash_of(pool, keys.OWNERS)
    departed = survey.hash_of(pool, keys.DEPARTED)
    strangers = {*keyspace.in_flight, *keyspace.inboxes} - set(present) - set(departed)
    names = [*present, *departed, *sorted(strangers)]
    inboxes = {name: _inboxes(name, present, departed, keyspace) for name in names}
    held = survey.sizes(pool, [keys.in_flight(name) for name in names], "HLEN")
    waiting = survey.sizes(pool, [keys.inbox(name, queue) for name in names for queue in inboxes[name]], "LLEN")
    leases = survey.existing(pool, [keys.lease(name) for name in names])
    facts = []
    for name in names:
        filled = tuple(queue for queue in inboxes[name] if waiting[keys.inbox(name, queue)])
        jobs = held[keys.in_flight(name)] + sum(waiting[keys.inbox(name, queue)] for queue in filled)
        facts.append(OwnerFacts(name, jobs, keys.lease(name) in leases, name in departed, filled))
    suspects = survey.sizes(pool, [keys.SUSPECTS], "HLEN")[keys.SUSPECTS]
    return Owners(
        tuple(owner for owner in facts if owner.name not in strangers),
        tuple(owner for owner in facts if owner.name in strangers and owner.jobs),
        suspects,
    )


def _inboxes(name: str, present: dict[str, bytes], departed: dict[str, bytes], keyspace: Keyspace) -> list[str]:
    about = present.get(name) or departed.get(name, b"").partition(b" ")[2]
    return sorted({*in_flight_counts.queues_of(about), *keyspace.inboxes.get(name, ())})
