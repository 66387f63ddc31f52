"""
Who looks after the whole registry: one process of the fleet at a time, the lookout.

It holds the lease `sidekiq_py:lookout` and walks the registry at each beat. Any other process only asks, in one
command, whether that lease stands. Walked by everybody at each beat, the registry cost Redis the square of the fleet:
276 % of a core for 5,000 processes at rest.

A process can be seen to be gone only from its own machine. So each process keeps in mind who else lives there, looks
for them in /proc, which costs Redis nothing, and walks the registry

1. once when it starts, and until a walk has succeeded,
2. at each beat while it is the lookout,
3. when one of this machine is gone,
4. when somebody has entered on this machine: that is the one whom it does not know yet.

Two lookouts at a time, as after a pause of the first, do no harm: each owner is shut out once, each job moved once.
"""

from collections.abc import Iterable, Sequence

from sidekiq_py.engine.ownership.host import ProcessPlace
from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.redis_access.connection.link import Command, Link
from sidekiq_py.redis_access.job_path import lookout

# Half of an ordinary lease of an owner: a lookout that died with its machine is replaced before any lease of that
# machine has run out, so nobody there is found later than otherwise.
_LEASE_BEATS = 3


class Lookout:
    """
    Says when this process is to walk the registry.

    Args:
        link: The housekeeper's.
        beat_seconds: From one question to the next.
    """

    def __init__(self, link: Link, ownership: Ownership, beat_seconds: float) -> None:
        self._link = link
        self._ownership = ownership
        self._lease_ms = max(1, round(_LEASE_BEATS * beat_seconds * 1000))
        # Where the system does not tell, nobody else is seen to be gone, so nobody else need be heard of.
        self._machine = ProcessPlace.here().machine or ownership.identity
        self._announced = ""
        self._newest: bytes | None = None
        # What `_newest` was before the last walk; no name at first, so that there is a first walk.
        self._newest_walked: bytes | None = b""
        self.is_holder = False

    def __repr__(self) -> str:
        return f"<Lookout of {self._ownership.identity}{' holds' if self.is_holder else ''}>"

    @property
    def question(self) -> Command:
        """To be sent once a beat, for `must_walk`."""
        return lookout.question(self._machine)

    def must_walk(self, neighbours: Iterable[ProcessPlace], answer: Sequence[bytes | None]) -> bool:
        """
        Say whether it is this process's turn; once a beat.

        Args:
            neighbours: The owners of this machine that the last walk has found.
            answer: To the question.

        Raises:
            RedisError: Redis did not say.
        """
        self.is_holder = False
        holder, newest = answer
        # A name that has expired says nothing new.
        self._newest = newest or self._newest
        identity = self._ownership.identity
        self.is_holder = holder in (None, identity.encode()) and lookout.hold(self._link, identity, self._lease_ms)
        return (
            self.is_holder
            or self._newest != self._newest_walked
            or any(place.is_provably_dead() for place in neighbours)
        )

    @property
    def has_announced(self) -> bool:
        """The others of this machine can know of this process."""
        return self._announced == self._ownership.current.name

    def has_walked(self) -> None:
        """All that had entered when it was asked last is known now."""
        self._newest_walked = self._newest

    def leave(self) -> None:
        """
        Let another process be the lookout at once.

        Raises:
            RedisError: Redis did not answer; the lease ends by itself.
        """
        if self.is_holder:
            self.is_holder = False
            lookout.leave(self._link, self._ownership.identity)

    def announce(self) -> None:
        """Tell the others of this machine of a new owner here, once it stands in the registry."""
        owner = self._ownership.current
        if owner.is_registered and not self.has_announced:
            lookout.announce(self._link, self._machine, owner.name)
            self._announced = owner.name
