"""What commands on many jobs share: filters, the rate, confirmation, Ctrl-C, and reporting the result."""

import math
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import click

from sidekiq_py.api import BulkResult, JobFilter, Queue
from sidekiq_py.cli.connection import complete_queue
from sidekiq_py.cli.exit_codes import COULD_NOT, STOPPED
from sidekiq_py.cli.output import echo_done, echo_json, progress, shortened
from sidekiq_py.cli.values import moment_seconds
from sidekiq_py.logs import counted
from sidekiq_py.options import closest
from sidekiq_py.wire.control_characters import escaped

T = TypeVar("T")

_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/([smh]))?")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600}
_TIMES = "2030-01-31T08:00:00Z, 2h (ago) or +2h (from now)"
_FILTERS = ("job_class", "queue", "argument", "text", "error", "after", "before")

_class_option = click.option("--class", "job_class", metavar="NAME", help="Only jobs of this class.")
_queue_option = click.option("--queue", metavar="NAME", shell_complete=complete_queue, help="Only jobs of this queue.")
argument_option = click.option("--arg", "argument", metavar="TEXT", help="Only jobs with TEXT in their arguments.")
_text_option = click.option("--match", "text", metavar="TEXT", help="Only jobs with TEXT anywhere in their payload.")

_error_option = click.option("--error", metavar="TEXT", help="Only jobs with TEXT in their error's class or message.")


def filter_options(
    *, time: str, queue: bool = True, error: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """
    Add the options that make up a `JobFilter`, which `take_filter` then builds.

    Args:
        time: What happens to jobs at the time that `--after` and `--before` compare, such as "are due".
        queue: Add `--queue`.
        error: Add `--error`.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        # Help lists them in the opposite order.
        before, after = f"Only jobs that {time} before TIME.", f"Only jobs that {time} at TIME or later: {_TIMES}."
        command = click.option("--before", callback=moment_seconds, metavar="TIME", help=before)(command)
        command = click.option("--after", callback=moment_seconds, metavar="TIME", help=after)(command)
        if error:
            command = _error_option(command)
        command = _text_option(command)
        command = argument_option(command)
        if queue:
            command = _queue_option(command)
        return _class_option(command)

    return add


def take_filter(options: dict[str, Any]) -> JobFilter:
    """Remove the options of `filter_options` from *options* and build a filter from them."""
    return JobFilter(**{name: options.pop(name) for name in _FILTERS if name in options})


def warn_of_queue(wanted: JobFilter) -> None:
    """Warn if no queue has the requested name but another has a similar one."""
    if wanted.queue is None:
        return
    names = [queue.name for queue in Queue.all()]
    close = None if wanted.queue in names else closest(wanted.queue, names)
    if close is not None:
        click.echo(f"There is no queue {wanted.queue}. Did you mean {escaped(close)}?", err=True)


def per_second(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    """Parse a rate; returns jobs per second."""
    if text is None:
        return None
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) / _UNIT_SECONDS[match[2] or "s"] if match else 0.0
    if not 0 < rate < math.inf:
        raise click.BadParameter(f"{text!r} is not a rate; write jobs per second, minute or hour: 100/s, 600/m or 10/h")
    return rate


rate_option = click.option(
    "--rate", callback=per_second, metavar="N/s", help="At most N jobs a second; also N/m or N/h."
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
limit_option = click.option(
    "-n", "--limit", type=click.IntRange(0), default=25, show_default=True, help="How many; 0 shows all."
)

dry_run_option = click.option("--dry-run", is_flag=True, help="Only print how many jobs it would affect.")


def at_most(limit: int, found: Iterable[T]) -> Iterable[T]:
    """The first of *found*, as many as `limit_option` says."""
    return islice(found, limit) if limit > 0 else found


def ask(question: Callable[[], str], *, what: str, unless: bool) -> None:
    """
    Ask before doing something that cannot be undone; answering no ends the command.

    Args:
        question: Returns the question, without the question mark; called only if there is a terminal.
        what: The name of the action, for the error message without a terminal.
        unless: True to do it without asking, as `--yes` says.
    """
    if unless:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{what} asks for confirmation, and there is no terminal to ask on; add --yes")
    click.confirm(f"{question()}?", abort=True, err=True)


@contextmanager
def stopped_by_ctrl_c() -> Iterator[Callable[[], bool]]:
    """
    Make Ctrl-C stop the operation cleanly, between two round trips; a second Ctrl-C interrupts at once.

    Yields a function that returns True once Ctrl-C was pressed.
    """
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


@contextmanager
def looking_through(total: int, *, hidden: bool = False) -> Iterator[Callable[[int], None]]:
    """
    Show the progress of a search that changes nothing. Yields a function that takes the number of jobs looked at.

    Args:
        hidden: Show no bar.

    Raises:
        KeyboardInterrupt: As Ctrl-C raised it, with a text that says how far the search came.
    """
    done = 0
    with progress("Look through", total, hidden=hidden) as show:

        def report(number: int) -> None:
            nonlocal done
            # A search inside Redis reports its progress only approximately.
            done = max(0, min(number, total))
            show(number)

        try:
            yield report
        except KeyboardInterrupt:
            said = f"Stopped by Ctrl-C after looking through {done:,} of {counted(total, 'job')}."
            raise KeyboardInterrupt(said) from None


def print_count(count: int, done: str, *, as_json: bool) -> None:
    """Print what `--dry-run` found."""
    echo_done({"count": count}, f"{counted(count, 'job')} would be {done}.", as_json=as_json)


def end_if_none(count: int, done: str, *, as_json: bool) -> None:
    """End the command if no job was found: then there is nothing to ask about."""
    if count == 0:
        print_result(BulkResult(0, 0, 0, ()), done, as_json=as_json)
        click.get_current_context().exit()


def print_result(
    result: BulkResult, done: str, *, as_json: bool, missing: Sequence[str] = (), stopped: bool = False
) -> None:
    """
    Print what happened to the jobs, and exit with the matching code if something failed.

    Args:
        done: What was done to the jobs counted as moved, such as "deleted".
        missing: The requested ids that were not found.
        stopped: True if Ctrl-C ended the operation.
    """
    errors = [{"jid": job.jid, "error": str(error)} for job, error in result.errors]
    if as_json:
        counts = {"moved": result.moved, "gone": result.gone, "refused": result.refused}
        echo_json({**counts, "errors": errors, "missing": missing})
    else:
        click.echo(f"{counted(result.moved, 'job')} {done}.")
        if result.gone:
            click.echo(f"{result.gone:,} had already been taken by a worker or someone else.")
        for jid in missing:
            click.echo(f"No job here has the id {jid}.", err=True)
        if result.refused:
            click.echo(f"{counted(result.refused, 'job was', 'jobs were')} left in place:", err=True)
            for error in errors:
                jid = shortened(str(error["jid"] or "no jid"), 200)
                click.echo(f"  {jid}: {shortened(str(error['error']), 200)}", err=True)
    if stopped:
        click.echo("Stopped by Ctrl-C; the remaining jobs are where they were.", err=True)
        click.get_current_context().exit(STOPPED)
    if missing or result.refused:
        click.get_current_context().exit(COULD_NOT)


def unknown(kind: str, name: str, known: Sequence[str], advice: str) -> click.UsageError:
    """The error for a name that does not exist; suggests the closest one that does."""
    close = closest(name, known)
    meant = "" if close is None else f" Did you mean {escaped(close)}?"
    return click.UsageError(f"there is no {kind} {escaped(name)}.{meant} {advice}")
