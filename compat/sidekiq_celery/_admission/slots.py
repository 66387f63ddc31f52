"""
Starts at a rate that all processes share.

`<key>` is a hash with the times of the next start and of the next free appointments (`take_slot.lua`). It uses the
clock of Redis, so that the workers' clocks do not matter.
"""

from importlib.resources import files
from typing import NamedTuple

from sidekiq_py.extension import Pool, Script

_LUA = files("sidekiq_celery._admission") / "lua"
TAKE = Script.of_text("take_slot", (_LUA / "take_slot.lua").read_text("utf-8"))

SLACK_SECONDS = 0.25
"""
How far back starts are made up that runs left unused because they were late for their appointments. It keeps the rate
steady despite delays on the way.
"""

_MICROSECONDS = 1_000_000


class Slot(NamedTuple):
    """
    When a run may start.

    Args:
        wait_seconds: Seconds until the run starts; 0 to start immediately. Meaningless with an appointment.
        at: The appointment, in seconds since the epoch; None if the run starts.
    """

    wait_seconds: float
    at: float | None


def take(pool: Pool, key: str, per_second: float, *, patience_seconds: float, is_expected: bool) -> Slot:
    """
    Request a start. If the reply is lost, it is requested again, which leaves one start unused.

    Args:
        per_second: Starts per second; above 0.
        patience_seconds: How long the caller is willing to wait for its start.
        is_expected: True if the run has an appointment.

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
    """Reset the state because the rate has changed; waiting runs are about to come back and request a start again."""
    pool.command("UNLINK", key)
