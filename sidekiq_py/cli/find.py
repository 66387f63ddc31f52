"""`sidekiq-py find`: shows where one job is, or those with a text in their arguments."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import click

from sidekiq_py import program
from sidekiq_py.api import DeadSet, JobFilter, JobRecord, JobSet, Queue, RetrySet, ScheduledSet, WorkSet
from sidekiq_py.api.bulk import Progress
from sidekiq_py.cli.choosing import argument_option, looking_through
from sidekiq_py.cli.connection import reads_redis
from sidekiq_py.cli.output import echo_json_array, echo_table, error_cell, job_cells, job_facts, plain, relative
from sidekiq_py.clock import now_seconds
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.wire.control_characters import escaped

_HEADINGS = ("PLACE", "TIME", "CLASS", "ARGS", "ERROR")
_ELASTIC = ("CLASS", "ARGS", "ERROR")
_ARGS_WIDTH = 40
_REPORT_EVERY = 1_000
# Of one place, so that a queue that is full of them does not hide the one that is dead.
_MOST_OF_A_PLACE = 25


class _Found(NamedTuple):
    """
    A job at one place.

    Args:
        place: `running`, `queue`, `retries`, `scheduled` or `dead`; the sets are called as their commands are.
        name: The queue, or the process that runs it; empty for the sets.
        happened: What *at* is the time of.
    """

    job: JobRecord
    place: str
    name: str
    happened: str
    at: datetime | None


class _Place(NamedTuple):
    """
    A place in which jobs are searched for.

    Args:
        what: How a sentence names it.
        size: The number of jobs to look through.
        lists_it: The command that lists its jobs, without options.
        find: Takes a function for the number of jobs looked at so far.
        operands: What the command is given.
    """

    what: str
    size: int
    lists_it: str
    find: Callable[[Progress], Iterator[_Found]]
    operands: tuple[str, ...] = ()


@click.command()
@click.argument("jid", metavar="[JID]", required=False)
@argument_option
@reads_redis
def find(jid: str | None, argument: str | None, as_json: bool) -> None:
    """
    Show where a job is: running, in a queue, or among retries, scheduled and dead jobs.

    Give its id, or a text in its arguments. By id, reads all queues if the job is nowhere else. With --arg, reads every
    place and shows up to 25 jobs of each. Exits with 1 if no job is found.
    """
    if (jid is None) == (argument is None):
        raise click.UsageError("which job? Give its id, or --arg with a text in its arguments; not both")
    unread: list[str] = []
    if argument is not None:
        if not argument:
            raise click.UsageError("--arg is empty; give a text in the job's arguments")
        named = f"with {plain(argument)} in its arguments"
        found = _show_all(argument, unread, as_json=as_json)
    else:
        if not jid:
            raise click.UsageError("the JID is empty; give a job's id")
        named = f"with the id {plain(jid)}"
        found = _show_one(jid, unread, as_json=as_json)
    if found:
        return
    if not as_json:
        advice = (
            "It may be in what could not be read."
            if unread
            else "It has ended or was deleted. If not, a worker has fetched it in the last ten seconds, or its worker "
            "has died and it is not back in its queue yet."
        )
        click.echo(
            f"No job {named} is running, in a queue, or among retries, scheduled and dead jobs. {advice}", err=True
        )
    raise click.exceptions.Exit(1)


def _show_one(jid: str, unread: list[str], *, as_json: bool) -> bool:
    """Show where the job with this id is. Returns False if it was not found."""
    found = list(_outside_queues(jid, unread))
    if not found:
        queues = Queue.all()
        with looking_through(sum(map(_size, queues)), hidden=as_json) as report:
            found = list(_in_queues(jid, queues, report, unread))
    if as_json:
        echo_json_array(map(_as_json, found))
    elif found:
        echo_table(_HEADINGS, map(_cells, found), elastic=_ELASTIC)
    return bool(found)


def _show_all(argument: str, unread: list[str], *, as_json: bool) -> bool:
    """Show the jobs with this text in their arguments, place by place. Returns False if none was found."""
    places = list(_places(JobFilter(argument=argument)))
    cut_short: list[_Place] = []
    with looking_through(sum(place.size for place in places), hidden=as_json) as report:
        found = _first_of_each(places, report, unread, cut_short)
        first = next(found, None)
        jobs = [] if first is None else chain([first], found)
        if as_json:
            echo_json_array(map(_as_json, jobs))
        else:
            # Only their cells are kept: there may be 25 large jobs in each of many queues.
            rows = [(one.job.jid or "-", *_cells(one)) for one in jobs]
    if not as_json and rows:
        echo_table(("JID", *_HEADINGS), rows, elastic=_ELASTIC)
    for place in cut_short:
        _say_that_there_are_more(place, argument)
    return first is not None


def _first_of_each(
    places: Sequence[_Place], report: Progress, unread: list[str], cut_short: list[_Place]
) -> Iterator[_Found]:
    """The first jobs of each place. Adds those places that have more to *cut_short*."""
    before = 0
    for place in places:
        with _reading(place.what, unread):
            found = place.find(_counted_from(before, report))
            yield from islice(found, _MOST_OF_A_PLACE)
            if next(found, None) is not None:
                cut_short.append(place)
        before += place.size
        report(before)


def _counted_from(before: int, report: Progress) -> Progress:
    return lambda number: report(before + number)


def _places(wanted: JobFilter) -> Iterator[_Place]:
    """Running jobs first and queues last, as in the search for one job."""
    yield _Place("running jobs", 0, "jobs", partial(_running, wanted))
    for name, job_set, happened in _sets():
        find = partial(_in_set, wanted, name, job_set, happened)
        yield _Place(f"set {job_set.name}", _size(job_set), f"{name} list", find)
    for queue in Queue.all():
        find = partial(_in_queue, wanted, queue)
        yield _Place(f"queue {plain(queue.name)}", _size(queue), "queues show", find, (queue.name,))


def _running(wanted: JobFilter, _report: Progress) -> Iterator[_Found]:
    for work in WorkSet().find(wanted):
        yield _Found(work.job, "running", work.process_id, "started", work.run_at)


def _in_set(wanted: JobFilter, name: str, job_set: JobSet, happened: str, report: Progress) -> Iterator[_Found]:
    for entry in job_set.find(wanted, latest_first=isinstance(job_set, DeadSet), looked_at=report):
        yield _Found(entry, name, "", happened, entry.at)


def _in_queue(wanted: JobFilter, queue: Queue, report: Progress) -> Iterator[_Found]:
    for job in queue.find(wanted, oldest_first=True, looked_at=report):
        yield _Found(job, "queue", queue.name, "enqueued", job.enqueued_at)


def _say_that_there_are_more(place: _Place, argument: str) -> None:
    from sidekiq_py.doctor.finding import command_line  # for this advice alone

    namespace = program.settings().redis.namespace
    unlimited = [] if place.lists_it == "jobs" else ["--limit", "0"]
    words = [*place.lists_it.split(), f"--arg={argument}", *unlimited]
    everything = escaped(command_line(namespace, *words, operands=place.operands))
    click.echo(f"The {place.what}: only the first {_MOST_OF_A_PLACE} are shown. For all: {everything}", err=True)


def _sets() -> Iterator[tuple[str, JobSet, str]]:
    """Each set under the name of its commands, and what a job's time in it is the time of."""
    yield "retries", RetrySet(), "due"
    yield "scheduled", ScheduledSet(), "due"
    yield "dead", DeadSet(), "died"


