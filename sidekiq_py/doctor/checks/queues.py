"""Is every queue served, and in time?"""

from collections import Counter
from collections.abc import Collection, Iterator

from sidekiq_py.api.job_record import latency
from sidekiq_py.config import Config
from sidekiq_py.doctor.facts import Facts
from sidekiq_py.doctor.finding import (
    Finding,
    Level,
    for_shell,
    is_writable,
    listed,
    note,
    ok,
    problem,
    span,
    verb,
    warning,
)
from sidekiq_py.doctor.sampling import QueueFacts
from sidekiq_py.logs import counted
from sidekiq_py.options import complaint_about_queue
from sidekiq_py.wire import keys

LATENCY_SECONDS = 300.0
OVERDUE_SECONDS = 60.0
_NEARLY_FULL = 0.9
# At most this many names in one command.
_AT_ONCE = 20
_COMMANDS = {keys.SCHEDULE: "scheduled", keys.RETRY: "retries"}


def unworked(facts: Facts) -> Iterator[Finding]:
    """Queues with jobs that no process serves."""
    filled = [queue for queue in facts.queues if queue.size]
    idle = [queue for queue in filled if not facts.fleet.on(queue.name)]
    jobs = sum(queue.size for queue in idle)
    if not idle:
        yield ok(f"Every queue with jobs ({len(filled)} of {len(facts.queues)}) is served.")
    elif not facts.fleet.workers:
        names = listed(f"{queue.name} ({queue.size:,})" for queue in idle)
        advice = "Start a worker: sidekiq-py worker -r MODULE."
        if marked := _marked_keys([queue.name for queue in idle], facts):
            advice += f" It must be a Ruby worker: Python refuses jobs with {_quoted(marked)} (docs/pro_and_gems.md)."
        yield problem(
            f"{counted(jobs, 'job waits', 'jobs wait')}, and no process is running: {names}.",
            advice,
            (queue.name for queue in idle),
        )
    else:
        yield from (_unworked(queue, facts) for queue in idle)


def due_elsewhere(facts: Facts) -> Iterator[Finding]:
    """Scheduled jobs and retries that will go to a queue that no process serves."""
    if not facts.fleet.workers:
        return
    waiting = Counter(
        job.queue for job in facts.sample.jobs if job.score is not None and job.queue and not facts.fleet.on(job.queue)
    )
    filled = {queue.name for queue in facts.queues if queue.size}
    for name, number in sorted(waiting.items()):
        if name not in filled:
            going = counted(number, "scheduled or failed job goes", "scheduled or failed jobs go")
            yield warning(
                f"{going} to `{name}` when due, and no process serves that queue.{_leaving(name, facts)}",
                _start(facts, name, _marked_keys([name], facts)),
                [str(name)],
            )
    if not waiting:
        yield ok("Scheduled jobs and retries go to queues that are served.")


def paused(facts: Facts) -> Iterator[Finding]:
    """Paused queues."""
    paused_names = [queue.name for queue in facts.queues if queue.is_paused]
    names = [f"`{queue.name}` ({counted(queue.size, 'job')})" for queue in facts.queues if queue.is_paused]
    if not names:
        yield ok("No queue is paused.")
        return
    yield note(
        f"{listed(names)} {verb(len(names), 'is', 'are')} paused. Python processes and Sidekiq Pro's do not fetch from "
        f"{verb(len(names), 'it', 'them')}; Ruby processes without Pro do.",
        f"To resume: {facts.command('queues', 'unpause', operands=paused_names[:_AT_ONCE])}",
        paused_names,
    )


def late(facts: Facts) -> Iterator[Finding]:
    """How long the next job of each queue has waited."""
    now = facts.clock.redis_seconds
    oldest: dict[str, float] = {}
    for job in facts.sample.jobs:
        if job.score is None and job.queue is not None:
            oldest[job.queue] = max(oldest.get(job.queue, 0.0), latency(job.item, now))
    worked = {queue.name for queue in facts.queues if facts.fleet.on(queue.name)}
    paused = {queue.name for queue in facts.queues if queue.is_paused}
    slow = sorted((name, age) for name, age in oldest.items() if name in worked and age >= LATENCY_SECONDS)
    for name, age in slow:
        if name in paused:
            yield warning(
                f"Jobs of `{name}` have waited up to {span(age)}, and that queue is paused.",
                f"If the pause was forgotten: {facts.command('queues', 'unpause', operands=[name])}",
                [name],
            )
            continue
        at_once = sum(worker.info.concurrency or 0 for worker in facts.fleet.on(name))
        workers = counted(len(facts.fleet.on(name)), "process serves", "processes serve")
        of_them = f" ({counted(at_once, 'job')} at a time)" if at_once else ""
        yield warning(
            f"Jobs of `{name}` have waited up to {span(age)}; {workers} that queue{of_them}.",
            "Give it more processes or threads, or a higher weight. Look for jobs that hang: "
            f"{facts.command('jobs', '--queue', name)}",
            [name],
        )
    if not slow:
        yield ok(f"No job of a served queue has waited for {LATENCY_SECONDS / 60:.0f} min.")


