"""
Starts at a rate that all processes keep together.

`<key>` is a hash with the times of the next start and of the next free appointments (`take_slot.lua`). By the clock of
Redis, so that clocks of workers do not matter.
"""

from importlib.resources import files
from typing import NamedTuple

from sidekiq_py.extension import Pool, Script

__all__ = ("SLACK_SECONDS", "Slot", "start_afresh", "take")

_LUA = files("sidekiq_celery._admission") / "lua"
TAKE = Script.of_text("take_slot", (_LUA / "take_slot.lua").read_text("utf-8"))

SLACK_SECONDS = 0.25
"""
What those who come late for their appointments leave unused is made up for as far back as this, so that the rate holds
in spite of waits on the way.
"""

_MICROSECONDS = 1_000_000


class Slot(NamedTuple):
    """
    When a run may start.

    Args:
        wait_seconds: It starts, after as long; 0 for at once. Meaningless with an appointment.
        at: Its appointment, seconds since the epoch; None if it starts.
    """

    wait_seconds: float
    at: float | None


def take(pool: Pool, key: str, per_second: float, *, patience_seconds: float, is_expected: bool) -> Slot:
    """
    Ask for a start. After a lost reply it is asked again, which leaves one start unused.

    Args:
        per_second: Starts a second; above 0.
        patience_seconds: The caller waits as long for its start.
        is_expected: It comes by appointment.

    Raises:
        RedisError: As `Pool.run` does.
    """
    arguments = [
        f"{_MICROSECONDS / per_second:.3f}",
        f"{SLACK_SECONDS * _MICROSECONDS:.0f}",
        f"{patience_seconds * _MICROSECONDS:.0f}",
        "1" if is_expected else "0",
    ]
    may_start, microseconds = pool.run(lambda link: TAKE.run(link, [key], arguments))
    seconds = int(microseconds) / _MICROSECONDS
    return Slot(seconds, None) if may_start else Slot(0.0, seconds)


def start_afresh(pool: Pool, key: str) -> None:
    """The rate is another from now on, and whoever waits is about to come back and ask anew."""
    pool.command("UNLINK", key)
