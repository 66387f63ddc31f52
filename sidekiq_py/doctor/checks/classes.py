"""
Does a process that serves the queue know each queued class?

Python processes publish the classes that they can run; Ruby's do not. So there are three cases for a class: a Python
process serves it; no Python process does, but Ruby processes serve the queue and may know it; or only Python processes
serve the queue, and none knows it. A Python process that fetches a job of an unknown class fails it, and the job is
retried.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from sidekiq_py.doctor.facts import Facts
from sidekiq_py.doctor.finding import Finding, listed, ok, problem, verb, warning
from sidekiq_py.doctor.fleet import Worker, releases
from sidekiq_py.doctor.sampling import SampledJob
from sidekiq_py.logs import counted
from sidekiq_py.wire.dialect import NEW_WRAPPER

_UNKNOWN_IN_PYTHON = "sidekiq_py.errors.JobNotFoundError"
_UNKNOWN_IN_RUBY = re.compile(r"uninitialized constant (\S+)")


def unserved(facts: Facts) -> Iterator[Finding]:
    """Compare the classes of waiting jobs with those that workers know."""
    waiting: dict[str, Counter[str]] = {}
    for job in facts.sample.jobs:
        if job.queue is not None and job.job_class:
            waiting.setdefault(job.queue, Counter())[job.job_class] += 1
    findings = [finding for queue in sorted(waiting) for finding in _of_queue(queue, waiting[queue], facts)]
    classes = {name for counts in waiting.values() for name in counts}
    fine = ok(f"No problem was found with {counted(len(classes), 'queued class', 'queued classes')}.")
    yield from findings or [fine]


def refused(facts: Facts) -> Iterator[Finding]:
    """Retries of jobs that failed because the process that took them did not know their class."""
    unknown = Counter(found for job in facts.sample.jobs if (found := _unknown_class(job)))
    if not unknown:
        yield ok("No retry failed because its class was unknown.")
        return
    languages = {name: language for language, name in unknown}
    names = sorted(languages)
    yield warning(
        f"{counted(unknown.total(), 'retry', 'retries')} failed because the process that took the job did not know its "
        f"class: {listed(f'{name} (in {languages[name]})' for name in names)}.",
        "Push each class to a queue where every process knows it. If a class was renamed, declare its old name, too, "
        "until these jobs have run.",
        names,
    )


def wrappers(facts: Facts) -> Iterator[Finding]:
    """Active Jobs under Sidekiq 8's wrapper class in queues that older releases serve."""
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
        f"where Sidekiq {releases(old)} fetches: {listed(names)}. That release does not have the class.",
        "Make the program that pushes them write for the oldest release (in Python: sidekiq_version), or upgrade those "
        "processes.",
        names,
    )


def _of_queue(queue: str, waiting: Counter[str], facts: Facts) -> Iterator[Finding]:
    workers = facts.fleet.on(queue)
    python = [worker for worker in workers if worker.is_python]
    if not python or any(worker.classes is None for worker in python):
        # If no process serves the queue, another check reports it. A process that does not publish its classes may know
        # it.
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
        f"`{queue}` holds or will get {_named(unknown)}. Only Python processes serve it, and none declares "
        f"{verb(len(unknown), 'that class', 'those classes')} ({identities}): each such job "
        "fails, and is retried until it is dead.",
        "Import the module that declares it in those workers (-r), or push it to a queue that its workers serve. If it "
        "was renamed, declare its old name, too, until these jobs have run.",
        sorted(unknown),
    )


def _perhaps_ruby(queue: str, unknown: dict[str, int], python: list[Worker]) -> Finding:
    return warning(
        f"`{queue}` holds or will get {_named(unknown)}, which no Python process declares. Ruby processes serve that "
        f"queue and may know {verb(len(unknown), 'it', 'them')}. Those jobs that "
        f"{listed(worker.identity for worker in python)} {verb(len(python), 'fetches', 'fetch')} fail there, and are "
        "retried.",
        "Give Ruby and Python separate queues, or declare the class on both sides.",
        sorted(unknown),
    )


def _partly(queue: str, known: Iterable[str], python: list[Worker]) -> Iterator[Finding]:
    """Classes that some Python processes of the queue declare and others do not."""
    lacking: dict[str, list[str]] = {}
    for name in known:
        without_it = [worker.identity for worker in python if worker.classes is not None and name not in worker.classes]
        if 0 < len(without_it) < len(python):
            lacking[name] = without_it
    if lacking:
        names = sorted(lacking)
        processes = sorted({identity for without_it in lacking.values() for identity in without_it})
        yield warning(
            f"`{queue}` holds or will get {listed(names)}, which some Python processes of that queue declare and "
            f"others do not ({listed(processes)}): a job that one of the latter fetches fails, and is retried.",
            "Load the same modules (-r) in all workers of a queue, or give them separate queues.",
            names,
        )


def _knows(python: list[Worker], name: str) -> bool:
    return any(worker.classes is not None and name in worker.classes for worker in python)


def _named(unknown: dict[str, int]) -> str:
    return listed(f"{name} ({counted(number, 'job')} looked at)" for name, number in sorted(unknown.items()))


def _unknown_class(job: SampledJob) -> tuple[str, str] | None:
    """The language that failed to find the class, and the class; None for a job that failed otherwise or not at all."""
    error, message = job.item.get("error_class"), job.item.get("error_message")
    if error == _UNKNOWN_IN_PYTHON:
        return "Python", job.job_class
    match = _UNKNOWN_IN_RUBY.match(message) if error == "NameError" and isinstance(message, str) else None
    return ("Ruby", match[1]) if match else None
