"""The in-flight jobs of Python processes, and whether their owners are alive and registered."""

from typing import NamedTuple

from sidekiq_py.doctor.keyspace import Keyspace
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.reads import in_flight_counts, survey
from sidekiq_py.wire import keys


class OwnerFacts(NamedTuple):
    """
    An owner and its in-flight jobs.

    Args:
        name: `<identity>:<epoch>`.
        jobs: The number of jobs in its in-flight hash and its inboxes.
        has_lease: True if its lease exists, so it was alive a moment ago.
        is_departed: True if it left or was removed from the registry; its remaining jobs are still being recovered.
    """

    name: str
    jobs: int
    has_lease: bool
    is_departed: bool

    @property
    def identity(self) -> str:
        """The identity of its process."""
        return keys.identity_of(self.name)


class Owners(NamedTuple):
    """
    All owners that were found.

    Args:
        entered: Those in the registry, or departed.
        unentered: Those with jobs that are in neither, so nothing recovers them.
        suspects: The number of jobs that were in flight when their process died.
    """

    entered: tuple[OwnerFacts, ...]
    unentered: tuple[OwnerFacts, ...]
    suspects: int


def gather(pool: Pool, keyspace: Keyspace) -> Owners:
    """
    Read the registry. Call it after the scan of the keys, so that every owner found there is included.

    Raises:
        RedisError: Redis did not answer, or does not let this user read.
    """
    present = survey.hash_of(pool, keys.OWNERS)
    departed = survey.hash_of(pool, keys.DEPARTED)
    unregistered = {*keyspace.in_flight, *keyspace.inboxes} - set(present) - set(departed)
    names = [*present, *departed, *sorted(unregistered)]
    inboxes = {name: _inboxes(name, present, departed, keyspace) for name in names}
    held = survey.sizes(pool, [keys.in_flight(name) for name in names], "HLEN")
    waiting = survey.sizes(pool, [keys.inbox(name, queue) for name in names for queue in inboxes[name]], "LLEN")
    leases = survey.existing(pool, [keys.lease(name) for name in names])
    facts = []
    for name in names:
        jobs = held[keys.in_flight(name)] + sum(waiting[keys.inbox(name, queue)] for queue in inboxes[name])
        facts.append(OwnerFacts(name, jobs, keys.lease(name) in leases, name in departed))
    suspects = survey.sizes(pool, [keys.SUSPECTS], "HLEN")[keys.SUSPECTS]
    return Owners(
        tuple(owner for owner in facts if owner.name not in unregistered),
        tuple(owner for owner in facts if owner.name in unregistered and owner.jobs),
        suspects,
    )


def _inboxes(name: str, present: dict[str, bytes], departed: dict[str, bytes], keyspace: Keyspace) -> list[str]:
    about = present.get(name) or departed.get(name, b"").partition(b" ")[2]
    return sorted({*in_flight_counts.queues_of(about), *keyspace.inboxes.get(name, ())})
