"""
Chooses the lookout: the one process of the fleet that checks the whole registry of owners.

The lookout holds the lease `sidekiq_py:lookout` and walks the registry at each beat. Any other process only checks,
with one command, that the lease exists. When every process walked the registry at each beat, the cost for Redis grew
with the square of the fleet: 276 % of a core for 5,000 idle processes.

Only processes on the same machine can see that a process is gone. So each process remembers which others run on its
machine and looks for them in /proc, which costs Redis nothing. It walks the registry

1. when it starts, until a walk has succeeded,
2. at each beat while it is the lookout,
3. when a process on its machine is gone,
4. when a process has registered on its machine, because it does not know that one yet.

Two lookouts at a time, for example after the first was suspended, do no harm: each owner is fenced once and each job
moved once.
"""

from collections.abc import Iterable, Sequence

from sidekiq_py.engine.ownership.host import ProcessPlace
from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.redis_access.connection.link import Command, Link
from sidekiq_py.redis_access.job_path import lookout

# Half of an ordinary owner's lease: a lookout that dies with its machine is replaced before any lease on that machine
# has run out. So none of the owners there is found later than it would be otherwise.
_LEASE_BEATS = 3
# Each process tries to take the lease this often, in case nobody renews it and it does not end: a copy of Redis may
# have lost the end, or the clock of Redis was set back when the lookout died.
_TRY_BEATS = 12


class Lookout:
    """
    Decides when this process has to walk the registry.

    Args:
        link: The housekeeper's connection.
        beat_seconds: The time from one request to the next.
    """

    def __init__(self, link: Link, ownership: Ownership, beat_seconds: float) -> None:
        self._link = link
        self._ownership = ownership
        self._lease_ms = max(1, round(_LEASE_BEATS * beat_seconds * 1000))
        # If the machine is unknown, this process cannot see that others are gone, so it need not know about them.
        self._machine = ProcessPlace.here().machine or ownership.identity
        self._announced = ""
        self._newest: bytes | None = None
        # The value of `_newest` before the last walk. It starts as a value that is no name, which causes the first
        # walk.
        self._newest_walked: bytes | None = b""
        self._beats = 0
        self.is_holder = False

    @property
    def question(self) -> Command:
        """The command to send once per beat. Its reply goes to `must_walk`."""
        return lookout.question(self._machine)

    def must_walk(self, neighbours: Iterable[ProcessPlace], answer: Sequence[bytes | None]) -> bool:
        """
        Returns True if this process has to walk the registry. Call it once per beat.

        Args:
            neighbours: The owners on this machine that the last walk found.
            answer: The reply to `question`.

        Raises:
            RedisError: Redis did not reply.
        """
        self.is_holder = False
        holder, newest = answer
        # If the name has expired, no process has registered since.
        self._newest = newest or self._newest
        identity = self._ownership.identity
        may_hold = holder in (None, identity.encode()) or self._beats % _TRY_BEATS == 0
        self._beats += 1
        self.is_holder = may_hold and lookout.hold(self._link, identity, self._lease_ms)
        return (
            self.is_holder
            or self._newest != self._newest_walked
            or any(place.is_provably_dead() for place in neighbours)
        )

    @property
    def has_announced(self) -> bool:
        """True if the other processes on this machine can know about this one."""
        return self._announced == self._ownership.current.name

    def has_walked(self) -> None:
        """Note that all owners that had registered at the last request are known now."""
        self._newest_walked = self._newest

    def leave(self) -> None:
        """
        Let another process be the lookout at once.

        Raises:
            RedisError: Redis did not reply. The lease expires by itself.
        """
        if self.is_holder:
            self.is_holder = False
            lookout.leave(self._link, self._ownership.identity)

    def announce(self) -> None:
        """Announce a new owner to the other processes on this machine, once it is in the registry."""
        owner = self._ownership.current
        if owner.is_registered and not self.has_announced:
            lookout.announce(self._link, self._machine, owner.name)
            self._announced = owner.name
