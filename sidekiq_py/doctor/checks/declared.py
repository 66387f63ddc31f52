"""Can the jobs that this program declares (`-r`) run here?"""

from collections.abc import Iterator

from sidekiq_py.client.outgoing import options_of
from sidekiq_py.doctor.facts import Facts
from sidekiq_py.doctor.finding import Finding, listed, note, ok, verb, warning
from sidekiq_py.doctor.fleet import releases
from sidekiq_py.logs import counted
from sidekiq_py.wire.payload import DEFAULT_OPTIONS

# Options that middleware of other products acts on.
_OF_OTHERS = {
    "encrypt": "Sidekiq Enterprise",
    "unique_for": "Sidekiq Enterprise",
    "unique_until": "Sidekiq Enterprise",
    "expires_in": "Sidekiq Pro",
    "lock": "sidekiq-unique-jobs",
    "on_conflict": "sidekiq-unique-jobs",
    "throttle": "sidekiq-throttled",
}


def queues(facts: Facts) -> Iterator[Finding]:
    """Do workers serve the queues that the program's jobs go to?"""
    if facts.declared is None:
        return
    by_queue: dict[str, list[str]] = {}
    for name, definition in facts.declared.items():
        # Rails decides which queue an Active Job is pushed to.
        if definition.resolve is None:
            by_queue.setdefault(str({**DEFAULT_OPTIONS, **options_of(definition)}["queue"]), []).append(name)
    idle = {queue: names for queue, names in by_queue.items() if not facts.fleet.on(queue)}
    for queue, names in sorted(idle.items()):
        yield warning(
            f"{listed(sorted(names))} {verb(len(names), 'goes', 'go')} to `{queue}`, and no process serves that queue.",
            f"Start a worker for it (-q {queue}), or declare another queue.",
            sorted(names),
        )
    if not idle:
        yield ok(f"The program declares {counted(len(facts.declared), 'job')}; workers serve all their queues.")


def options(facts: Facts) -> Iterator[Finding]:
    """Options that some process here does not know."""
    if facts.declared is None:
        return
    old = [worker for worker in facts.fleet.ruby if not worker.dialect.has_retry_for]
    with_limit = sorted(name for name, job in facts.declared.items() if "retry_for" in options_of(job))
    if old and with_limit:
        yield warning(
            f"{listed(with_limit)} declares `retry_for`, which Sidekiq {releases(old)} does not know: a job that fails "
            "there is retried by number of attempts.",
            "Declare `retry` too.",
            with_limit,
        )
    jobs = sorted(facts.declared.items())
    found = [(name, key) for name, job in jobs for key in options_of(job) if key in _OF_OTHERS]
    if found:
        named = listed(f"{name} declares `{key}` ({_OF_OTHERS[key]})" for name, key in found)
        yield note(
            f"{named}: it goes into the payload, but nothing in Python acts on it.",
            "Keep it only if a Ruby process with that product should act on it.",
            sorted({name for name, _ in found}),
        )
    if not found and not (old and with_limit):
        yield ok("Every process here knows the program's options.")
