"""
Test the program's periodic jobs without Redis and without waiting.

    from sidekiq_py.extensions.periodic import testing
    from sidekiq_py.testing import fake

    with fake() as jobs:
        testing.declared("nightly").run(at=datetime(2030, 1, 1, 3, tzinfo=UTC))
        assert testing.due(since, until) == [(datetime(…), "nightly")]
"""

from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile

from sidekiq_py.client import sync_client
from sidekiq_py.client.outgoing import moment
from sidekiq_py.errors import ConfigError
from sidekiq_py.extensions.periodic.declared import Declaration, declarations
from sidekiq_py.extensions.periodic.ticks import next_times, upcoming


@dataclass(frozen=True, slots=True)
class DeclaredJob:
    """A periodic job of this program."""

    declaration: Declaration

    @property
    def name(self) -> str:
        """Its name."""
        return self.declaration.entry.name

    def next_ticks(self, count: int = 1, *, after: datetime) -> list[datetime]:
        """Its next ticks after an aware datetime, in its own zone."""
        return next_times(self.declaration.cron, moment(after), count)

    def run(self, *, at: datetime) -> str | None:
        """Push its job as a tick at that time would. Returns the jid, or None if a client middleware stopped it."""
        return sync_client.current().push(self.declaration.entry.payload(moment(at)))


def declared(name: str) -> DeclaredJob:
    """
    Find a declared periodic job by name.

    Raises:
        ConfigError: The program declares no such job.
    """
    for declaration in declarations:
        if declaration.entry.name == name:
            return DeclaredJob(declaration)
    names = ", ".join(sorted(one.entry.name for one in declarations)) or "none"
    raise ConfigError(f"this program declares no periodic job {name!r}; it declares: {names}")


def due(since: datetime, until: datetime) -> list[tuple[datetime, str]]:
    """The ticks after *since* and up to *until* (both aware datetimes), each with its job's name, in order."""
    first, last = moment(since), moment(until)
    found = [
        (datetime.fromtimestamp(at, declaration.cron.tz), declaration.entry.name)
        for declaration in declarations
        for at in takewhile(lambda at: at <= last, upcoming(declaration.cron, first))
    ]
    return sorted(found, key=lambda one: (one[0].timestamp(), one[1]))