def overdue(facts: Facts) -> Iterator[Finding]:
    """Are due jobs moved to their queues?"""
    now = facts.clock.redis_seconds
    ages = {name: now - score for name, score in facts.sample.overdue_since.items()}
    late_sets = {name: age for name, age in ages.items() if age >= OVERDUE_SECONDS}
    if not late_sets:
        yield ok("No scheduled job and no retry is overdue.")
        return
    named = " and ".join(f"in `{name}` for {span(age)}" for name, age in sorted(late_sets.items()))
    by_hand = [facts.command(_COMMANDS[name], "retry", "--before", "0s") for name in sorted(late_sets)]
    yield problem(
        f"Due jobs are not moved to their queues: the oldest has been due {named}.",
        "Every worker process moves due jobs: start one, or look for the poller's errors in the logs. To enqueue due "
        f"jobs by hand: {' && '.join(by_hand)}",
        sorted(late_sets),
    )


def unlisted(facts: Facts) -> Iterator[Finding]:
    """Queues that Ruby's Web UI or this user cannot see, and keys that should be queues and are not."""
    hidden = [queue for queue in facts.queues if not queue.is_known and queue.size]
    foreign = [queue for queue in facts.queues if queue.kind not in ("list", "none")]
    if hidden:
        names = [queue.name for queue in hidden]
        with_sizes = listed(f"`{queue.name}` ({counted(queue.size, 'job')})" for queue in hidden)
        yield warning(
            f"{with_sizes} {verb(len(hidden), 'is', 'are')} not in the set `queues`, so no Web UI shows "
            f"{verb(len(hidden), 'it', 'them')}.",
            "Programs that push there must SADD the name, as every Sidekiq does. To add it: "
            + facts.command("queues", "add", operands=names[:_AT_ONCE])
            + (f", and {len(names) - _AT_ONCE:,} more" if len(names) > _AT_ONCE else ""),
            names,
        )
    for queue in foreign:
        yield problem(
            f"The key `{keys.queue(queue.name)}` is a {queue.kind} and not a list: pushes to that queue are refused.",
            f"Find out what wrote it, and rename it: {facts.command('set-aside', keys.queue(queue.name))}",
            [queue.name],
        )
    refused = [queue for queue in facts.queues if queue.refusal]
    if refused:
        names = [queue.name for queue in refused]
        the_queues = f"{verb(len(names), 'queue', 'queues')} {listed(f'`{name}`' for name in names)}"
        yield Finding(
            Level.UNSEEN,
            f"The {the_queues} could not be looked at, and no other check covers {verb(len(names), 'it', 'them')}, "
            f"because Redis answered: {refused[0].refusal}",
            f"Let this user read the {verb(len(names), 'key', 'keys')} "
            f"{listed(f'`{keys.queue(name)}`' for name in names)}, or run the doctor as a user who may.",
            tuple(names),
        )
    if not (hidden or foreign or refused):
        yield ok("Every queue is a list, and is in the set `queues`.")


def unreadable(facts: Facts) -> Iterator[Finding]:
    """Jobs that no worker can read."""
    places = Counter(job.place for job in facts.sample.jobs if job.klass is None)
    if not places:
        yield ok("Every job that was looked at is a JSON object with a class.")
        return
    named = ", ".join(f"{number:,} in `{place}`" for place, number in sorted(places.items()))
    count = places.total()
    yield warning(
        f"Of {facts.sample.extent} {count:,} {verb(count, 'is', 'are')} not a JSON object with a class: {named}. When "
        "Python fetches them, they go to `dead` as they are; Ruby loses those that are JSON of another shape.",
        f"Find out what pushes them. To see those in `dead`: {facts.command('dead', 'list')}",
        sorted(places),
    )


