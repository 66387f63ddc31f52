"""The bridge's account: what was moved of each queue, what was left and why."""

from collections import Counter, defaultdict
from typing import Any

__all__ = ("Ledger",)

_MOST_NOTES = 50


class Ledger:
    """
    Counts of one run.

    Attributes:
        moved: By queue, how many of each kind: moved, scheduled, unreadable, stopped, and the duplicates that were
            recognised.
        left: By queue, how many were left at the last look, by reason.
        notes: What else there is to say, and how often it was seen.
    """

    def __init__(self) -> None:
        self.moved: dict[str, Counter[str]] = defaultdict(Counter)
        self.left: dict[str, Counter[str]] = defaultdict(Counter)
        self.notes: Counter[str] = Counter()

    def count(self, queue: str, kind: str, note: str = "") -> None:
        """A message was moved, or recognised as one that is there already."""
        self.moved[queue][kind] += 1
        if note and (note in self.notes or len(self.notes) < _MOST_NOTES):
            self.notes[note] += 1

    def leave(self, queue: str, reason: str, count: int = 1) -> None:
        """Messages were left where they are."""
        self.left[queue][reason] += count

    @property
    def count_moved(self) -> int:
        """How many messages have left their queues."""
        return sum(counts.total() for counts in self.moved.values())

    @property
    def count_left(self) -> int:
        """How many were left at the last look."""
        return sum(counts.total() for counts in self.left.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = sorted({*self.moved, *self.left})
        return {
            "moved": self.count_moved,
            "left": self.count_left,
            "queues": {name: {**self.moved.get(name, {}), "left": dict(self.left.get(name, {}))} for name in names},
            "notes": dict(self.notes),
        }

    def as_text(self, *, is_dry: bool = False) -> str:
        """For people."""
        lines = []
        for name in sorted({*self.moved, *self.left}):
            counts = self.moved.get(name, Counter())
            shown = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "nothing to move"
            lines.append(f"{name}: {shown}")
            lines += [f"  left {count}: {reason}" for reason, count in self.left.get(name, Counter()).items()]
        lines += [f"  {count}: {note}" for note, count in self.notes.most_common()]
        total = f"{self.count_moved} {'would be moved' if is_dry else 'moved'}, {self.count_left} left"
        return "\n".join([*lines, total])
