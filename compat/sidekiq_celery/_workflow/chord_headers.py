"""
Chords in a canvas: how many parts they have, and what of them is not to be sent.

A chord's part is told what it is part of by its option `chord`. In a frozen canvas that is the chord's body, as Celery
has it; where a chord is really called, it is a `part`: the chord's id and a number. So a message holds no body, however
deep chords are nested.
"""

from operator import length_hint
from typing import Any

from sidekiq_celery._workflow import kinds
from sidekiq_celery._workflow.signature import Signature

__all__ = (
    "count_parts",
    "enclosed",
    "strip_header_links",
)


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
