"""
Which unit do the times in payloads have, and does every process read it correctly?

Sidekiq up to 7 writes and reads seconds, as floats. Sidekiq 8 writes milliseconds, as integers; it reads a float as
seconds and an integer as milliseconds. So every release reads floats correctly, only 8 reads milliseconds correctly,
and all but 8 read whole seconds correctly. Python processes tell the units apart by their size.

Source: Sidekiq 6.4.1 to 8.1.7, api.rb, job_util.rb, job_retry.rb.
"""

import enum
from collections.abc import Iterator
from typing import Any

from sidekiq_py.doctor.facts import Facts
from sidekiq_py.doctor.finding import Finding, listed, note, ok, problem, verb, warning
from sidekiq_py.doctor.fleet import Worker, releases
from sidekiq_py.doctor.sampling import SampledJob
from sidekiq_py.logs import counted
from sidekiq_py.telemetry import LEAST_MILLISECONDS
from sidekiq_py.wire.dialect import version_text

_FIELDS = ("created_at", "enqueued_at", "failed_at", "retried_at")
_WRITE_FLOATS = "No release of Sidekiq writes such times. Make the program that pushes them write floats: 1700000000.0"


class Unit(enum.Enum):
    """The ways in which a time can be written."""

    SECONDS = "float seconds"
    MILLISECONDS = "whole milliseconds"
    WHOLE_SECONDS = "whole seconds"
    TEXT = "text"


def unit_of(stamp: Any) -> Unit | None:
    """The unit of a time in a payload; None if there is no time."""
    if isinstance(stamp, float):
        return Unit.SECONDS
    if type(stamp) is int:
        return Unit.MILLISECONDS if stamp > LEAST_MILLISECONDS else Unit.WHOLE_SECONDS
    return Unit.TEXT if isinstance(stamp, str) else None


def units(facts: Facts) -> Iterator[Finding]:
    """Which units occur, which processes misread them, and which write them."""
    found: dict[Unit, list[SampledJob]] = {unit: [] for unit in Unit}
    for job in facts.sample.jobs:
        for unit in {unit_of(job.item.get(field)) for field in _FIELDS} - {None}:
            found[unit].append(job)  # type: ignore[index]
    ruby = facts.fleet.ruby
    findings = [
        *_milliseconds(found, [worker for worker in ruby if not worker.dialect.millisecond_times], facts),
        *_whole_seconds(found[Unit.WHOLE_SECONDS], [worker for worker in ruby if worker.dialect.millisecond_times]),
        *_texts(found[Unit.TEXT]),
    ]
    present = [unit.value for unit, jobs in found.items() if jobs]
    yield from findings or [ok(f"Times are in {' and '.join(present) or 'no payload'}.")]


def _milliseconds(found: dict[Unit, list[SampledJob]], old: list[Worker], facts: Facts) -> Iterator[Finding]:
    jobs = found[Unit.MILLISECONDS]
    if not jobs:
        return
    seen = f"{_share(jobs, facts)} have times in whole milliseconds, as Sidekiq 8 writes them"
    fetchers = [worker for worker in old if not worker.queues.isdisjoint(job.queue for job in jobs)]
    classes = sorted({job.job_class for job in jobs})
    if fetchers:
        yield problem(
            f"{seen}, and {listed(worker.title for worker in fetchers)} {verb(len(fetchers), 'reads', 'read')} them as "
            f"seconds: latencies come out hugely negative, and `retry_for` never ends. {_cause(facts)}",
            "Make the programs that push to those queues write float seconds, which all releases read (in Python: set "
            f"sidekiq_version to {version_text(fetchers[0].dialect.version)}), or upgrade those processes.",
            classes,
        )
    elif old:
        yield warning(
            f"{seen}. Newer processes serve their queues, but the Web UI and the data API of Sidekiq {releases(old)} "
            f"show wrong times for them. {_cause(facts)}",
            "Use Sidekiq 8's Web UI to look at them, and do not let older processes serve these queues.",
            classes,
        )
    elif found[Unit.SECONDS]:
        floats = counted(len(found[Unit.SECONDS]), "job")
        yield note(f"{seen}, and {floats} in float seconds. Sidekiq 8 and Python read both; older releases do not.")


def _whole_seconds(jobs: list[SampledJob], new: list[Worker]) -> Iterator[Finding]:
    if not jobs:
        return
    classes = sorted({job.job_class for job in jobs})
    seen = f"{counted(len(jobs), 'job has', 'jobs have')} times in whole seconds: {listed(classes)}"
    if new:
        yield warning(
            f"{seen}. Sidekiq {releases(new)} reads them as milliseconds: January 1970.", _WRITE_FLOATS, classes
        )
    else:
        yield note(f"{seen}. Sidekiq 8 would read them as milliseconds.", _WRITE_FLOATS, classes)


def _texts(jobs: list[SampledJob]) -> Iterator[Finding]:
    if jobs:
        classes = sorted({job.job_class for job in jobs})
        yield warning(
            f"{counted(len(jobs), 'job has', 'jobs have')} times as text: {listed(classes)}. Ruby's Web UI and "
            "`Queue#latency` fail on such a job.",
            _WRITE_FLOATS,
            classes,
        )


def _share(jobs: list[SampledJob], facts: Facts) -> str:
    return f"{len(jobs):,} of {counted(len(facts.sample.jobs), 'job')} looked at"


def _cause(facts: Facts) -> str:
    causes = [worker.title for worker in facts.fleet.workers if worker.dialect.millisecond_times]
    if causes:
        return f"They may come from {listed(causes)}."
    return "No live process writes them: they come from a program that only enqueues, or from a process that has ended."
