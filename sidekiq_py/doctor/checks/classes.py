"""
Is every class that is queued known to somebody who fetches from its queue?

Python processes say which classes they can run; Ruby's do not. So of a class this can be told: a Python process serves
it; none does, and Ruby processes work the queue and may; or only Python processes work the queue, and none knows it.
A Python process that fetches a class which it does not know fails that job, and it is retried.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from sidekiq_py.doctor.facts import Facts
from sidekiq_py.doctor.finding import Finding, counted, listed, ok, problem, verb, warning
from sidekiq_py.doctor.fleet import Worker, releases
from sidekiq_py.doctor.sampling import SampledJob
from sidekiq_py.wire.dialect import NEW_WRAPPER

_UNKNOWN_IN_PYTHON = "sidekiq_py.errors.JobNotFoundError"
_UNKNOWN_IN_RUBY = re.compile(r"uninitialized constant (\S+)")


def unserved(facts: Facts) -> Iterator[Finding]:
    """Classes that wait in queues, against those that workers know."""
    waiting: dict[str, Counter[str]] = {}
    for job in facts.sample.jobs:
        if job.queue is not None and job.job_class:
            waiting.setdefault(job.queue, Counter())[job.job_class] += 1
    findings = [finding for queue in sorted(waiting) for finding in _of_queue(queue, waiting[queue], facts)]
    classes = {name for counts in waiting.values() for name in counts}
    fine = ok(f"No problem was found with {counted(len(classes), 'queued class', 'queued classes')}.")
    yield from findings or [fine]


def refused(facts: Facts) -> Iterator[Finding]:
    """Retries of jobs whose class was not known to the process that took them."""
    unknown = Counter(found for job in facts.sample.jobs if (found := _unknown_class(job)))
    if not unknown:
        yield ok("No retry failed because its class was unknown.")
        return
    languages = {name: language for language, name in unknown}
    names = sorted(languages)
    yield warning(
        f"{counted(unknown.total(), 'retry', 'retries')} failed because the process that took the job did not know its "
        f"class: {listed(f'{name} (in {languages[name]})' for name in names)}.",
        "Let each class be pushed to a queue whose every process knows it.",
        names,
    )


def wrappers(facts: Facts) -> Iterator[Finding]:
    """Active Jobs under Sidekiq 8's wrapper, where older releases fetch them."""
    old = [worker for worker in facts.fleet.ruby if worker.dialect.active_job_wrapper != NEW_WRAPPER]
    taken = [
        job
        for job in facts.sample.jobs
        if job.item.get("class") == NEW_WRAPPER and any(job.queue in worker.queues for worker in old)
    ]
    if not taken:
        yield ok("Every waiting Active Job has a wrapper class that its workers know.")
        return
    names = sorted({job.job_class for job in taken})
    yield problem(
        f"{counted(len(taken), 'Active Job waits', 'Active Jobs wait')} under {NEW_WRAPPER}, the wrapper of Sidekiq 8, "
        f"where Sidekiq {releases(old)} fetches: {listed(names)}. It lacks that class.",
        "Let what pushes them write for the oldest release (in Python: sidekiq_version), or upgrade those processes.",
        names,
    )


def _of_queue(queue: str, waiting: Counter[str], facts: Facts) -> Iterator[Finding]:
    workers = facts.fleet.on(queue)
    python = [worker for worker in workers if worker.is_python]
    if not python or any(worker.classes is None for worker in python):
        # Nobody works it, which is another check's finding, or somebody who does not tell may know.
        return
    has_ruby = len(python) < len(workers)
    ours = facts.declared or {}
    unknown = {name: number for name, number in waiting.items() if name not in ours and not _knows(python, name)}
    if unknown and has_ruby:
        yield _perhaps_ruby(queue, unknown, python)
    elif unknown:
        yield _nobody(queue, unknown, python)
    yield from _partly(queue, [name for name in waiting if name not in unknown], python)


def _nobody(queue: str, unknown: dict[str, int], python: list[Worker]) -> Finding:
    identities = listed(worker.identity for worker in python)
    return problem(
        f"`{queue}` holds {_named(unknown)}, which none of the Python processes declares that alone work it "
        f"({identities}): each such job fails, and is retried until it is dead.",
        "Import what declares it in those workers (-r), or push it to a queue that its workers fetch from.",
        sorted(unknown),
    )


def _perhaps_ruby(queue: str, unknown: dict[str, int], python: list[Worker]) -> Finding:
    return warning(
        f"`{queue}` holds {_named(unknown)}, which no Python process declares; Ruby processes work that queue and may "
        f"know {verb(len(unknown), 'it', 'them')}. Those that {listed(worker.identity for worker in python)} "
        "fetches first fail there, and are retried.",
        "Give Ruby and Python queues of their own, or declare the class on both sides.",
        sorted(unknown),
    )


def _partly(queue: str, known: Iterable[str], python: list[Worker]) -> Iterator[Finding]:
    """Classes that one Python process of the queue declares, and another does not."""
    lacking: dict[str, list[str]] = {}
    for name in known:
        strangers = [worker.identity for worker in python if worker.classes is not None and name not in worker.classes]
        if 0 < len(strangers) < len(python):
            lacking[name] = strangers
    if lacking:
        names = sorted(lacking)
        processes = sorted({identity for strangers in lacking.values() for identity in strangers})
        yield warning(
            f"`{queue}` holds {listed(names)}, which some Python processes of that queue declare and others do not "
            f"({listed(processes)}): a job that one of these fetches fails there, and is retried.",
            "Load the same modules (-r) in all workers of a queue, or give them queues of their own.",
            names,
        )


def _knows(python: list[Worker], name: str) -> bool:
    return any(worker.classes is not None and name in worker.classes for worker in python)


def _named(unknown: dict[str, int]) -> str:
    return listed(f"{name} ({counted(number, 'job')} looked at)" for name, number in sorted(unknown.items()))


def _unknown_class(job: SampledJob) -> tuple[str, str] | None:
    """The language and the class that it did not find; None for a job that did not fail so."""
    error, message = job.item.get("error_class"), job.item.get("error_message")
    if error == _UNKNOWN_IN_PYTHON:
        return "Python", job.job_class
    match = _UNKNOWN_IN_RUBY.match(message) if error == "NameError" and isinstance(message, str) else None
    return ("Ruby", match[1]) if match else None
