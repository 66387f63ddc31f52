"""`--by`: counts jobs by class, queue, error or arguments, in place of listing them."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import click

from sidekiq_py.api import JobRecord
from sidekiq_py.cli.output import cut, echo_json, echo_table, shortened, shown
from sidekiq_py.logs import counted
from sidekiq_py.redaction import current, names_of
from sidekiq_py.wire.json_writer import json_text

# What a walk through any number of jobs keeps in memory.
_MOST_GROUPS = 10_000
_LONGEST = 400

_HEADINGS = {"class": "CLASS", "queue": "QUEUE", "error": "ERROR", "arg": "ARGS"}
_WIDTHS = {"class": 40, "queue": 40, "error": 60, "arg": 60}

_Cell = tuple[str | None, bytes]
"""A value of a group, cut; if it was cut, with a digest of all of it."""


class Groups(NamedTuple):
    """
    How many jobs there are of each kind.

    Args:
        by: What they are counted by, words of `--by`.
        counts: The values of each group and the number of its jobs, largest first.
        not_grouped: The number of jobs that are in none of them, because there are too many groups.
    """

    by: Sequence[str]
    counts: Sequence[tuple[tuple[str | None, ...], int]]
    not_grouped: int

    @property
    def jobs(self) -> int:
        """The number of all jobs."""
        return sum(number for _, number in self.counts) + self.not_grouped


def _words(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        if word not in _HEADINGS:
            raise click.BadParameter(f"{word!r} is not one of {', '.join(_HEADINGS)}; several as in class,error")
    return words


by_option = click.option(
    "--by",
    callback=_words,
    metavar="class|queue|error|arg",
    help="Count the jobs by class, queue, error class or arguments, or by several, as in class,error.",
)


def grouped(jobs: Iterable[JobRecord], by: Sequence[str]) -> Groups:
    """Count *jobs*, each as it is read, by the words of `--by`."""
    counts: dict[tuple[_Cell, ...], int] = {}
    not_grouped = 0
    for job in jobs:
        group = _group(job, by)
        if group in counts or len(counts) < _MOST_GROUPS:
            counts[group] = counts.get(group, 0) + 1
        else:
            not_grouped += 1
    found = [(tuple(text for text, _ in group), number) for group, number in counts.items()]
    found.sort(key=lambda one: (-one[1], [text or "" for text in one[0]]))
    return Groups(by, found, not_grouped)


def echo_groups(groups: Groups, limit: int, *, as_json: bool) -> None:
    """
    Print the largest groups.

    Args:
        limit: How many; 0 for all.
    """
    largest = groups.counts[:limit] if limit > 0 else groups.counts
    number = len(groups.counts)
    if as_json:
        counts = [{"jobs": jobs, **dict(zip(groups.by, values, strict=True))} for values, jobs in largest]
        echo_json({"jobs": groups.jobs, "groups": number, "not_grouped": groups.not_grouped, "counts": counts})
    elif not largest:
        click.echo("No jobs found.")
    else:
        headings = [_HEADINGS[word] for word in groups.by]
        widths = [_WIDTHS[word] for word in groups.by]
        rows = [
            (
                f"{jobs:,}",
                *("-" if text is None else shortened(text, width) for text, width in zip(values, widths, strict=True)),
            )
            for values, jobs in largest
        ]
        echo_table(("JOBS", *headings), rows, right=("JOBS",), elastic=headings)
        rest = "" if len(largest) == number else f"; {len(largest):,} shown, --limit 0 shows all"
        click.echo(f"{counted(groups.jobs, 'job')} in {counted(number, 'group')}{rest}.")
    if groups.not_grouped:
        are = "job is" if groups.not_grouped == 1 else "jobs are"
        click.echo(
            f"{groups.not_grouped:,} {are} in none of them: there are more than {_MOST_GROUPS:,} groups, and the first "
            "that were met are counted. Use a filter, or count by less.",
            err=True,
        )


def _group(job: JobRecord, by: Sequence[str]) -> tuple[_Cell, ...]:
    return tuple(_cell(_value(job, word)) for word in by)


def _value(job: JobRecord, word: str) -> str | None:
    if word == "arg":
        return json_text(shown(job).display_args)
    if word == "error":
        return _error_class(job)
    return job.queue if word == "queue" else job.display_class


def _error_class(job: JobRecord) -> str | None:
    """As `shown` leaves it; but that looks through the arguments, too, which takes longer than reading the job."""
    error, policy = job.error_class, current()
    if error is None or policy.is_empty:
        return error
    visible = policy.apply({"error_class": error}, job.klass, job.display_class, *names_of(job.item))
    return str(visible["error_class"])


def _cell(text: str | None) -> _Cell:
    if text is None or len(text) <= _LONGEST:
        return text, b""
    return cut(text, _LONGEST), hashlib.sha256(text.encode(errors="surrogatepass")).digest()