def _outside_queues(jid: str, unread: list[str]) -> Iterator[_Found]:
    work = WorkSet().find_work(jid)
    if work is not None:
        yield _Found(work.job, "running", work.process_id, "started", work.run_at)
    for place, job_set, happened in _sets():
        with _reading(f"set {job_set.name}", unread):
            entry = job_set.find_job(jid)
            if entry is not None:
                yield _Found(entry, place, "", happened, entry.at)


def _in_queues(jid: str, queues: list[Queue], report: Progress, unread: list[str]) -> Iterator[_Found]:
    number = 0
    for queue in queues:
        with _reading(f"queue {plain(queue.name)}", unread):
            for job in reversed(queue):
                number += 1
                if number % _REPORT_EVERY == 0:
                    report(number)
                if job.jid == jid:
                    yield _Found(job, "queue", queue.name, "enqueued", job.enqueued_at)
                    return


@contextmanager
def _reading(what: str, unread: list[str]) -> Iterator[None]:
    """Passes over a key of the wrong type, or one that this user may not read; says so, and adds it to *unread*."""
    try:
        yield
    except RedisReplyError as error:
        if error.is_about_server:
            raise
        unread.append(what)
        click.echo(f"The {what} could not be read: {error}", err=True)


def _size(jobs: Queue | JobSet) -> int:
    try:
        return jobs.size
    except RedisReplyError:
        return 0  # what is wrong is said when it is read


def _cells(one: _Found) -> tuple[str, ...]:
    return (
        f"running at {one.name}" if one.place == "running" else f"{one.place} {one.name}".strip(),
        f"{one.happened} {relative(one.at, now_seconds())}",
        *job_cells(one.job, _ARGS_WIDTH),
        error_cell(one.job),
    )


def _as_json(one: _Found) -> dict[str, Any]:
    return {
        "jid": one.job.jid,
        "place": one.place,
        "queue": one.name if one.place == "queue" else one.job.queue,
        "process": one.name if one.place == "running" else None,
        "at": None if one.at is None else one.at.isoformat(),
        **job_facts(one.job),
    }
