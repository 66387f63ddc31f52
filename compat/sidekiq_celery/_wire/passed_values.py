"""
Passing results to the next task even if the JSON of payloads cannot represent them.

Python's json supports NaN and Infinity, so Celery tasks can pass them on. The JSON of payloads, which Ruby reads, does
not. They are therefore marked (`json_values`) in a second attempt: checking each result first would cost more than
sending most of them.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from sidekiq_celery._wire.json_values import with_marked_floats

Handed = TypeVar("Handed")


def handed_on(hand: Callable[[Any], Handed], result: Any) -> Handed:
    """
    Pass a result on: unchanged if possible, otherwise with marks for NaN and Infinity.

    Args:
        hand: Passes the result on. It must not write anything itself, because it may be called twice.

    Raises:
        Exception: The result cannot be passed on either way.
    """
    try:
        return hand(result)
    except Exception as error:
        from kombu.exceptions import EncodeError

        marked = _marked(result) if isinstance(error, EncodeError) else None
        if marked is not None:
            with suppress(EncodeError):
                return hand(marked)
        raise


def _marked(result: Any) -> Any:
    """*result* with marks. Returns None if they would not help."""
    try:
        return with_marked_floats(result)
    except (TypeError, RecursionError):
        return None
