"""
Chords in a canvas: how many parts they have, and what of them is not to be sent.

A chord's part is told what it is part of by its option `chord`. In a frozen canvas that is the chord's body, as Celery
has it; where a chord is really called, it is a `part`: the chord's id and a number. So a message holds no body, however
deep chords are nested.
"""

from operator import length_hint
from typing import Any

from sidekiq_celery._canvas import kinds
from sidekiq_celery._canvas.signature import Signature

__all__ = ("NUMBER", "count_parts", "enclosed", "is_part", "nth_part", "part", "shared", "strip_header_links")

NUMBER = "part"
"""The key that tells a part from a body."""


def part(chord_id: str, number: int) -> dict[str, Any]:
    """
    What the *number*-th part of a chord bears as `chord`.

    A group at the end of a part is one of the results that the body is given, as a list: `open` and `close` say how
    many of these begin and end with this part.
    """
    return {"id": chord_id, NUMBER: number}


def is_part(chord: Any) -> bool:
    """Whether an option `chord` is a part's; else it is a body, or nothing."""
    return isinstance(chord, dict) and NUMBER in chord


def nth_part(chord: Any, offset: int) -> Any:
    """
    The option `chord` of a member of a header.

    Args:
        chord: That of the header; a body is the same for all.
        offset: How many parts the members before it have.
    """
    return part(chord["id"], chord[NUMBER] + offset) if is_part(chord) else chord


def shared(chord: Any, counts: list[int]) -> list[Any]:
    """
    The option `chord` of each member of a group that was to be one part: together they are one result, a list.

    Args:
        chord: That of the group.
        counts: How many parts each member has.
    """
    if not is_part(chord):
        return [chord] * len(counts)
    shares = []
    offset = 0
    for count in counts:
        shares.append(part(chord["id"], chord[NUMBER] + offset))
        offset += count
    if shares:
        shares[0]["open"] = chord.get("open", 0) + 1
        shares[-1]["close"] = chord.get("close", 0) + 1
    return shares


def enclosed(chord: dict[str, Any], text: bytes) -> bytes:
    """A part's result, as JSON, with the beginnings and ends of lists that it stands at."""
    opening: int = chord.get("open", 0)
    closing: int = chord.get("close", 0)
    return b"[" * opening + text + b"]" * closing


def count_parts(sig: Any) -> int:
    """How many tasks, at the ends of *sig*, count for the chord that it is in."""
    if not isinstance(sig, Signature) and isinstance(sig, dict):
        sig = Signature.from_dict(sig)
    if kinds.is_group(sig):
        return sum(count_parts(task) for task in getattr(sig.tasks, "tasks", sig.tasks))
    if kinds.is_chain(sig):
        # An empty group at the end gives way to the step before it.
        return next((count for count in map(count_parts, reversed(list(sig.tasks))) if count), 0)
    if kinds.is_chord(sig):
        return count_parts(sig.body)
    return 1 if isinstance(sig, Signature) else length_hint(sig)


def strip_header_links(sig: Any) -> None:
    """
    Take the bodies off the parts of chords that are to be called later.

    Freezing puts them there. A chord has its body anyway, and its parts are numbered when it is called.
    """
    if kinds.is_chord(sig):
        _clear_chord(sig.tasks)
        strip_header_links(sig.tasks)
        if sig.body is not None:
            strip_header_links(sig.body)
    elif kinds.is_group(sig) or kinds.is_chain(sig):
        for task in sig.tasks:
            strip_header_links(task)


def _clear_chord(sig: Any) -> None:
    """Take the body off all ends of *sig*."""
    if isinstance(sig, list | tuple):
        for task in sig:
            _clear_chord(task)
        return
    sig.options.pop("chord", None)
    if kinds.is_group(sig):
        _clear_chord(list(sig.tasks))
    elif kinds.is_chain(sig) and sig.tasks:
        _clear_chord(sig.tasks[-1])
    elif kinds.is_chord(sig) and sig.body is not None:
        _clear_chord(sig.body)
