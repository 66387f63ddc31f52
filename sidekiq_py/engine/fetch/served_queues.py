"""The queues that a capsule fetches from, and how many of their jobs could start."""

from collections.abc import Callable, Mapping, Sequence


class ServedQueues:
    """
    The queues of one capsule, which may change while the process runs. Any thread may read them; only one thread at a
    time may change them.

    Args:
        weights: Weights by queue name, in order of precedence.
        most_waited_for: The most queues that get a connection of their own to wait on.
        room: Returns how many more `async def` jobs may start, or None if no event loop runs. While it returns 0, the
            queues that have brought such jobs are skipped and the others are not.

    Attributes:
        weights: The name and weight of each queue, in order of precedence.
        waited_for: The names of the queues that have a connection to wait on.
        unserved: The names of queues that were served before.
    """

    def __init__(self, weights: Mapping[str, int], most_waited_for: int, room: Callable[[], int | None]) -> None:
        self._most_waited_for = most_waited_for
        self._room = room
        self._async: set[str] = set()
        self.weights: Sequence[tuple[str, int]] = list(weights.items())
        self.waited_for = tuple(weights)[:most_waited_for]
        self.unserved: frozenset[str] = frozenset()

    @property
    def names(self) -> list[str]:
        """The names of the queues, in order of precedence."""
        return [name for name, _ in self.weights]

    @property
    def are_all_waited_for(self) -> bool:
        """True if every queue has a connection to wait on, so none has to be polled."""
        return all(name in self.waited_for for name, _ in self.weights)

    def change(self, weights: Mapping[str, int]) -> None:
        """Serve exactly these queues from now on. Queues that have a connection keep it."""
        before = self.names
        self.weights = list(weights.items())
        self.unserved = self.unserved.union(before) - weights.keys()
        ordered = sorted(weights, key=lambda name: name not in self.waited_for)
        self.waited_for = tuple(ordered[: self._most_waited_for])

    def note_async(self, name: str) -> None:
        """Record that a queue brings `async def` jobs."""
        self._async.add(name)

    def full(self) -> set[str]:
        """Return the queues to skip because the event loop has no room for their jobs."""
        room = self._room() if self._async else None
        return self._async if room is not None and room <= 0 else set()

    def with_room(self) -> Sequence[tuple[str, int]]:
        """Return the queues that are not full, with their weights."""
        full = self.full()
        return [entry for entry in self.weights if entry[0] not in full] if full else self.weights

    def startable(self, idle: int, ahead: int) -> int:
        """Return how many jobs to hold: one per *idle* processor and *ahead* more, limited by what can start."""
        room = self._room() if self._async else None
        if room is None:
            return idle + ahead
        if all(name in self._async for name, _ in self.weights):
            return min(idle + ahead, max(room, 0))
        return idle + min(ahead, max(room, 0))
