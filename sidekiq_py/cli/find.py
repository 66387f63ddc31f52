"""`sidekiq-py find`: shows where one job is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple

import click

from sidekiq_py.api import DeadSet, JobRecord, Queue, RetrySet, ScheduledSet, WorkSet
from sidekiq_py.cli.choosing import looking_through
from sidekiq_py.cli.connection import reads_redis
from sidekiq_py.cli.output import echo_json_array, echo_table, error_cell, job_cells, job_facts, plain, relative
from sidekiq_py.clock import now_seconds
from sidekiq_py.errors import RedisReplyError

_ARGS_WIDTH = 40
_REPORT_EVERY = 1_000


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


@click.command()
@click.argument("jid", metavar="JID")
@reads_redis
def find(jid: str, as_json: bool) -> None:
    """
    Show where a job is: running, in a queue, or among retries, scheduled and dead jobs.

    Reads all queues if the job is nowhere else. Exits with 1 if the job is not found.
    """
    if not jid:
        raise click.UsageError("the JID is empty; give a job's id")
    unread: list[str] = []
    found = list(_outside_queues(jid, unread))
    if not found:
        queues = Queue.all()
        with looking_through(sum(map(_size, queues)), hidden=as_json) as report:
            found = list(_in_queues(jid, queues, report, unread))
    if as_json:
        echo_json_array(map(_as_json, found))
    elif found:
        _echo(found)
    else:
        advice = (
            "It may be in what could not be read."
            if unread
            else "It has ended or was deleted. If not, a worker has fetched it in the last ten seconds, or its worker "
            "has died and it is not back in its queue yet."
        )
        click.echo(
            f"No job with the id {plain(jid)} is running, in a queue, or among retries, scheduled and dead jobs. "
            f"{advice}",
            err=True,
        )
    if not found:
        raise click.exceptions.Exit(1)


def _outside_queues(jid: str, unread: list[str]) -> Iterator[_Found]:
    work = WorkSet().find_work(jid)
    if work is not None:
        yield _Found(work.job, "running", work.process_id, "started", work.run_at)
    sets = (("retries", RetrySet(), "due"), ("scheduled", ScheduledSet(), "due"), ("dead", DeadSet(), "died"))
    for place, job_set, happened in sets:
        with _reading(f"set {job_set.name}", unread):
            entry = job_set.find_job(jid)
            if entry is not None:
                yield _Found(entry, place, "", happened, entry.at)


def _in_queues(jid: str, queues: list[Queue], report: Callable[[int], None], unread: list[str]) -> Iterator[_Found]:
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


def _size(queue: Queue) -> int:
    try:
        return queue.size
    except RedisReplyError:
        return 0  # what is wrong is said when it is read


def _echo(found: list[_Found]) -> None:
    now = now_seconds()
    rows = [
        (
            f"running at {one.name}" if one.place == "running" else f"{one.place} {one.name}".strip(),
            f"{one.happened} {relative(one.at, now)}",
            *job_cells(one.job, _ARGS_WIDTH),
            error_cell(one.job),
        )
        for one in found
    ]
    echo_table(("PLACE", "TIME", "CLASS", "ARGS", "ERROR"), rows, elastic=("CLASS", "ARGS", "ERROR"))


def _as_json(one: _Found) -> dict[str, Any]:
    return {
        "jid": one.job.jid,
        "place": one.place,
        "queue": one.name if one.place == "queue" else one.job.queue,
        "process": one.name if one.place == "running" else None,
        "at": None if one.at is None else one.at.isoformat(),
        **job_facts(one.job),
    }
