"""
Chords in a canvas: how many parts they have, and what to remove from them before they are sent.

The option `chord` names the chord that a task is part of. In a frozen canvas it is the chord's body, as in Celery. When
a chord is actually called, it is a `part`: the chord's id and a number. So a message never holds a body, however deep
chords are nested.
"""

from operator import length_hint
from typing import Any

from sidekiq_celery._workflow import kinds
from sidekiq_celery._workflow.signature import Signature


def enclosed(chord: dict[str, Any], text: bytes) -> bytes:
    """A part's result as JSON, with the brackets of the nested lists that begin or end with it."""
    opening: int = chord.get("open", 0)
    closing: int = chord.get("close", 0)
    return b"[" * opening + text + b"]" * closing


def count_parts(sig: Any) -> int:
    """The number of tasks at the end of *sig* that count as parts of its chord."""
    if not isinstance(sig, Signature) and isinstance(sig, dict):
        sig = Signature.from_dict(sig)
    if kinds.is_group(sig):
        return sum(count_parts(task) for task in getattr(sig.tasks, "tasks", sig.tasks))
    if kinds.is_chain(sig):
        # An empty group at the end is skipped in favor of the step before it.
        return next((count for count in map(count_parts, reversed(list(sig.tasks))) if count), 0)
    if kinds.is_chord(sig):
        return count_parts(sig.body)
    return 1 if isinstance(sig, Signature) else length_hint(sig)


def strip_header_links(sig: Any) -> None:
    """
    Remove the bodies from the parts of chords that are called later.

    Freezing puts them there. The chord itself still has its body, and its parts are numbered when it is called.
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
    """Remove the body from all end tasks of *sig*."""
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
