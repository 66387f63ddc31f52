"""Options and questions that commands on many jobs share: filters, pace, confirmation, Ctrl-C, and what came of it."""

import math
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from sidekiq_py.api import BulkResult, JobFilter, Queue
from sidekiq_py.cli.connection import complete_queue
from sidekiq_py.cli.output import echo_json, shortened
from sidekiq_py.cli.values import moment_seconds
from sidekiq_py.options import closest

COULD_NOT = 1
"""Exit code: something that was asked for could not be done."""
STOPPED = 130
"""Exit code: Ctrl-C ended it."""

_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/([smh]))?")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600}
_FILTERS = ("job_class", "queue", "argument", "text", "error", "after", "before")


def filter_options(
    *, queue: bool = True, error: bool = True, time: str = "are due"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """
    Adds the options of `JobFilter`; `take_filter` makes one of them.

    Args:
        queue: With `--queue`.
        error: With `--error`.
        time: What jobs are after and before the times given.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        options = [
            click.option("--class", "job_class", metavar="NAME", help="Only jobs of this class."),
            *(
                [
                    click.option(
                        "--queue", metavar="NAME", shell_complete=complete_queue, help="Only jobs of this queue."
                    )
                ]
                if queue
                else []
            ),
            click.option("--arg", "argument", metavar="TEXT", help="Only jobs with TEXT in their arguments."),
            click.option("--match", "text", metavar="TEXT", help="Only jobs with TEXT anywhere in their payload."),
            *(
                [click.option("--error", metavar="TEXT", help="Only jobs with TEXT in their error's class or message.")]
                if error
                else []
            ),
            click.option(
                "--after",
                callback=moment_seconds,
                metavar="TIME",
                help=f"Only jobs that {time} at TIME or later: 2030-01-31T08:00:00Z, 2h (ago) or +2h (from now).",
            ),
            click.option(
                "--before", callback=moment_seconds, metavar="TIME", help=f"Only jobs that {time} before TIME."
            ),
        ]
        for option in reversed(options):
            command = option(command)
        return command

    return add


def take_filter(options: dict[str, Any]) -> JobFilter:
    """Take the options of `filter_options` out of *options*."""
    return JobFilter(**{name: options.pop(name) for name in _FILTERS if name in options})


def warn_of_queue(wanted: JobFilter) -> None:
    """Say so where no queue has the name that is asked for, but another one nearly has it."""
    if wanted.queue is None:
        return
    names = [queue.name for queue in Queue.all()]
    close = None if wanted.queue in names else closest(wanted.queue, names)
    if close is not None:
        click.echo(f"There is no queue {wanted.queue}. Did you mean {close}?", err=True)


def per_second(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    """A rate as jobs a second."""
    if text is None:
        return None
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) / _UNIT_SECONDS[match[2] or "s"] if match else 0.0
    if not 0 < rate < math.inf:
        raise click.BadParameter(f"{text!r} is not a rate; write how many jobs a second, as 100/s, or 600/m, or 10/h")
    return rate


rate_option = click.option(
    "--rate", callback=per_second, metavar="N/s", help="At most N jobs a second; also N/m or N/h."
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only print how many jobs it would affect.")


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 job`, `1,200 processes`."""
    return f"1 {one}" if number == 1 else f"{number:,} {many or one + 's'}"


def ask(question: Callable[[], str], *, what: str) -> None:
    """
    Ask before something is done that cannot be taken back; a no ends the command.

    Args:
        question: Without the question mark; made only where somebody can answer.
        what: What asks, for whoever has no terminal.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(f"{what} asks first, and there is no terminal to ask on; add --yes")
    click.confirm(f"{question()}?", abort=True, err=True)


@contextmanager
def stopped_by_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Within the block Ctrl-C only asks for the end, which comes between two round trips; a second one acts at once."""
    asked = False

    def ask_for_end(number: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask_for_end)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


def tell_count(count: int, done: str, *, as_json: bool) -> None:
    """What `--dry-run` says."""
    if as_json:
        echo_json({"count": count})
    else:
        click.echo(f"{counted(count, 'job')} would be {done}.")


def tell_result(
    result: BulkResult, done: str, *, as_json: bool, missing: Sequence[str] = (), stopped: bool = False
) -> None:
    """
    What became of the jobs, and the exit code that goes with it.

    Args:
        done: What was done to those that are counted as moved.
        missing: Ids that were asked for and not found.
        stopped: Ctrl-C ended it.
    """
    errors = [{"jid": job.jid, "error": str(error)} for job, error in result.errors]
    if as_json:
        counts = {"moved": result.moved, "gone": result.gone, "refused": result.refused}
        echo_json({**counts, "errors": errors, "missing": missing})
    else:
        click.echo(f"{counted(result.moved, 'job')} {done}.")
        if result.gone:
            click.echo(f"{result.gone:,} were gone when their turn came: a worker or somebody else had taken them.")
        for jid in missing:
            click.echo(f"No job here has the id {jid}.", err=True)
        if result.refused:
            click.echo(f"{result.refused:,} stay where they are:", err=True)
            for error in errors:
                click.echo(f"  {error['jid'] or 'no jid'}: {shortened(str(error['error']), 200)}", err=True)
    if stopped:
        click.echo("Stopped by Ctrl-C; the other jobs are where they were.", err=True)
        click.get_current_context().exit(STOPPED)
    if missing or result.refused:
        click.get_current_context().exit(COULD_NOT)


def unknown(kind: str, name: str, known: Sequence[str], advice: str) -> click.UsageError:
    """The error about a name that does not exist, with the closest that does."""
    close = closest(name, known)
    meant = "" if close is None else f" Did you mean {close}?"
    return click.UsageError(f"there is no {kind} {name}.{meant} {advice}")
