"""
Results on their way to the next task, where the JSON of payloads cannot carry them.

Python's json has NaN and Infinity, so Celery's tasks hand them on; that of payloads, which Ruby reads, has not. They
are marked then (`json_values`), in a second try: a look at each result beforehand would cost more than most of them.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from sidekiq_celery._wire.json_values import with_marked_floats

__all__ = ("handed_on",)

Handed = TypeVar("Handed")


def handed_on(hand: Callable[[Any], Handed], result: Any) -> Handed:
    """
    Hand a result on: as it is, else with marks for NaN and Infinity.

    Args:
        hand: Writes nothing by itself.

    Raises:
        Exception: It cannot be handed on either way.
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
    """*result* with marks; None where they would not help."""
    try:
        return with_marked_floats(result)
    except (TypeError, RecursionError):
        return None
