"""All campaigns by name; each kind of fault has a module."""

from dataclasses import dataclass

from kill_report.campaigns import (
    batches,
    clocks,
    connections,
    failovers,
    machines,
    mixed_fleets,
    named_steps,
    process_kills,
    servers,
    time_limits,
    workflows,
)
from kill_report.stage import Play


@dataclass(frozen=True, slots=True)
class Campaign:
    """
    A campaign: one kind of fault.

    Args:
        name: The name for `--campaign`.
        title: The title on the page.
        play: Runs one round.
        rounds: The number of rounds that make it complete.
    """

    name: str
    title: str
    play: Play
    rounds: int


_MODULES = (
    process_kills,
    named_steps,
    connections,
    servers,
    time_limits,
    workflows,
    batches,
    clocks,
    machines,
    failovers,
    mixed_fleets,
)

CAMPAIGNS = {name: Campaign(name, *rest) for module in _MODULES for name, *rest in module.CAMPAIGNS}
