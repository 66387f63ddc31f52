"""Which queues a capsule is served from, and how many of their jobs could start."""

from collections.abc import Callable, Mapping, Sequence


class ServedQueues:
    """
    They may change while the process runs. Read from any thread, changed by one at a time.

    Args:
        weights: By name, in order of precedence.
        most_waited_for: Up to so many have a connection that waits for their jobs.
        room: How many more `async def` jobs may start; None: none runs. While there is none, queues that have brought
            such jobs are left alone, and the others are not.

    Attributes:
        weights: Name and weight of each, in order of precedence.
        waited_for: Names of those that are waited for.
        unserved: Names of those that were served before.
    """

    def __init__(
        self, weights: Mapping[str, int], most_waited_for: int, room: Callable[[], int | None] = lambda: None
    ) -> None:
        self._most_waited_for = most_waited_for
        self._room = room
        self._async: set[str] = set()
        self.weights: Sequence[tuple[str, int]] = list(weights.items())
        self.waited_for = tuple(weights)[:most_waited_for]
        self.unserved: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<ServedQueues {dict(self.weights)}>"

    @property
    def names(self) -> list[str]:
        """In order of precedence."""
        return [name for name, _ in self.weights]

    @property
    def are_all_waited_for(self) -> bool:
        """None has to be looked at."""
        return all(name in self.waited_for for name, _ in self.weights)

    def change(self, weights: Mapping[str, int]) -> None:
        """Serve these from now on, and no others. Who has a connection keeps it."""
        before = self.names
        self.weights = list(weights.items())
        self.unserved = self.unserved.union(before) - weights.keys()
        ordered = sorted(weights, key=lambda name: name not in self.waited_for)
        self.waited_for = tuple(ordered[: self._most_waited_for])

    def note_async(self, name: str) -> None:
        """This one brings `async def` jobs."""
        self._async.add(name)

    def full(self) -> set[str]:
        """Those to leave alone, as the event loop has no room for what they bring."""
        room = self._room() if self._async else None
        return self._async if room is not None and room <= 0 else set()

    def with_room(self) -> Sequence[tuple[str, int]]:
        """Those that are not full."""
        full = self.full()
        return [entry for entry in self.weights if entry[0] not in full] if full else self.weights

    def startable(self, idle: int, ahead: int) -> int:
        """How many jobs to have: for the *idle* processors, and *ahead*, as far as they can start."""
        room = self._room() if self._async else None
        if room is None:
            return idle + ahead
        if all(name in self._async for name, _ in self.weights):
            return min(idle + ahead, max(room, 0))
        return idle + min(ahead, max(room, 0))
