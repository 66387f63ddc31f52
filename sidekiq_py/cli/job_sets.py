"""
Commands on the sets of jobs: `retries`, `scheduled` and `dead`, each with `list`, and with those of `retry`,
`reschedule`, `kill` and `delete` that make sense for it.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import inf, isfinite, nextafter
from typing import Any, NamedTuple

import click

from sidekiq_py.api import BulkResult, DeadSet, JobFilter, JobSet, RetrySet, ScheduledSet, SortedEntry
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
    warn_of_queue,
)
from sidekiq_py.cli.connection import pushes_jobs, reads_redis
from sidekiq_py.cli.groups import by_option, echo_groups, grouped
from sidekiq_py.cli.output import (
    DefaultsToList,
    echo_json_array,
    echo_rest,
    echo_table,
    error_cell,
    job_cells,
    job_facts,
    progress,
    relative,
)
from sidekiq_py.cli.values import calendar_time, epoch_seconds, span_seconds, time_given
from sidekiq_py.clock import now_seconds
from sidekiq_py.logs import counted

_ARGS_WIDTH = 40
# For each id, Redis searches the whole set. More ids are found sooner by reading the set once.
_SEARCHED_ONE_BY_ONE = 5
_NOUNS = {
    "retry": ("retry", "retries"),
    "schedule": ("scheduled job", "scheduled jobs"),
    "dead": ("dead job", "dead jobs"),
}


class Action(NamedTuple):
    """
    A command that does something to chosen jobs of a set.

    Args:
        done: What was done to the jobs, for the report.
        act: The method of `JobSet` that does it to given entries.
        asks: Ask before doing it to jobs that were not chosen by their ids.
        takes_time: Add `--at` and `--in`; the command then goes on with the action that `until` returns.
        at: The score that it gives to jobs, in epoch seconds. A filter passes over jobs that have it already, because
            a walk through the set meets those again that it has moved.
    """

    name: str
    summary: str
    done: str
    act: Callable[..., BulkResult]
    asks: bool = True
    takes_time: bool = False
    at: float | None = None

    def until(self, at: float) -> "Action":
        """
        The action that gives jobs the time *at*, in epoch seconds.

        Raises:
            UsageError: No calendar has it.
        """
        moment = calendar_time(at)

        def act(
            job_set: JobSet, entries: Iterator[SortedEntry], report: Callable[[int], None], **pace: Any
        ) -> BulkResult:
            return self.act(job_set, entries, at, report, **pace)

        return self._replace(done=f"{self.done} to {moment.isoformat(timespec='seconds')}", act=act, at=at)


_ENQUEUE = Action("retry", "Enqueue jobs now.", "enqueued", JobSet.add_many_to_queue, asks=False)
_RETRY = Action("retry", "Enqueue jobs now; this does not count as a retry.", "enqueued", JobSet.retry_many, asks=False)
_RESCHEDULE = Action(
    "reschedule", "Make jobs wait until another time.", "rescheduled", JobSet.reschedule_many, takes_time=True
)
_KILL = Action(
    "kill", "Move jobs to the dead set, which keeps the latest 9,999.", "moved to the dead set", JobSet.kill_many
)
_DELETE = Action("delete", "Delete jobs for good.", "deleted", JobSet.delete_many)


class Choice(NamedTuple):
    """
    Which entries a command applies to.

    Args:
        wanted: Entries that match this filter.
        jids: Entries with these ids.
        everything: All entries.
    """

    wanted: JobFilter
    jids: Sequence[str] = ()
    everything: bool = False

    @property
    def has_filter(self) -> bool:
        """True if the entries are chosen by a filter."""
        return not self.wanted.is_empty

    def check(self) -> None:
        """
        Check that exactly one way to choose entries was given.

        Raises:
            UsageError: None was given, or several were.
        """
        ways = sum((bool(self.jids), self.everything, self.has_filter))
        if ways == 0:
            raise click.UsageError(
                "which jobs? Give their ids, or --all, or choose by --class, --queue, --arg, --match, --error, --after "
                "or --before"
            )
        if ways > 1:
            raise click.UsageError("ids, --all and filters such as --class are three ways to choose; use one")


def _set_group(name: str, made_of: type[JobSet], summary: str, actions: Sequence[Action]) -> click.Group:
    """The commands of one set: `list`, and *actions*."""
    group = DefaultsToList(name, help=f"{summary}\n\nWithout a command, lists them.")
    group.add_command(_list_command(name, made_of))
    for action in actions:
        group.add_command(_action_command(made_of, action))
    return group


def _list_command(name: str, made_of: type[JobSet]) -> click.Command:
    @click.command("list", help=f"Show {name} jobs." if name != "retries" else "Show jobs waiting to be retried.")
    @_filters_of(made_of)
    @by_option
    @limit_option
    @reads_redis
    def list_jobs(as_json: bool, limit: int, by: tuple[str, ...], **options: Any) -> None:
        job_set = made_of()  # type: ignore[call-arg]
        wanted = take_filter(options)
        warn_of_queue(wanted)
        if by:
            with looking_through(_to_look_through(job_set, wanted), hidden=as_json) as report:
                groups = grouped(job_set.find(wanted, looked_at=report), by)
            echo_groups(groups, limit, as_json=as_json)
            return
        # Without a search the jobs come at once.
        is_hidden = as_json or wanted.has_only_times
        with looking_through(_to_look_through(job_set, wanted), hidden=is_hidden) as report:
            found = at_most(limit, job_set.find(wanted, latest_first=made_of is DeadSet, looked_at=report))
            if as_json:
                echo_json_array(map(_as_json, found))
                return
            entries = list(found)
        _echo_entries(job_set, entries, limit, is_filtered=not wanted.is_empty)

    return list_jobs


def _action_command(made_of: type[JobSet], action: Action) -> click.Command:
    choosing = "Give ids, --all, or filters. With several filters, a job must match all of them."

    @click.command(action.name, help=f"{action.summary}\n\n{choosing}")
    @click.argument("jids", metavar="[JID]...", nargs=-1)
    @click.option("--all", "everything", is_flag=True, help="All of them.")
    @_time_options(action)
    @_filters_of(made_of)
    @click.option(
        "-y", "--yes", is_flag=True, help="Do not ask." if action.asks else "Has no effect: this command does not ask."
    )
    @dry_run_option
    @rate_option
    @pushes_jobs
    @reads_redis
    def run(
        jids: tuple[str, ...],
        everything: bool,
        as_json: bool,
        yes: bool,
        dry_run: bool,
        rate: float | None,
        **options: Any,
    ) -> None:
        choice = Choice(take_filter(options), tuple(dict.fromkeys(jids)), everything)
        planned = action.until(_time_of(**options)) if action.takes_time else action
        job_set = made_of()  # type: ignore[call-arg]
        choice.check()
        warn_of_queue(choice.wanted)
        if dry_run:
            print_count(_count(job_set, choice, planned), planned.done, as_json=as_json)
            return
        if planned.asks and not choice.jids:
            without_ids = f"{planned.name} without ids"
            ask(lambda: _question(planned, job_set, choice, as_json=as_json), what=without_ids, unless=yes)
        _act(job_set, choice, planned, rate, as_json=as_json)

    return run


def _time_options(action: Action) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        if not action.takes_time:
            return command
        late, at = (
            "After this time from now: 90 (seconds), 5m, 1h30m.",
            "At this time: 2030-01-31T08:00:00Z, or epoch seconds.",
        )
        command = click.option("--in", "interval", callback=span_seconds, metavar="SPAN", help=late)(command)
        return click.option("--at", callback=epoch_seconds, metavar="TIME", help=at)(command)

    return add


def _time_of(at: float | None, interval: float | None) -> float:
    when = time_given(at, interval)
    if when is None:
        raise click.UsageError("when should the jobs run? Give --at TIME or --in SPAN")
    return when


def _filters_of(made_of: type[JobSet]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return filter_options(time="died" if made_of is DeadSet else "are due")


def _count(job_set: JobSet, choice: Choice, action: Action) -> int:
    """Count the chosen entries. With a filter this reads every entry in its time range."""
    wanted, at = choice.wanted, action.at
    if choice.jids:
        return sum(1 for _ in _by_jid(job_set, choice.jids, []))
    if wanted.has_only_times:
        left_out = job_set.size_between(at, nextafter(at, inf)) if at is not None and wanted.fits_time(at) else 0
        return job_set.count(wanted) - left_out
    with looking_through(_to_look_through(job_set, wanted)) as report:
        return sum(entry.score != at for entry in job_set.find(wanted, looked_at=report))


def _to_look_through(job_set: JobSet, wanted: JobFilter) -> int:
    return job_set.size if wanted.text is not None else job_set.size_between(wanted.earliest, wanted.latest)


def _question(action: Action, job_set: JobSet, choice: Choice, *, as_json: bool) -> str:
    one, many = _NOUNS[job_set.name]
    count = _count(job_set, choice, action)
    end_if_none(count, action.done, as_json=as_json)
    what = f"1 {one}" if count == 1 else f"all {counted(count, one, many)}"
    fitting = "" if choice.everything else (" that matches" if count == 1 else " that match")
    until = "" if action.at is None else f" to {calendar_time(action.at).isoformat(timespec='seconds')}"
    return f"{action.name.capitalize()} {what}{fitting}{until}"


def _act(job_set: JobSet, choice: Choice, action: Action, rate: float | None, *, as_json: bool) -> None:
    missing: list[str] = []
    # Stop after the entries that are in the set now, so that a job that returns meanwhile is not taken again.
    size = job_set.size
    length = len(choice.jids) or (_to_look_through(job_set, choice.wanted) if choice.has_filter else size)
    with stopped_by_ctrl_c() as is_stopped, progress(action.name.capitalize(), length, hidden=as_json) as report:
        entries: Iterator[SortedEntry]
        if choice.jids:
            entries = _by_jid(job_set, choice.jids, missing)
        else:
            looked_at = report if choice.has_filter else None
            found = job_set.find(choice.wanted, looked_at=looked_at, stop=is_stopped)
            entries = islice((entry for entry in found if entry.score != action.at), size)
        dealt_with = (lambda number: None) if choice.has_filter else report
        result = action.act(job_set, entries, dealt_with, per_second=rate, stop=is_stopped)
        stopped = is_stopped()
    print_result(result, action.done, as_json=as_json, missing=missing, stopped=stopped)


def _by_jid(job_set: JobSet, jids: Sequence[str], missing: list[str]) -> Iterator[SortedEntry]:
    find: Callable[[str], SortedEntry | None]
    if len(jids) > _SEARCHED_ONE_BY_ONE:
        wanted = set(jids)
        find = {entry.jid: entry for entry in job_set if entry.jid in wanted}.get
    else:
        find = job_set.find_job
    for jid in jids:
        entry = find(jid)
        if entry is None:
            missing.append(jid)
        else:
            yield entry


def _echo_entries(job_set: JobSet, entries: Sequence[SortedEntry], limit: int, *, is_filtered: bool) -> None:
    if not entries:
        click.echo("No jobs found.")
        return
    now = now_seconds()
    rows = [
        (
            entry.jid or "-",
            relative(entry.at, now),
            entry.queue or "-",
            *job_cells(entry, _ARGS_WIDTH),
            error_cell(entry),
        )
        for entry in entries
    ]
    when = "DIED" if isinstance(job_set, DeadSet) else "DUE"
    echo_table(("JID", when, "QUEUE", "CLASS", "ARGS", "ERROR"), rows, elastic=("CLASS", "ARGS", "ERROR"))
    echo_rest(len(entries), limit, job_set.size, is_filtered=is_filtered)


def _as_json(entry: SortedEntry) -> dict[str, Any]:
    return {
        "jid": entry.jid,
        "at": entry.at.isoformat(),
        # JSON has no infinity, and one such member would spoil the document for most readers.
        "score": entry.score if isfinite(entry.score) else None,
        "queue": entry.queue,
        **job_facts(entry),
    }


retries = _set_group(
    "retries",
    RetrySet,
    "List, retry, reschedule, kill or delete failed jobs that will be retried.",
    (_RETRY, _RESCHEDULE, _KILL, _DELETE),
)
scheduled = _set_group(
    "scheduled",
    ScheduledSet,
    "List, enqueue, reschedule, kill or delete jobs scheduled for later.",
    (_ENQUEUE, _RESCHEDULE, _KILL, _DELETE),
)
dead = _set_group(
    "dead", DeadSet, "List, retry or delete jobs that will not be retried automatically.", (_RETRY, _DELETE)
)
