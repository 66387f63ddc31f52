"""What else uses this Redis (Sidekiq Pro and Enterprise, gems, namespaces), and what does it mean for Python?"""

from collections.abc import Iterator

from sidekiq_py.doctor.facts import Facts
from sidekiq_py.doctor.families import FAMILIES
from sidekiq_py.doctor.finding import Finding, listed, note, ok, warning
from sidekiq_py.doctor.sampling import SampledJob
from sidekiq_py.logs import counted
from sidekiq_py.wire.extensions import EXTENSION_KEYS

_EXTENSIONS = "Sidekiq::Extensions::"
_SHOWN = 3
_NAMED = 50


def products(facts: Facts) -> Iterator[Finding]:
    """Keys that belong to other products."""
    found = facts.keyspace.families
    for family in FAMILIES:
        names = found.get(family.title)
        if names:
            shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
            seen = f"{family.title}: {counted(len(names), 'key')} ({shown}). {family.means}."
            yield note(seen, family.advice, names[:_NAMED])
    if not found:
        yield ok("No keys of Sidekiq Pro, Enterprise or a known gem were found.")


def marked_jobs(facts: Facts) -> Iterator[Finding]:
    """Jobs that need something only Ruby's middleware does."""
    jobs: dict[str, list[SampledJob]] = {}
    for job in facts.sample.jobs:
        for key in facts.foreign_keys_of(job.item):
            jobs.setdefault(key, []).append(job)
    for key, found in jobs.items():
        yield _marked(key, found, facts)
    expiring = [job for job in facts.sample.jobs if job.item.get("expiry")]
    if expiring:
        yield note(
            f"{counted(len(expiring), 'job has', 'jobs have')} `expiry` (Sidekiq Pro's expiring jobs), in "
            f"{listed(_queues(expiring))}: Python runs them even after they have expired.",
            "Leave queues with such jobs to Ruby.",
            _queues(expiring),
        )
    if not jobs and not expiring:
        yield ok(f"Of {facts.sample.extent} none needs Ruby's middleware.")


def extensions(facts: Facts) -> Iterator[Finding]:
    """Jobs of Sidekiq's delayed extensions (up to 6)."""
    jobs = [job for job in facts.sample.jobs if job.job_class.startswith(_EXTENSIONS)]
    if jobs:
        yield note(
            f"{counted(len(jobs), 'job is', 'jobs are')} of Sidekiq's delayed extensions ({listed(_queues(jobs))}): "
            "their argument is Ruby code in YAML, which Python must not load.",
            "Leave those queues to Ruby.",
            _queues(jobs),
        )


def namespaces(facts: Facts) -> Iterator[Finding]:
    """Queues under a prefix, by the gem redis-namespace (Sidekiq up to 6)."""
    found = facts.keyspace.namespaces
    if not found:
        yield ok("No queues under a namespace were found.")
        return
    yield warning(
        f"There are queues under {counted(len(found), 'namespace')} of redis-namespace, which the doctor did not "
        f"check: {listed(found)}.",
        f"If they are yours, set the namespace in Python as in Ruby, and run the doctor again: --namespace {found[0]}",
        found,
    )


def _marked(key: str, jobs: list[SampledJob], facts: Facts) -> Finding:
    queues = _queues(jobs)
    python = {name for worker in facts.fleet.python for name in worker.queues}
    theirs = [name for name in queues if name in python]
    meaning = EXTENSION_KEYS[key]
    seen = f"{counted(len(jobs), 'job has', 'jobs have')} `{key}`, {meaning.stands_for}, in {listed(queues)}"
    if not theirs:
        left = "No Python process fetches there now; one that met such a job serves the queue again after a restart."
        return note(f"{seen}. {left}", "Leave those queues to Ruby.", queues)
    return warning(
        f"{seen}. Python processes fetch from {listed(theirs)}: one that meets such a job gives it back and stops "
        f"serving that queue, unless `extension_keys` says otherwise. Run in Python, {meaning.left_undone}.",
        "Leave those queues to Ruby, or push such jobs to a separate queue.",
        theirs,
    )


def _queues(jobs: list[SampledJob]) -> list[str]:
    return sorted({job.queue for job in jobs if job.queue})
