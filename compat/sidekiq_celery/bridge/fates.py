"""What happens to a message: the values that a judge returns."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from sidekiq_celery.bridge.envelope import Envelope
from sidekiq_py.extension import Command

Kind = Literal["moved", "scheduled", "unreadable", "stopped"]
"""
Where a message goes: into its queue, into the set `schedule`, into the dead set because it is unreadable, or nowhere
because client middleware has stopped it.
"""

MALFORMED = (TypeError, ValueError, LookupError, AttributeError, OverflowError, RecursionError)
"""Errors that a value of an unexpected type in a message may raise anywhere in a judge."""


class Left(NamedTuple):
    """
    The message stays where it is.

    Args:
        reason: The reason in words, the same for all messages of a kind.
    """

    reason: str


def too_large(most_bytes: int) -> Left:
    """The fate of a message that is larger than that."""
    return Left(f"more than {most_bytes} bytes (--max-bytes)")


class Found(NamedTuple):
    """
    A message at the source.

    Args:
        queue: The queue's name at the source.
        text: The message's bytes.
        take: The condition for `moves.Entry` that takes it.
        due: When a scheduled job is due, in seconds since the epoch.
        left: Why its bytes were not read.
    """

    queue: str
    text: bytes
    take: Command = ()
    due: float | None = None
    left: Left | None = None


class Moved(NamedTuple):
    """
    The message is moved.

    Args:
        task_id: The task's id; empty if it has none.
        command: The command to run at the destination: a verb and a key without its prefix, or nothing.
        queue: The queue's name at the destination.
        envelope: The message for a broker other than Redis.
        note: A remark for the summary.
    """

    kind: Kind
    task_id: str
    command: Command
    queue: str
    envelope: Envelope | None = None
    note: str = ""


Fate = Moved | Left

Judge = Callable[[Found], Fate]
