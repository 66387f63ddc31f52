"""Commands on the sets of jobs: `retries`, `scheduled` and `dead`, each with `list`, `retry`, `kill` and `delete`."""

import math
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any

import click

from sidekiq_py.api import BulkResult, DeadSet, JobSet, RetrySet, ScheduledSet, SortedEntry
from sidekiq_py.cli.connection import complete_queue, pushes_jobs, reads_redis
from sidekiq_py.cli.output import echo_json, echo_json_array, echo_table, json_text, progress, relative, shortened
from sidekiq_py.clock import now_seconds
from sidekiq_py.redis_access.reads.scan import literal

_LISTED = 25
# To draw a bar takes longer than to look at an entry.
_LOOKED_AT_AT_ONCE = 200
_ARGS_WIDTH, _ERROR_WIDTH = 40, 60
_NOUNS = {
    "retry": ("retry", "retries"),
    "schedule": ("scheduled job", "scheduled jobs"),
    "dead": ("dead job", "dead jobs"),
}

_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/([smh]))?")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600}

Action = Callable[[JobSet, Iterator[SortedEntry], Callable[[int], None], float | None], BulkResult]


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

    def entries(
        self, job_set: JobSet, *, upward: bool = True, looked_at: Callable[[int], None] = lambda number: None
    ) -> Iterator[SortedEntry]:
        """
        The entries, those that are due first, or died first, in front, or the other way round.

        Args:
            looked_at: Told now and then how many entries were looked at; with *match*, how many Redis has found.
        """
        found = reversed(job_set) if upward else iter(job_set)
        if self.match:
            found = job_set.scan(f"*{literal(self.match)}*", count=1000)
        number = 0
        for number, entry in enumerate(found, 1):
            if number % _LOOKED_AT_AT_ONCE == 0:
                looked_at(number)
            if self._takes(entry):
                yield entry
        looked_at(number)

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
        @click.option("--dry-run", is_flag=True, help="Only say how many jobs it would be.")
        @click.option("--rate", callback=_per_second, metavar="N/s", help="No more than N in a second (/m, /h).")
        @pushes_jobs
        @reads_redis
        def run(as_json: bool, yes: bool, dry_run: bool, rate: float | None, **chosen: Any) -> None:
            choice = Choice(**chosen)
            job_set = made_of()  # type: ignore[call-arg]
            _check(choice)
            if dry_run:
                _tell_count(_count(job_set, choice), done, as_json=as_json)
                return
            if asks and not yes and not choice.jids:
                _confirm(command, job_set, choice)
            _act(job_set, choice, act, command.capitalize(), done, rate, as_json=as_json)

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


def _retry(
    job_set: JobSet, entries: Iterator[SortedEntry], report: Callable[[int], None], per_second: float | None
) -> BulkResult:
    return job_set.retry_many(entries, report, per_second=per_second)


def _enqueue(
    job_set: JobSet, entries: Iterator[SortedEntry], report: Callable[[int], None], per_second: float | None
) -> BulkResult:
    return job_set.add_many_to_queue(entries, report, per_second=per_second)


def _kill(
    job_set: JobSet, entries: Iterator[SortedEntry], report: Callable[[int], None], per_second: float | None
) -> BulkResult:
    return job_set.kill_many(entries, report, per_second=per_second)


def _delete(
    job_set: JobSet, entries: Iterator[SortedEntry], report: Callable[[int], None], per_second: float | None
) -> BulkResult:
    return job_set.delete_many(entries, report, per_second=per_second)


def _check(choice: Choice) -> None:
    ways = sum((bool(choice.jids), choice.everything, choice.has_filter))
    if ways == 0:
        raise click.UsageError("which jobs? Give their ids, or --all, or choose by --class, --queue or --match")
    if ways > 1:
        raise click.UsageError("ids, --all and --class, --queue, --match are three ways to choose; use one")


def _per_second(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) / _UNIT_SECONDS[match[2] or "s"] if match else 0.0
    if not 0 < rate < math.inf:
        raise click.BadParameter(f"{text!r} is no rate; write how many jobs a second, as 100/s, or 600/m, or 10/h")
    return rate


def _count(job_set: JobSet, choice: Choice) -> int:
    """How many entries there are of those chosen; all are looked at for that."""
    if choice.jids:
        return sum(1 for _ in _by_jid(job_set, choice.jids, []))
    size = job_set.size
    if choice.everything:
        return size
    with progress("Look through", size, hidden=bool(choice.match)) as report:
        return sum(1 for _ in choice.entries(job_set, looked_at=report))


def _tell_count(count: int, done: str, *, as_json: bool) -> None:
    if as_json:
        echo_json({"count": count})
    else:
        click.echo(f"{count:,} jobs would be {done}." if count != 1 else f"1 job would be {done}.")


def _confirm(command: str, job_set: JobSet, choice: Choice) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError(f"{command} of many jobs asks first, and there is no terminal to ask on; add --yes")
    one, many = _NOUNS[job_set.name]
    count = _count(job_set, choice)
    what = f"1 {one}" if count == 1 else f"all {count:,} {many}"
    fitting = "" if choice.everything else (" that fits" if count == 1 else " that fit")
    click.confirm(f"{command.capitalize()} {what}{fitting}?", abort=True, err=True)


@contextmanager
def _stopped_by_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Within the block Ctrl-C only asks for the end, which comes between two round trips; a second one acts at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


def _act(
    job_set: JobSet, choice: Choice, act: Action, label: str, done: str, rate: float | None, *, as_json: bool
) -> None:
    missing: list[str] = []
    # What comes back while this runs is not taken again.
    length = len(choice.jids) or job_set.size
    with (
        _stopped_by_ctrl_c() as is_stopped,
        progress(label, length, hidden=as_json or bool(choice.match)) as report,
    ):
        if choice.jids:
            entries = _by_jid(job_set, choice.jids, missing)
        else:
            looked_at = report if choice.has_filter else lambda number: None
            entries = islice(choice.entries(job_set, looked_at=looked_at), length)
        dealt_with = (lambda number: None) if choice.has_filter else report
        result = act(job_set, takewhile(lambda entry: not is_stopped(), entries), dealt_with, rate)
        stopped = is_stopped()
    _tell(result, missing, done, as_json=as_json)
    if stopped:
        click.echo("Stopped by Ctrl-C; the other jobs are where they were.", err=True)
        click.get_current_context().exit(130)
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
