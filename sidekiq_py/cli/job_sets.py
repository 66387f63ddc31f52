"""Commands on the sets of jobs: `retries`, `scheduled` and `dead`, each with `list`, `retry`, `kill` and `delete`."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click

from sidekiq_py.api import BulkResult, DeadSet, JobSet, RetrySet, ScheduledSet, SortedEntry
from sidekiq_py.cli.connection import complete_queue, pushes_jobs, reads_redis
from sidekiq_py.cli.output import echo_json, echo_json_array, echo_table, json_text, progress, relative, shortened
from sidekiq_py.clock import now_seconds
from sidekiq_py.redis_access.scan import literal

_LISTED = 25
_ARGS_WIDTH, _ERROR_WIDTH = 40, 60
_NOUNS = {
    "retry": ("retry", "retries"),
    "schedule": ("scheduled job", "scheduled jobs"),
    "dead": ("dead job", "dead jobs"),
}

Action = Callable[[JobSet, Iterator[SortedEntry], Callable[[int], None]], BulkResult]


@dataclass(frozen=True, slots=True)
class Choice:
    """
    Which entries a command means.

    Args:
        jids: Those of these ids.
        everything: All.
        job_class: Those of this class, as it is shown.
        queue: Those of this queue.
        match: Those whose payload contains this text.
    """

    jids: Sequence[str] = ()
    everything: bool = False
    job_class: str | None = None
    queue: str | None = None
    match: str | None = None

    @property
    def has_filter(self) -> bool:
        """Whether entries are chosen by what they are."""
        return any((self.job_class, self.queue, self.match))

    def entries(self, job_set: JobSet, *, upward: bool = True) -> Iterator[SortedEntry]:
        """The entries, those that are due first, or died first, in front, or the other way round."""
        found = reversed(job_set) if upward else iter(job_set)
        if self.match:
            found = job_set.scan(f"*{literal(self.match)}*", count=1000)
        return (entry for entry in found if self._takes(entry))

    def _takes(self, entry: SortedEntry) -> bool:
        if self.job_class and self.job_class not in (entry.klass, entry.display_class):
            return False
        return not self.queue or entry.queue == self.queue


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--match", metavar="TEXT", help="Only jobs whose payload contains TEXT."),
        click.option("--queue", shell_complete=complete_queue, help="Only jobs of this queue."),
        click.option("--class", "job_class", metavar="NAME", help="Only jobs of this class."),
    ):
        command = option(command)
    return command


def _set_group(name: str, made_of: type[JobSet], help_text: str, when: str) -> click.Group:
    """The commands of one set; *when* heads the column of times."""

    @click.group(name=name, help=help_text)
    def group() -> None:
        pass

    @group.command("list", help=f"Show {name} jobs." if name != "retries" else "Show jobs that wait for a retry.")
    @_filters
    @click.option("-n", "--limit", default=_LISTED, show_default=True, help="How many; 0 shows all.")
    @reads_redis
    def list_jobs(as_json: bool, limit: int, **filters: Any) -> None:
        job_set = made_of()  # type: ignore[call-arg]
        found = Choice(**filters).entries(job_set, upward=made_of is not DeadSet)
        shown = islice(found, limit) if limit > 0 else found
        if as_json:
            echo_json_array(map(_as_json, shown))
        else:
            _echo_entries(job_set, list(shown), when, limit)

    def action(command: str, summary: str, done: str, act: Action, *, asks: bool) -> None:
        @group.command(command, help=f"{summary}\n\nGive ids, or --all, or choose by class, queue or text.")
        @click.argument("jids", metavar="[JID]...", nargs=-1)
        @click.option("--all", "everything", is_flag=True, help="All of them.")
        @_filters
        @click.option("-y", "--yes", is_flag=True, help="Do not ask." if asks else "Accepted and not needed.")
        @pushes_jobs
        @reads_redis
        def run(as_json: bool, yes: bool, **chosen: Any) -> None:
            choice = Choice(**chosen)
            job_set = made_of()  # type: ignore[call-arg]
            _check(choice)
            if asks and not yes and not choice.jids:
                _confirm(command, job_set, choice)
            _act(job_set, choice, act, command.capitalize(), done, as_json=as_json)

    _add_actions(action, made_of)
    return group


def _add_actions(action: Callable[..., None], made_of: type[JobSet]) -> None:
    if made_of is ScheduledSet:
        action("retry", "Enqueue jobs now.", "enqueued", _enqueue, asks=False)
    else:
        action("retry", "Enqueue jobs now; the try does not count.", "enqueued", _retry, asks=False)
    if made_of is not DeadSet:
        action("kill", "Move jobs to the dead set.", "moved to the dead set", _kill, asks=True)
    action("delete", "Delete jobs for good.", "deleted", _delete, asks=True)


def _retry(job_set: JobSet, entries: Iterator[SortedEntry], report: Callable[[int], None]) -> BulkResult:
    return job_set.retry_many(entries, report)


def _enqueue(job_set: JobSet, entries: Iterator[SortedEntry], report: Callable[[int], None]) -> BulkResult:
    return job_set.add_many_to_queue(entries, report)


def _kill(job_set: JobSet, entries: Iterator[SortedEntry], report: Callable[[int], None]) -> BulkResult:
    return job_set.kill_many(entries, report)


def _delete(job_set: JobSet, entries: Iterator[SortedEntry], report: Callable[[int], None]) -> BulkResult:
    return job_set.delete_many(entries, report)


def _check(choice: Choice) -> None:
    ways = sum((bool(choice.jids), choice.everything, choice.has_filter))
    if ways == 0:
        raise click.UsageError("which jobs? Give their ids, or --all, or choose by --class, --queue or --match")
    if ways > 1:
        raise click.UsageError("ids, --all and --class, --queue, --match are three ways to choose; use one")


def _confirm(command: str, job_set: JobSet, choice: Choice) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError(f"{command} of many jobs asks first, and there is no terminal to ask on; add --yes")
    one, many = _NOUNS[job_set.name]
    size = job_set.size
    everything = f"1 {one}" if size == 1 else f"all {size:,} {many}"
    what = everything if choice.everything else f"all {many} that fit"
    click.confirm(f"{command.capitalize()} {what}?", abort=True, err=True)


def _act(job_set: JobSet, choice: Choice, act: Action, label: str, done: str, *, as_json: bool) -> None:
    missing: list[str] = []
    if choice.jids:
        entries = _by_jid(job_set, choice.jids, missing)
        length = len(choice.jids)
    else:
        # What comes back while this runs is not taken again.
        length = job_set.size
        entries = islice(choice.entries(job_set), length)
    with progress(label, length, hidden=as_json or choice.has_filter) as report:
        result = act(job_set, entries, report)
    _tell(result, missing, done, as_json=as_json)
    if missing or result.refused:
        click.get_current_context().exit(1)


def _by_jid(job_set: JobSet, jids: Sequence[str], missing: list[str]) -> Iterator[SortedEntry]:
    for jid in jids:
        entry = job_set.find_job(jid)
        if entry is None:
            missing.append(jid)
        else:
            yield entry


def _tell(result: BulkResult, missing: Sequence[str], done: str, *, as_json: bool) -> None:
    errors = [{"jid": job.jid, "error": str(error)} for job, error in result.errors]
    if as_json:
        counts = {"moved": result.moved, "gone": result.gone, "refused": result.refused}
        echo_json({**counts, "errors": errors, "missing": missing})
        return
    click.echo(f"{result.moved:,} jobs {done}." if result.moved != 1 else f"1 job {done}.")
    if result.gone:
        click.echo(f"{result.gone:,} were gone when their turn came: a worker or somebody else had taken them.")
    for jid in missing:
        click.echo(f"No job here has the id {jid}.", err=True)
    if result.refused:
        click.echo(f"{result.refused:,} stay where they are:", err=True)
        for error in errors:
            click.echo(f"  {error['jid'] or 'no jid'}: {shortened(str(error['error']), 200)}", err=True)


def _echo_entries(job_set: JobSet, entries: Sequence[SortedEntry], when: str, limit: int) -> None:
    if not entries:
        click.echo("There are none.")
        return
    now = now_seconds()
    rows = [
        (
            entry.jid or "-",
            relative(entry.at, now),
            entry.queue or "-",
            shortened(entry.display_class or "-", 40),
            shortened(json_text(entry.display_args), _ARGS_WIDTH),
            shortened(f"{entry.error_class}: {entry.error_message}" if entry.has_error else "", _ERROR_WIDTH),
        )
        for entry in entries
    ]
    echo_table(("JID", when, "QUEUE", "CLASS", "ARGS", "ERROR"), rows, elastic=("CLASS", "ARGS", "ERROR"))
    size = job_set.size
    if len(entries) == limit and size > limit:
        click.echo(f"{limit} of {size:,} shown; --limit 0 shows all.")


def _as_json(entry: SortedEntry) -> dict[str, Any]:
    return {
        "jid": entry.jid,
        "at": entry.at.isoformat(),
        "score": entry.score,
        "queue": entry.queue,
        "class": entry.display_class,
        "args": entry.display_args,
        "retry_count": entry.retry_count,
        "error_class": entry.error_class,
        "error_message": entry.error_message,
        "payload": entry.item or None,
    }


retries = _set_group("retries", RetrySet, "List, retry, kill or delete jobs that failed and wait for a retry.", "DUE")
scheduled = _set_group("scheduled", ScheduledSet, "List, enqueue, kill or delete jobs that wait for a time.", "DUE")
dead = _set_group("dead", DeadSet, "List, retry or delete jobs that will not be tried again by themselves.", "DIED")
