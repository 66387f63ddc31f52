"""Does every key hold what Sidekiq and Python keep there?"""

from collections.abc import Iterator

from sidekiq_py.doctor.facts import Facts
from sidekiq_py.doctor.finding import Finding, ok, problem


def fitting(facts: Facts) -> Iterator[Finding]:
    """The keys whose name and type are fixed; those of queues are looked at beside."""
    for misfit in facts.misfits:
        away = facts.command("set-aside", misfit.key)
        yield problem(
            f"{misfit.seen[0].upper()}{misfit.seen[1:]}. {misfit.broken}.",
            f"Find out what wrote it, and move it away; a right one is made when it is needed: {away}",
            [misfit.key],
        )
    if not facts.misfits:
        yield ok("Every key of Sidekiq's and of Python's has the right type.")
