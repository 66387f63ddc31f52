"""`sidekiq-py queues`: list, show, clear, delete, pause, unpause, move and add."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

import click

from sidekiq_py import program
from sidekiq_py.api import BulkResult, JobFilter, ProcessSet, Queue, QueuedJob, QueueSummary, Stats
from sidekiq_py.api.stats import known_queues
from sidekiq_py.cli.choosing import (
    ask,
    at_most,
    dry_run_option,
    end_if_none,
    filter_options,
    limit_option,
    looking_through,
    print_count,
    print_result,
    rate_option,
    stopped_by_ctrl_c,
    take_filter,
    unknown,
    yes_option,
)
from sidekiq_py.cli.connection import complete_queue, reads_redis
from sidekiq_py.cli.groups import by_option, echo_groups, grouped
from sidekiq_py.cli.output import (
    DefaultsToList,
    echo_done,
    echo_json_array,
    echo_rest,
    echo_table,
    job_cells,
    job_facts,
    progress,
    relative,
    span,
)
from sidekiq_py.clock import now_seconds
from sidekiq_py.config import QueueConfig
from sidekiq_py.logs import counted
from sidekiq_py.wire.control_characters import escaped

_ARGS_WIDTH = 60
WHAT_TO_DO = "To find out what to do about queues that cannot be read: sidekiq-py doctor"

_Action = Callable[..., BulkResult]
"""Takes jobs of the queue, a report of the progress, `per_second` and `stop`."""


class _Queues(DefaultsToList):
    """A group that, given a queue's name instead of a command, says how to show that queue."""

    hint = ". To show a queue: sidekiq-py queues show {}"


@click.group(cls=_Queues)
def queues() -> None:
    """
    List, show, clear, delete, pause and move queues.

    Without a command, lists the queues.
    """


@queues.command("list")
@reads_redis
def list_queues(as_json: bool) -> None:
    """
    Show all queues: size, latency, jobs in flight.

    LATENCY is the age of the job that runs next. IN FLIGHT counts jobs that Python workers have fetched and
    not finished; they are safe in Redis, and Ruby's Web UI does not show them.
    """
    summaries = Stats().queue_summaries
    if as_json:
        echo_json_array(map(queue_as_json, summaries))
        return
    if not summaries:
        click.echo("There are no queues: nothing has ever been pushed to this Redis.")
        return
    rows = [
        (
            queue.name,
            *(("-", "-") if queue.error else (f"{queue.size:,}", span(queue.latency))),
            queue.in_flight,
            ", ".join(filter(None, ["paused" if queue.paused else "", _trouble(queue)])),
        )
        for queue in summaries
    ]
    echo_table(("NAME", "SIZE", "LATENCY", "IN FLIGHT", ""), rows, right=("SIZE", "LATENCY", "IN FLIGHT"))
    if any(queue.error for queue in summaries):
        click.echo(WHAT_TO_DO, err=True)


def _trouble(queue: QueueSummary) -> str:
    return "" if queue.error is None else f"cannot be read: {queue.error}"


def queue_as_json(queue: QueueSummary) -> dict[str, Any]:
    """A queue in the output of `--json`. One that could not be read has neither size nor latency."""
    if queue.error is not None:
        return {**asdict(queue), "size": None, "latency": None}
    return {**asdict(queue), "latency": round(queue.latency, 3)}


