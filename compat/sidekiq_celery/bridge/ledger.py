"""The bridge's counts: what was moved from each queue, and what was left and why."""

from collections import Counter, defaultdict
from typing import Any

_MOST_NOTES = 50

# So that nobody who only asks reads that messages have left their queues.
_IN_A_DRY_RUN = {"moved": "to move", "scheduled": "to schedule"}


class Ledger:
    """
    The counts of one run.

    Attributes:
        moved: By queue, the number of messages of each kind: moved, scheduled, unreadable, stopped, and the duplicates
            that were recognized.
        left: By queue, the number of messages left in the last scan, by reason.
        notes: Other remarks, and how often each occurred.
    """

    def __init__(self) -> None:
        self.moved: dict[str, Counter[str]] = defaultdict(Counter)
        self.left: dict[str, Counter[str]] = defaultdict(Counter)
        self.notes: Counter[str] = Counter()

    def count(self, queue: str, kind: str, note: str = "") -> None:
        """Count a message that was moved, or recognized as a duplicate."""
        self.moved[queue][kind] += 1
        if note and (note in self.notes or len(self.notes) < _MOST_NOTES):
            self.notes[note] += 1

    def leave(self, queue: str, reason: str) -> None:
        """Count a message that was left where it is."""
        self.left[queue][reason] += 1

    @property
    def count_moved(self) -> int:
        """The number of messages that have left their queues."""
        return sum(counts.total() for counts in self.moved.values())

    @property
    def count_left(self) -> int:
        """The number of messages left in the last scan."""
        return sum(counts.total() for counts in self.left.values())

    def as_dict(self) -> dict[str, Any]:
        """The counts as a dict for JSON."""
        names = sorted({*self.moved, *self.left})
        return {
            "moved": self.count_moved,
            "left": self.count_left,
            "queues": {name: {**self.moved.get(name, {}), "left": dict(self.left.get(name, {}))} for name in names},
            "notes": dict(self.notes),
        }

    def as_text(self, *, is_dry: bool = False) -> str:
        """The counts as readable text."""
        lines = []
        for name in sorted({*self.moved, *self.left}):
            counts = self.moved.get(name, Counter())
            words = _IN_A_DRY_RUN if is_dry else {}
            shown = ", ".join(f"{count} {words.get(kind, kind)}" for kind, count in sorted(counts.items()))
            lines.append(f"{name}: {shown or 'nothing to move'}")
            lines += [f"  left {count}: {reason}" for reason, count in self.left.get(name, Counter()).items()]
        lines += [f"  {count}: {note}" for note, count in self.notes.most_common()]
        total = f"{self.count_moved} {'would be moved' if is_dry else 'moved'}, {self.count_left} left"
        return "\n".join([*lines, total])
