"""Every campaign by its name; a module for each kind of fault."""

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
    A kind of fault.

    Args:
        name: As `--campaign` takes it.
        title: As it stands on the page.
        play: One round.
        rounds: With so many it is complete.
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
