"""The lease of the process that looks after the whole registry of owners, and who has entered it last on a machine."""

from sidekiq_py.redis_access.connection.link import Command, Link
from sidekiq_py.redis_access.job_path.promote import HOLD_POLLER, LEAVE_POLLER
from sidekiq_py.wire import keys

# Whoever has not asked for so long has been without Redis, or frozen.
_NEWEST_TTL_SECONDS = 3600


def question(machine: str) -> Command:
    """Asks for the identity of the lookout, and for the name of the owner that was announced last on *machine*."""
    return ("MGET", keys.LOOKOUT_LEASE, keys.newest(machine))


def announce(link: Link, machine: str, owner: str) -> None:
    """Name an owner that has entered on *machine*, for the others there."""
    link.command("SET", keys.newest(machine), owner, "EX", _NEWEST_TTL_SECONDS)


def hold(link: Link, identity: str, ttl_ms: int) -> bool:
    """Take or renew the lookout's lease; False if another process has it."""
    return bool(HOLD_POLLER.run(link, [keys.LOOKOUT_LEASE], [identity, ttl_ms]))


def leave(link: Link, identity: str) -> None:
    """Give the lease up, if *identity* has it."""
    LEAVE_POLLER.run(link, [keys.LOOKOUT_LEASE], [identity])
