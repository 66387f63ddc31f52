"""Is every job in flight held by a live process, or by one whose jobs will be recovered?"""

import re
from collections.abc import Iterator, Mapping

from sidekiq_py.api.processes import SILENT_SECONDS
from sidekiq_py.doctor import families
from sidekiq_py.doctor.facts import Facts
from sidekiq_py.doctor.finding import Finding, listed, note, ok, problem, verb, warning
from sidekiq_py.doctor.owners import OwnerFacts
from sidekiq_py.logs import counted
from sidekiq_py.wire import keys

# Leases are read every 5 s; an owner counts as dead when its lease was missing in two reads more than 10 s apart.
_RECOVERED_WITHIN_SECONDS = 20

# The end of working:queue:<queue>:<hostname>:<pid>:<12 hex>; older releases omit the last part.
_GITLAB_IDENTITY = re.compile(r":([^:]+:\d+(?::[0-9a-f]{12})?)\Z")


def orphans(facts: Facts) -> Iterator[Finding]:
    """Python processes that are gone, and the jobs they had in flight."""
    owners = facts.owners
    alive = [owner for owner in owners.entered if owner.has_lease and not owner.is_departed]
    gone = [owner for owner in owners.entered if owner.jobs and not owner.has_lease]
    beating = {worker.identity for worker in facts.fleet.workers if (worker.beat_age_seconds or 0) < SILENT_SECONDS}
    waking = [owner for owner in gone if owner.identity in beating and not owner.is_departed]
    dead = [owner for owner in gone if owner not in waking]
    jobs = sum(owner.jobs for owner in dead)
    if dead:
        processes = counted(len(dead), "Python process", "Python processes")
        count = counted(jobs, "job is", "jobs are")
        seen = f"{count} in flight at {processes} not heard from for a while: {_listed(dead)}."
        names = [owner.name for owner in dead]
        if alive:
            advice = f"A running Python worker will recover them within about {_RECOVERED_WITHIN_SECONDS} s."
            yield warning(seen, advice, names)
        else:
            yield problem(seen, f"No running Python worker can recover them: {facts.command('recover')}", names)
    if waking:
        yield note(
            f"{_listed(waking)} {verb(len(waking), 'has', 'have')} a heartbeat but no lease at this "
            "moment, as after an outage of Redis.",
            "The lease is renewed within seconds; run the doctor again.",
            (owner.name for owner in waking),
        )
    if not gone:
        held = sum(owner.jobs for owner in alive)
        yield ok(f"{counted(held, 'job')} in flight, all at live processes.")


def unentered(facts: Facts) -> Iterator[Finding]:
    """In-flight hashes and inboxes that no registry lists, as after a partial loss of data."""
    for owner in facts.owners.unentered:
        yield problem(
            f"{counted(owner.jobs, 'job is', 'jobs are')} in flight under {owner.name}, which is not in "
            f"{keys.OWNERS}: no worker will recover {verb(owner.jobs, 'it', 'them')}.",
            f"Register it again, so that its jobs go back: {facts.command('recover')}",
            [owner.name],
        )
    if not facts.owners.unentered:
        yield ok("Every in-flight hash belongs to a registered owner.")


def suspects(facts: Facts) -> Iterator[Finding]:
    """Jobs whose process died while they were in flight."""
    if number := facts.owners.suspects:
        yield note(
            f"{counted(number, 'job was', 'jobs were')} in flight when a Python process died, in the last 72 hours. "
            "If three more processes die while running the same job, that job goes to `dead`.",
            "If processes keep dying, look at memory, native libraries and the kernel's log (OOM).",
        )
    else:
        yield ok("No job is suspected of having killed its process.")


def of_ruby(facts: Facts) -> Iterator[Finding]:
    """Jobs that other fetchers keep in Redis for processes that are gone."""
    found = facts.keyspace.families
    private = [name for name in found.get(families.SUPER_FETCH, ()) if name.startswith("queue:sq|")]
    working = [name for name in found.get(families.GITLAB, ()) if name.startswith("working:queue:")]
    yield from _super_fetch(private, facts)
    yield from _gitlab(working, facts)


def _super_fetch(lists: list[str], facts: Facts) -> Iterator[Finding]:
    beating = {worker.identity for worker in facts.fleet.workers}
    gone = [name for name in lists if len(parts := name.split("|")) == 3 and parts[1] not in beating]
    advice = "Start a Ruby process with super_fetch: only that recovers them, when it starts and then once an hour."
    yield from _left_in("private lists of Sidekiq Pro's super_fetch", facts.sizes(gone), advice)


def _gitlab(lists: list[str], facts: Facts) -> Iterator[Finding]:
    identities = {name: match[1] for name in lists if (match := _GITLAB_IDENTITY.search(name)) is not None}
    beats = {name: f"reliable-fetcher-heartbeat-{identity.replace(':', '-')}" for name, identity in identities.items()}
    alive = facts.existing(list(beats.values()))
    silent = [name for name, beat in beats.items() if beat not in alive]
    advice = "Start a Ruby process with that fetcher: only that recovers them, within the hour."
    yield from _left_in("working lists of GitLab's reliable fetcher", facts.sizes(silent), advice)


def _left_in(lists: str, sizes: Mapping[str, int], advice: str) -> Iterator[Finding]:
    filled = [name for name, size in sizes.items() if size]
    if filled:
        count = counted(sum(sizes.values()), "job is", "jobs are")
        yield warning(f"{count} in {lists} whose process is gone: {listed(filled)}.", advice, filled)


def _listed(owners: list[OwnerFacts]) -> str:
    return listed(f"{owner.identity} ({counted(owner.jobs, 'job')})" for owner in owners)
