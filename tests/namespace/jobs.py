"""Jobs that tell in a file that they ran."""

import asyncio
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import sidekiq_py as sidekiq


@sidekiq.job(name="Note")
def note(text: str) -> None:
    """Writes a line."""
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{text}\n")


@sidekiq.job(name="Await")
async def awaited(text: str) -> None:
    """The same on the event loop."""
    await asyncio.sleep(0)
    note(text)


@sidekiq.job(name="Fail")
def fail(message: str) -> None:
    """Raises."""
    raise ValueError(message)


@sidekiq.job(name="Linger")
def linger(text: str) -> None:
    """Never ends by itself the first time; at once when it runs again."""
    is_first = text not in Path(os.environ["NOTES"]).read_text() if Path(os.environ["NOTES"]).exists() else True
    note(text)
    while is_first:
        time.sleep(0.05)


@sidekiq.job(name="Die")
def die() -> None:
    """Takes its process along."""
    os.kill(os.getpid(), signal.SIGKILL)


class Count(sidekiq.IterableJob):
    """Counts up, and says so at the end."""

    def build_enumerator(self, upto: int, pause_seconds: float, *, cursor: int | None) -> Iterable[tuple[int, int]]:
        """Where it left off."""
        return ((number, number) for number in range(cursor or 0, upto))

    def on_start(self) -> None:
        """Before the first one."""
        note("counting")

    def each_iteration(self, number: int, upto: int, pause_seconds: float) -> None:
        """One step."""
        time.sleep(pause_seconds)

    def on_complete(self) -> None:
        """At the last one, or after a cancellation."""
        note("counted")