@queues.command("show")
@click.argument("name", shell_complete=complete_queue)
@filter_options(queue=False, time="were enqueued")
@by_option
@limit_option
@reads_redis
def show(name: str, limit: int, by: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """
    Show the jobs of a queue, newest first.

    The job that runs next comes last.
    """
    queue = _known(name)
    wanted = take_filter(options)
    if by:
        with looking_through(queue.size, hidden=as_json) as report:
            groups = grouped(queue.find(wanted, looked_at=report), by)
        echo_groups(groups, limit, as_json=as_json)
        return
    with looking_through(queue.size, hidden=as_json or wanted.is_empty) as report:
        found = at_most(limit, queue.find(wanted, looked_at=report))
        if as_json:
            echo_json_array(map(_job_as_json, found))
            return
        jobs = list(found)
    if not jobs:
        click.echo("No jobs found." if not wanted.is_empty else f"{name} is empty.")
    else:
        now = now_seconds()
        rows = [(job.jid or "-", relative(job.enqueued_at, now), *job_cells(job, _ARGS_WIDTH)) for job in jobs]
        echo_table(("JID", "ENQUEUED", "CLASS", "ARGS"), rows, elastic=("CLASS", "ARGS"))
        echo_rest(len(jobs), limit, queue.size, is_filtered=not wanted.is_empty)
    if queue.paused:
        from sidekiq_py.doctor.finding import command_line  # for this advice alone

        namespace = program.settings().redis.namespace
        click.echo(f"{name} is paused. To resume it: {command_line(namespace, 'queues', 'unpause', operands=[name])}")


@queues.command("clear")
@click.argument("name", shell_complete=complete_queue)
@filter_options(queue=False, time="were enqueued")
@yes_option
@dry_run_option
@rate_option
@reads_redis
def clear(name: str, yes: bool, dry_run: bool, rate: float | None, as_json: bool, **options: Any) -> None:
    """
    Delete jobs of a queue.

    Deletes all jobs, or those that match the filters. The queue itself stays, paused if it was paused. Jobs that
    workers have already fetched are not touched.
    """
    queue = _known(name)
    wanted = take_filter(options)
    if dry_run:
        print_count(_count(queue, wanted), "deleted", as_json=as_json)
        return
    ask(lambda: f"Delete {_jobs_of(queue, wanted, 'deleted', as_json=as_json)}", what="clear", unless=yes)
    if wanted.is_empty and rate is None:
        result = BulkResult(queue.clear(keep_name=True), 0, 0, ())
        print_result(result, "deleted", as_json=as_json)
        return
    _act(queue, wanted, queue.delete_many, "Delete", "deleted", rate, as_json=as_json)


@queues.command("delete")
@click.argument("name", shell_complete=complete_queue)
@yes_option
@dry_run_option
@reads_redis
def delete(name: str, yes: bool, dry_run: bool, as_json: bool) -> None:
    """
    Delete a queue: its jobs, its name and its pause.

    The next push creates it again. Jobs that workers have already fetched are not touched.
    """
    queue = _known(name)
    if dry_run:
        print_count(queue.size, "deleted", as_json=as_json)
        return
    ask(lambda: f"Delete the queue {name}, which has {counted(queue.size, 'job')}", what="delete", unless=yes)
    deleted = queue.delete()
    text = f"{name} deleted, with {counted(deleted, 'job')}."
    echo_done({"queue": name, "deleted": deleted}, text, as_json=as_json)


@queues.command("pause")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_queue)
@click.option("--create", is_flag=True, help="Allow queues that do not exist yet.")
@reads_redis
def pause(names: tuple[str, ...], create: bool, as_json: bool) -> None:
    """
    Stop workers from fetching from queues.

    You can still push to them. Python workers and Sidekiq Pro's stop fetching within moments. Open-source Ruby
    processes ignore the pause; the command names those that serve the queue.
    """
    done = []
    advice = "To pause a queue that does not exist yet, add --create."
    for queue in [_known(name, create=create, advice=advice) for name in dict.fromkeys(names)]:
        was_running = queue.pause()
        # A quiet process fetches from no queue.
        ruby = [process.identity for process in ProcessSet().serving(queue.name) if not process.is_python]
        done.append({"queue": queue.name, "paused": True, "changed": was_running, "ruby_processes": ruby})
        if as_json:
            continue
        click.echo(f"{queue.name} is paused." if was_running else f"{queue.name} was already paused.")
        if ruby:
            keeps = "this Ruby process keeps" if len(ruby) == 1 else "these Ruby processes keep"
            click.echo(
                f"Without Sidekiq Pro, {keeps} fetching from it: {escaped(', '.join(ruby))}\n"
                f"To stop all fetching there: sidekiq-py processes quiet {escaped(' '.join(ruby))}"
            )
    if as_json:
        echo_json_array(done)


@queues.command("unpause")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_queue)
@reads_redis
def unpause(names: tuple[str, ...], as_json: bool) -> None:
    """Let workers fetch from paused queues again."""
    done = []
    for queue in [_known(name) for name in dict.fromkeys(names)]:
        was_paused = queue.unpause()
        done.append({"queue": queue.name, "paused": False, "changed": was_paused})
        if not as_json:
            click.echo(f"{queue.name} is no longer paused." if was_paused else f"{queue.name} was not paused.")
    if as_json:
        echo_json_array(done)


