"""`sidekiq-py doctor`: reports what is wrong with this Redis and what to do about it."""

import functools
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, TypeVar

import click

from sidekiq_py.cli.advice import with_advice
from sidekiq_py.cli.connection import imports_program, reads_redis
from sidekiq_py.cli.output import cut, echo_json, plain
from sidekiq_py.doctor import Finding, Level, Report, examine
from sidekiq_py.errors import ConfigError, SidekiqError
from sidekiq_py.registry import registry

F = TypeVar("F", bound=Callable[..., Any])

_FOUND = 1
_COULD_NOT_LOOK = 2
_WIDEST = 120
# Room for a word beside the label; a pane that is narrower breaks the lines itself.
_NARROWEST = 20
# Any program may push to a queue whose name is a megabyte long.
_LONGEST = 4000
_COLOURS = {
    Level.PROBLEM: "red",
    Level.WARNING: "yellow",
    Level.UNSEEN: "magenta",
    Level.NOTE: "cyan",
    Level.OK: "green",
}
_LABEL_WIDTH = max(len(level) for level in Level) + 2
# Never break inside names of keys, processes and commands, so that they can be copied whole.
_wrap = functools.partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)


class _CouldNotLook(click.ClickException):
    exit_code = _COULD_NOT_LOOK


def _ends_with_its_own_code(command: F) -> F:
    """End with exit code 2 on an error that prevents the checks: it tells it apart from a problem that they found."""

    @functools.wraps(command)
    def guarded(*arguments: Any, **options: Any) -> Any:
        try:
            return command(*arguments, **options)
        except ConfigError as error:
            raise click.UsageError(str(error)) from error
        except SidekiqError as error:
            raise _CouldNotLook(with_advice(error)) from error
        except click.UsageError:
            raise
        except click.ClickException as error:
            raise _CouldNotLook(error.message) from error

    return guarded  # type: ignore[return-value]


@click.command()
@click.option("--strict", is_flag=True, help="Count warnings as problems.")
@click.option("-v", "--verbose", is_flag=True, help="Also show the checks that passed.")
@_ends_with_its_own_code
@imports_program(
    modules="Module to import first; the classes that it declares count as served.",
    release="Sidekiq release that your program writes for.",
)
@reads_redis
@click.pass_context
def doctor(ctx: click.Context, strict: bool, verbose: bool, as_json: bool) -> None:
    """
    Find problems with Redis and the processes that share it.

    Shows which languages and Sidekiq releases are running, and which release Python writes for and why. Checks the
    server, clocks, units of time, queues, classes, jobs in flight, and keys of Sidekiq Pro, Enterprise and gems. It
    only reads, and samples large queues.

    With -r, the classes that your program declares count as served, and the options of its jobs are checked.

    \b
    Exit codes:
      0  no problem was found (with --strict: and no warning)
      1  there is a problem (with --strict: or a warning)
      2  the checks could not run: no connection, or wrong usage
    """
    report = examine(declared=registry if ctx.params["require"] else None)
    is_healthy = report.is_healthy(strict=strict)
    if as_json:
        echo_json(_document(report, is_healthy))
    else:
        _show(report, verbose=verbose)
    ctx.exit(0 if is_healthy else _FOUND)


def _document(report: Report, is_healthy: bool) -> dict[str, Any]:
    return {
        "redis": report.url,
        **report.about,
        "keys_are_whole": report.keys_are_whole,
        "healthy": is_healthy,
        "problems": report.count(Level.PROBLEM),
        "warnings": report.count(Level.WARNING),
        "findings": [
            {
                "check": check.name,
                "level": str(finding.level),
                "seen": finding.seen,
                "advice": finding.advice,
                "subjects": list(finding.subjects),
            }
            for check, finding in report.findings()
        ],
    }


def _show(report: Report, *, verbose: bool) -> None:
    columns = shutil.get_terminal_size((_WIDEST, 24)).columns if sys.stdout.isatty() else _WIDEST
    width = max(_NARROWEST, min(columns, _WIDEST))
    click.echo(_head(report))
    levels = [level for level in Level if level is not Level.UNSEEN and (verbose or level is not Level.OK)]
    shown = [(check.group, finding) for check, finding in report.first_findings(*levels, rest="--json")]
    unseen = [("Not checked", finding) for finding in _unseen(report)]
    for group, found in groupby([*shown, *unseen], key=lambda pair: pair[0]):
        click.echo(f"\n{click.style(group, bold=True)}")
        for _, finding in found:
            _show_finding(finding, width)
    click.echo()
    if not verbose:
        click.echo("\n".join(_wrap(_in_order(report), width)))
    click.echo(_summary(report))


def _unseen(report: Report) -> Iterator[Finding]:
    """
    What could not be checked, grouped by reason: one missing permission may hide a dozen things. A finding that names
    what was not looked at stands as it is.
    """
    topics: dict[tuple[str, str], list[str]] = {}
    for check, finding in report.findings(Level.UNSEEN):
        if finding.subjects:
            yield finding
            continue
        _, because, reason = finding.seen.partition(" because ")
        topics.setdefault((because + reason, finding.advice), []).append(check.topic)
    for (reason, advice), names in topics.items():
        *others, last = names
        listed = f"{', '.join(others)} and {last}" if others else last
        yield Finding(Level.UNSEEN, f"{listed[0].upper()}{listed[1:]} could not be looked at,{reason}", advice)


def _head(report: Report) -> str:
    about = report.about
    parts = [report.url, *([about["server"]] if "server" in about else [])]
    if "ruby_processes" in about:
        parts.append(f"processes: {about['ruby_processes']} Ruby, {about['python_processes']} Python")
    if "jobs_looked_at" in about:
        parts.append(f"looked at {about['jobs_looked_at']:,} of {about['jobs_waiting']:,} waiting jobs")
    if "keys_looked_at" in about:
        parts.append(f"{about['keys_looked_at']:,} keys" + ("" if report.keys_are_whole else " (there are more)"))
    return ", ".join(parts)


def _show_finding(finding: Finding, width: int) -> None:
    label = click.style(f"  {finding.level:<{_LABEL_WIDTH}}", fg=_COLOURS[finding.level])
    indent = " " * (_LABEL_WIDTH + 2)
    seen, advice = (cut(plain(text), _LONGEST) for text in (finding.seen, finding.advice))
    lines = _wrap(seen, width - len(indent))
    lines += _wrap(advice, width - len(indent), initial_indent="→ ", subsequent_indent="  ")
    click.echo(label + f"\n{indent}".join(lines))


def _in_order(report: Report) -> str:
    """The topics whose checks found nothing to report."""
    quiet = [
        examined.check.topic
        for examined in report.examined
        if examined.findings and all(finding.level is Level.OK for finding in examined.findings)
    ]
    return f"OK: {', '.join(quiet)}." if quiet else "Every check has something to report."


def _summary(report: Report) -> str:
    counts = [(level, report.count(level)) for level in (Level.PROBLEM, Level.WARNING, Level.UNSEEN, Level.NOTE)]
    words = {Level.UNSEEN: ("thing not checked", "things not checked")}
    parts = []
    for level, number in counts:
        one, many = words.get(level, (str(level), f"{level}s"))
        if number:
            parts.append(click.style(f"{number} {one if number == 1 else many}", fg=_COLOURS[level]))
    return ", ".join(parts) + "." if parts else click.style("Nothing is wrong.", fg="green")
