"""Commands on the sets of jobs: `retries`, `scheduled` and `dead`, each with `list`, `retry`, `kill` and `delete`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click

from sidekiq_py.api import BulkResult, DeadSet, JobFilter, JobSet, RetrySet, ScheduledSet, SortedEntry
from sidekiq_py.cli.choosing import (
    ask,
    dry_run_option,
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
from sidekiq_py.cli.output import (
    DefaultsToList,
    echo_json_array,
    echo_rest,
    echo_table,
    progress,
    relative,
    shortened,
    shown,
)
from sidekiq_py.clock import now_seconds
from sidekiq_py.logs import counted
from sidekiq_py.wire.json_writer import json_text

_ARGS_WIDTH, _ERROR_WIDTH = 40, 60
_NOUNS = {
    "retry": ("retry", "retries"),
    "schedule": ("scheduled job", "scheduled jobs"),
    "dead": ("dead job", "dead jobs"),
}

Action = Callable[..., BulkResult]
"""A method of `JobSet` that takes entries, as `retry_many` does."""


@dataclass(frozen=True, slots=True)
class Choice:
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


def _set_group(name: str, made_of: type[JobSet], help_text: str, when: str) -> click.Group:
    """Make the commands of one set; *when* is the heading of the time column."""
    time = "died" if made_of is DeadSet else "are due"

    @click.group(name=name, cls=DefaultsToList, help=f"{help_text}\n\nWithout a command, lists them.")
    def group() -> None:
        pass

    @group.command("list", help=f"Show {name} jobs." if name != "retries" else "Show jobs waiting to be retried.")
    @filter_options(time=time)
    @limit_option
    @reads_redis
    def list_jobs(as_json: bool, limit: int, **options: Any) -> None:
        job_set = made_of()  # type: ignore[call-arg]
        wanted = take_filter(options)
        warn_of_queue(wanted)
        # Without a search the jobs come at once.
        is_hidden = as_json or wanted.has_only_times
        with looking_through(_to_look_through(job_set, wanted), hidden=is_hidden) as report:
            found = job_set.find(wanted, latest_first=made_of is DeadSet, looked_at=report)
            first = islice(found, limit) if limit > 0 else found
            if as_json:
                echo_json_array(map(_as_json, first))
                return
            entries = list(first)
        _echo_entries(job_set, entries, when, limit, is_filtered=not wanted.is_empty)

    def action(command: str, summary: str, done: str, act: Action, *, asks: bool) -> None:
        @group.command(
            command,
            help=f"{summary}\n\nGive ids, --all, or filters. With several filters, a job must match all of them.",
        )
        @click.argument("jids", metavar="[JID]...", nargs=-1)
        @click.option("--all", "everything", is_flag=True, help="All of them.")
        @filter_options(time=time)
        @click.option(
            "-y", "--yes", is_flag=True, help="Do not ask." if asks else "Has no effect: this command does not ask."
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
            choice = Choice(take_filter(options), jids, everything)
            job_set = made_of()  # type: ignore[call-arg]
            choice.check()
            warn_of_queue(choice.wanted)
            if dry_run:
                print_count(_count(job_set, choice), done, as_json=as_json)
                return
            if asks and not yes and not choice.jids:
                ask(lambda: _question(command, job_set, choice), what=f"{command} of many jobs")
            _act(job_set, choice, act, command.capitalize(), done, rate, as_json=as_json)

    _add_actions(action, made_of)
    return group


def _add_actions(action: Callable[..., None], made_of: type[JobSet]) -> None:
    if made_of is ScheduledSet:
        action("retry", "Enqueue jobs now.", "enqueued", JobSet.add_many_to_queue, asks=False)
    else:
        action("retry", "Enqueue jobs now; this does not count as a retry.", "enqueued", JobSet.retry_many, asks=False)
    if made_of is not DeadSet:
        action(
            "kill",
            "Move jobs to the dead set, which keeps the latest 10,000.",
            "moved to the dead set",
            JobSet.kill_many,
            asks=True,
        )
    action("delete", "Delete jobs for good.", "deleted", JobSet.delete_many, asks=True)


def _count(job_set: JobSet, choice: Choice) -> int:
    """Count the chosen entries. With a filter this reads every entry in its time range."""
    if choice.jids:
        return sum(1 for _ in _by_jid(job_set, choice.jids, []))
    if choice.everything:
        return job_set.size
    with looking_through(_to_look_through(job_set, choice.wanted)) as report:
        return job_set.count(choice.wanted, looked_at=report)


def _to_look_through(job_set: JobSet, wanted: JobFilter) -> int:
    return job_set.size if wanted.text is not None else job_set.size_between(wanted.earliest, wanted.latest)


def _question(command: str, job_set: JobSet, choice: Choice) -> str:
    one, many = _NOUNS[job_set.name]
    count = _count(job_set, choice)
    what = f"1 {one}" if count == 1 else f"all {counted(count, one, many)}"
    fitting = "" if choice.everything else (" that matches" if count == 1 else " that match")
    return f"{command.capitalize()} {what}{fitting}"


def _act(
    job_set: JobSet, choice: Choice, act: Action, label: str, done: str, rate: float | None, *, as_json: bool
) -> None:
    missing: list[str] = []
    # Stop after the entries that are in the set now, so that a job that returns meanwhile is not taken again.
    size = job_set.size
    length = len(choice.jids) or (_to_look_through(job_set, choice.wanted) if choice.has_filter else size)
    with stopped_by_ctrl_c() as is_stopped, progress(label, length, hidden=as_json) as report:
        entries: Iterator[SortedEntry]
        if choice.jids:
            entries = _by_jid(job_set, choice.jids, missing)
        else:
            looked_at = report if choice.has_filter else None
            entries = islice(job_set.find(choice.wanted, looked_at=looked_at, stop=is_stopped), size)
        dealt_with = (lambda number: None) if choice.has_filter else report
        result = act(job_set, entries, dealt_with, per_second=rate, stop=is_stopped)
        stopped = is_stopped()
    print_result(result, done, as_json=as_json, missing=missing, stopped=stopped)


def _by_jid(job_set: JobSet, jids: Sequence[str], missing: list[str]) -> Iterator[SortedEntry]:
    for jid in jids:
        entry = job_set.find_job(jid)
        if entry is None:
            missing.append(jid)
        else:
            yield entry


def _echo_entries(job_set: JobSet, entries: Sequence[SortedEntry], when: str, limit: int, *, is_filtered: bool) -> None:
    if not entries:
        click.echo("No jobs found.")
        return
    now = now_seconds()
    rows = [
        (
            entry.jid or "-",
            relative(entry.at, now),
            entry.queue or "-",
            shortened(entry.display_class or "-", 40),
            shortened(json_text(job.display_args), _ARGS_WIDTH),
            shortened(f"{job.error_class}: {job.error_message}" if entry.has_error else "", _ERROR_WIDTH),
        )
        for entry, job in ((entry, shown(entry)) for entry in entries)
    ]
    echo_table(("JID", when, "QUEUE", "CLASS", "ARGS", "ERROR"), rows, elastic=("CLASS", "ARGS", "ERROR"))
    echo_rest(len(entries), limit, job_set.size, is_filtered=is_filtered)


def _as_json(entry: SortedEntry) -> dict[str, Any]:
    job = shown(entry)
    return {
        "jid": entry.jid,
        "at": entry.at.isoformat(),
        "score": entry.score,
        "queue": entry.queue,
        "class": job.display_class,
        "args": job.display_args,
        "retry_count": job.retry_count,
        "error_class": job.error_class,
        "error_message": job.error_message,
        "payload": job.item or None,
    }


retries = _set_group("retries", RetrySet, "List, retry, kill or delete failed jobs that will be retried.", "DUE")
scheduled = _set_group("scheduled", ScheduledSet, "List, enqueue, kill or delete jobs scheduled for later.", "DUE")
dead = _set_group("dead", DeadSet, "List, retry or delete jobs that will not be retried automatically.", "DIED")
