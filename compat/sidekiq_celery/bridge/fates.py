"""What becomes of a message."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sidekiq_celery.bridge.envelope import Envelope
from sidekiq_py.extension import Command

__all__ = ("Fate", "Found", "Judge", "Kind", "Left", "Moved", "TooLarge")

Kind = Literal["moved", "scheduled", "unreadable", "stopped"]
"""
Of what is moved: into its queue, into the set `schedule`, into the dead set as nobody can read it, or nowhere as a
client middleware has stopped it.
"""


class Found(NamedTuple):
    """
    A message where it lies.

    Args:
        queue: By name, at the source.
        text: The bytes there.
        take: The condition of `moves.Entry` that takes it.
        due: Of a scheduled job: seconds since the epoch.
    """

    queue: str
    text: bytes
    take: Command = ()
    due: float | None = None


class TooLarge(NamedTuple):
    """A message that is not read, as it has so many bytes."""

    queue: str
    length: int


@dataclass(frozen=True, slots=True)
class Moved:
    """
    It is moved.

    Args:
        task_id: Empty if it has none.
        command: What is written at the destination: a verb and a key without its prefix, or nothing.
        queue: Where it comes to, by name.
        envelope: The same for a broker that is no Redis.
        note: What the summary is to say of it.
    """

    kind: Kind
    task_id: str
    command: Command
    queue: str
    envelope: Envelope | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    """
    It stays where it is.

    Args:
        reason: In words, the same for all of a kind.
    """

    reason: str


Fate = Moved | Left

Judge = Callable[[Found], Fate]