def dead_set(facts: Facts) -> Iterator[Finding]:
    """
    Do jobs that die remove others from the dead set?

    Each process trims the set to its own limit when a job of its dies. Redis does not tell these limits, so this looks
    at the usual one.
    """
    size, most = facts.dead_size, Config().dead_max_jobs - 1
    if size < _NEARLY_FULL * most:
        yield ok(f"The dead set has {counted(size, 'job')}; by default it keeps {most:,}.")
        return
    advice = (
        "Retry or delete jobs there, or let all programs keep more (`dead_max_jobs` in sidekiq.yml, in Ruby and in "
        "Python): each process trims the set to its own limit. To see the latest: "
    ) + facts.command("dead", "list")
    if size > most:
        yield note(
            f"The dead set has {size:,} jobs, so some program keeps more than the usual {most:,}. A process without "
            "that setting removes the surplus when one of its jobs dies.",
            advice,
        )
    elif size == most:
        yield warning(
            f"The dead set has {size:,} jobs, as many as it keeps by default: each job that dies removes the oldest.",
            advice,
        )
    else:
        yield note(
            f"The dead set has {size:,} of the {most:,} jobs that it keeps by default; after that, each job that dies "
            "removes the oldest.",
            advice,
        )


def _unworked(queue: QueueFacts, facts: Facts) -> Finding:
    waiting = counted(queue.size, "job waits", "jobs wait")
    seen = f"{waiting} in `{queue.name}`, and no process serves that queue.{_leaving(queue.name, facts)}"
    marked = _marked_keys([queue.name], facts)
    advice = _start(facts, queue.name, marked)
    if not marked and is_writable(queue.name):
        move = "Or move" if _is_servable(queue.name) else "Then move"
        advice += (
            f" {move} its jobs to a queue that is served: {facts.command('queues', 'move', operands=[queue.name])} TO"
        )
    return problem(seen, advice, [queue.name])


def _leaving(name: str, facts: Facts) -> str:
    """Which processes served a queue and are quiet now, as a sentence; empty if there is none."""
    quiet = [worker.identity for worker in facts.fleet.leaving(name)]
    return f" {listed(quiet)} did, but {verb(len(quiet), 'takes', 'take')} no new jobs." if quiet else ""


def _marked_keys(names: Collection[str], facts: Facts) -> list[str]:
    """Foreign keys in jobs of these queues. A Python worker gives such a job back and stops serving the queue."""
    return sorted({key for name in names for key in facts.marked_queues.get(name, ())})


def _quoted(marked: list[str]) -> str:
    return listed(f"`{key}`" for key in marked)


def _start(facts: Facts, name: str, marked: list[str]) -> str:
    if marked:
        return (
            f"Have a Ruby process serve it: a Python worker refuses {_quoted(marked)} and stops serving the queue, "
            f"unless it is started with {_decided(marked)} (or =bury: docs/pro_and_gems.md)."
        )
    if not is_writable(name):
        steps = [
            facts.redis_cli("RENAMENX", keys.queue(name), keys.queue("NAME"), keys=2),
            facts.redis_cli("SADD", keys.QUEUES, "NAME", keys=1),
            facts.redis_cli("SREM", keys.QUEUES, name, keys=1),
        ]
        return (
            "No worker can serve a queue whose name is not UTF-8. Fix what pushes there, then rename the queue to a "
            f"new NAME, in bash, with redis-cli's options for this Redis: {' && '.join(steps)}"
        )
    if not _is_servable(name):
        return (
            "Fix what pushes there: Python workers cannot serve a queue whose name is empty, or has whitespace or "
            "control characters."
        )
    advice = f"Start a worker for it (-q {for_shell(name)}), or let a running worker serve it."
    if unknown := sorted(facts.extension_queues.get(name, ())):
        advice += (
            f" Its jobs have {_quoted(unknown)}, of an extension that is not loaded here. A worker that has not loaded "
            f"it stops serving the queue, unless it is started with {_decided(unknown)}."
        )
    return advice


def _decided(marked: list[str]) -> str:
    return " ".join(f"--extension-key {for_shell(key)}=run" for key in marked)


def _is_servable(name: str) -> bool:
    """True if a Python worker's -q takes this name."""
    return name != "" and complaint_about_queue(name, "") is None
