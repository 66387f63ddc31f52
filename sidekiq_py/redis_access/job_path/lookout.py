"""The lease of the process that watches the registry of owners, and the owner that registered last on a machine."""

from sidekiq_py.redis_access.connection.link import Command, Link
from sidekiq_py.redis_access.job_path.promote import LEAVE_POLLER, hold_lease
from sidekiq_py.wire import keys

# A process that has not asked for this long was frozen or had no Redis.
_NEWEST_TTL_SECONDS = 3600


def question(machine: str) -> Command:
    """The command that reads the identity of the lookout and the name of the owner announced last on *machine*."""
    return ("MGET", keys.LOOKOUT_LEASE, keys.newest(machine))


def announce(link: Link, machine: str, owner: str) -> None:
    """Announce to the other processes on *machine* that an owner has registered there."""
    link.command("SET", keys.newest(machine), owner, "EX", _NEWEST_TTL_SECONDS)


def hold(link: Link, identity: str, ttl_ms: int) -> bool:
    """Take or renew the lookout's lease. Returns False if another process holds it."""
    return hold_lease(link, keys.LOOKOUT_LEASE, identity, ttl_ms)


def leave(link: Link, identity: str) -> None:
    """Release the lease if *identity* holds it."""
    LEAVE_POLLER.run(link, [keys.LOOKOUT_LEASE], [identity])