@queues.command("move")
@click.argument("source", metavar="FROM", shell_complete=complete_queue)
@click.argument("target", metavar="TO", shell_complete=complete_queue)
@filter_options(queue=False, time="were enqueued")
@click.option("--create", is_flag=True, help="Allow TO to be a queue that does not exist yet.")
@yes_option
@dry_run_option
@rate_option
@reads_redis
def move(
    source: str,
    target: str,
    create: bool,
    yes: bool,
    dry_run: bool,
    rate: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """
    Move jobs to another queue.

    Moves all jobs, or those that match the filters, to the end of the other queue, in order and byte for byte. However
    this command ends, each job is in exactly one of the two queues.
    """
    if source == target:
        raise click.UsageError("FROM and TO are the same queue")
    if not target:
        raise click.UsageError("TO is empty; give the other queue's name")
    queue = _known(source)
    # Before anything is done: a target that is not a list, or that this user may not use, is named.
    _known(target, create=create, advice="To move jobs to a new queue, add --create.").size  # noqa: B018 - raises
    wanted = take_filter(options)
    done = f"moved to {target}"
    if dry_run:
        print_count(_count(queue, wanted), done, as_json=as_json)
        return
    ask(lambda: f"Move {_jobs_of(queue, wanted, done, as_json=as_json)} to {target}", what="move", unless=yes)

    def move(jobs: Iterator[QueuedJob], report: Callable[[int], None], **pace: Any) -> BulkResult:
        return queue.move_to(target, None if wanted.is_empty else jobs, report, **pace)

    _act(queue, wanted, move, "Move", done, rate, as_json=as_json)


@queues.command("add")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@reads_redis
def add(names: tuple[str, ...], as_json: bool) -> None:
    """
    Add queues to the list of queues.

    Every Web UI then shows them. Use this if jobs were pushed by a program that did not do so itself.
    """
    for name in names:
        if not Queue(name).size:
            raise unknown("job in the queue", name, known_queues(), "Check the name; case matters.")
    added = [name for name in names if Queue(name).enter()]
    text = f"Added: {', '.join(added)}." if added else "Already in the list."
    echo_done({"added": added}, text, as_json=as_json)


def _act(
    queue: Queue, wanted: JobFilter, act: _Action, label: str, done: str, rate: float | None, *, as_json: bool
) -> None:
    size = queue.size
    with stopped_by_ctrl_c() as is_stopped, progress(label, size, hidden=as_json) as report:
        looked_at, dealt_with = (None, report) if wanted.is_empty else (report, lambda number: None)
        jobs = islice(queue.find(wanted, oldest_first=True, looked_at=looked_at, stop=is_stopped), size)
        result = act(jobs, dealt_with, per_second=rate, stop=is_stopped)
        stopped = is_stopped()
    print_result(result, done, as_json=as_json, stopped=stopped)


def _count(queue: Queue, wanted: JobFilter) -> int:
    if wanted.is_empty:
        return queue.size
    with looking_through(queue.size) as report:
        return sum(1 for _ in queue.find(wanted, looked_at=report))


def _jobs_of(queue: Queue, wanted: JobFilter, done: str, *, as_json: bool) -> str:
    count = _count(queue, wanted)
    end_if_none(count, done, as_json=as_json)
    fitting = "" if wanted.is_empty else (" that matches" if count == 1 else " that match")
    return f"{counted(count, 'job')} of {queue.name}{fitting}"


def _known(name: str, *, create: bool = False, advice: str = "sidekiq-py queues lists them.") -> Queue:
    """
    The queue *name*.

    Args:
        create: Allow a queue that does not exist yet, if workers could be told to serve it.
        advice: What to do about an unknown one, for the error.
    """
    queue = Queue(name)
    names = known_queues()
    if name not in names and not queue.size:
        if not create:
            raise unknown("queue", name, names, advice)
        QueueConfig.parse([name])
    return queue


def _job_as_json(job: QueuedJob) -> dict[str, Any]:
    return {
        "jid": job.jid,
        "queue": job.queue,
        "enqueued_at": None if job.enqueued_at is None else job.enqueued_at.isoformat(),
        "latency": round(job.latency, 3),
        **job_facts(job),
    }
