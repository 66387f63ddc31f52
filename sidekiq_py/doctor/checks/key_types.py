"""Does every key have the type that Sidekiq and Python give it?"""

from collections.abc import Iterator

from sidekiq_py.doctor.facts import Facts
from sidekiq_py.doctor.finding import Finding, ok, problem


def fitting(facts: Facts) -> Iterator[Finding]:
    """Keys whose name and type are fixed. The keys of queues are checked elsewhere."""
    for misfit in facts.misfits:
        away = facts.command("set-aside", operands=[misfit.key])
        yield problem(
            f"{misfit.seen[0].upper()}{misfit.seen[1:]}. {misfit.broken}.",
            f"Find out what wrote it, and move it away; a correct one is created when needed: {away}",
            [misfit.key],
        )
    if not facts.misfits:
        yield ok("Every key of Sidekiq's and of Python's has the right type.")
