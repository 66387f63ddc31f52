"""How commands print tables, times and JSON."""

import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from sidekiq_py.api import JobRecord
from sidekiq_py.clock import largest_units
from sidekiq_py.redaction import current
from sidekiq_py.wire.control_characters import UNSEEN
from sidekiq_py.wire.json_writer import json_text

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem  # only loaded when a shell asks for completions

# No column is cut to fewer characters than this to fit the terminal.
_NARROWEST = 8
# Nor shown longer than this, terminal or not: every line is as wide as its widest cell, so one job id of a megabyte
# would make a table of 10,000 jobs one of 10 GB. The last column is not padded, so it may be whole in a pipe or a file.
_WIDEST = 400
# The longest message in a table on a terminal.
_MESSAGE_WIDTH = 60

# What JSON leaves as it is, and a terminal may obey or show in another order, or no stream can write: a byte of a name
# that is not UTF-8. It can stand in texts alone.
_UNSEEN = re.compile(f"[{UNSEEN}\ud800-\udfff]")


class DefaultsToList(click.Group):
    """
    A group that runs its `list` command, with the given options, if no command is named. Options may also precede the
    name of a command: `--json show default` is `show --json default`.
    """

    hint = ""
    """What else to say about a name that is not a command's; `{}` stands for it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command, or `list`, before its options."""
        if ctx.resilient_parsing and self._from_command_on(ctx, [*args, "list"]) == ["list"]:
            # A shell asks for what may follow, which is a command and not the value of an option.
            return super().parse_args(ctx, [])
        if not args or (args[0].startswith("-") and args[0] not in self.get_help_option_names(ctx)):
            rest = self._from_command_on(ctx, args)
            options = args[: len(args) - len(rest)]
            args = [*(rest[:1] or ["list"]), *options, *rest[1:]]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which ones there are."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-") and not ctx.resilient_parsing:
            names = ", ".join(self.list_commands(ctx))
            raise click.UsageError(f"No such command {args[0]!r}; choose from {names}{self.hint.format(args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete the commands, and the options of `list`, which need none."""
        found = [*super().shell_complete(ctx, incomplete), *self.commands["list"].shell_complete(ctx, incomplete)]
        return list({item.value: item for item in found}.values())

    def _from_command_on(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What follows the options of `list` and their values, at the beginning of *args*."""
        try:
            # It stops at the first word that is neither, as a group's parser does.
            _, rest, _ = self.commands["list"].make_parser(ctx).parse_args(list(args))
        except click.UsageError:
            return []
        return rest


def iso_time(seconds: float) -> str:
    """Format a time for JSON: ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def echo_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(_json(value))


def echo_done(facts: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print what a command has done: *facts* as JSON, or *text*."""
    click.echo(_json(facts) if as_json else text)


def echo_json_array(values: Iterable[Any]) -> None:
    """Print a JSON array, one element per line, each as soon as it is available."""
    opening = "["
    for value in values:
        click.echo(opening + _json(value), nl=False)
        opening = ",\n "
    click.echo("[]" if opening == "[" else "]")


def echo_table(
    headings: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = (), elastic: Sequence[str] = ()
) -> None:
    """
    Print a table whose columns are as wide as their widest cell.

    Args:
        right: Headings of the columns to align right.
        elastic: Headings of the columns that may be cut if the terminal is too narrow.
    """
    is_cut = sys.stdout.isatty()
    are_right = [heading in right for heading in headings]
    is_last_whole = not is_cut and not are_right[-1]
    cells = [tuple(headings)]
    for *others, last in rows:
        shown_last = plain(str(last)) if is_last_whole else _within_widest(last)
        cells.append((*map(_within_widest, others), shown_last))
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    if is_cut:
        fit(widths, [headings.index(name) for name in elastic], shutil.get_terminal_size().columns, _NARROWEST)
    for row in cells:
        click.echo(table_line(row, [*widths[:-1], len(row[-1])] if is_last_whole else widths, are_right))


def _within_widest(cell: Any) -> str:
    return cut(plain(str(cell)[: _WIDEST + 1]), _WIDEST)


def table_line(cells: Iterable[str], widths: Iterable[int], are_right: Iterable[bool]) -> str:
    """One line of a table; a cell is cut to the width of its column."""
    aligned = (
        cut(cell, width).rjust(width) if is_right else cut(cell, width).ljust(width)
        for cell, width, is_right in zip(cells, widths, are_right, strict=True)
    )
    return "  ".join(aligned).rstrip()


def echo_rest(shown: int, limit: int, total: int, *, is_filtered: bool) -> None:
    """
    Say that a list of jobs ends at its limit, if there may be more.

    Args:
        shown: The number of jobs in the list.
        limit: The most that it may have; 0 for no limit.
        total: The number of all jobs. How many of them match a filter is unknown, because the search ended at the
            limit.
    """
    if shown != limit or total <= limit:
        return
    if is_filtered:
        what = "The first match is" if limit == 1 else f"The first {limit:,} matches are"
    else:
        what = f"{limit:,} of {total:,}"
    click.echo(f"{what} shown; --limit 0 shows all.")


def shown(job: JobRecord) -> JobRecord:
    """*job* as it may be printed: without the values that this process redacts."""
    return job.redacted(current())


def job_cells(job: JobRecord, args_width: int) -> tuple[str, str]:
    """The class and the arguments of a job, as cells of a table."""
    return shortened(job.display_class or "-", 40), shortened(json_text(shown(job).display_args), args_width)


def error_cell(job: JobRecord) -> str:
    """The class and message of the error that a job failed with, as the last cell of a row; empty if it has not."""
    failed = shown(job)
    return "" if failed.error_class is None else message_cell(f"{failed.error_class}: {failed.error_message}")


def message_cell(text: str) -> str:
    """A text as the last cell of a row, on one line. It is cut for a terminal only, so that `grep` finds all of it."""
    return shortened(text, _MESSAGE_WIDTH if sys.stdout.isatty() else len(text))


def job_facts(job: JobRecord) -> dict[str, Any]:
    """What the job is and how it failed, for `--json`."""
    facts = shown(job)
    return {
        "class": facts.display_class,
        "args": facts.display_args,
        "retry_count": facts.retry_count,
        "error_class": facts.error_class,
        "error_message": facts.error_message,
        "payload": facts.item or None,
    }


def shortened(text: str, width: int) -> str:
    """Put *text* on one line of at most *width* characters."""
    # Cut before the characters are looked at one by one, which took ten seconds for 50 MB. A word and its space are at
    # least two characters, so what is not split lies behind the end.
    return cut(plain(" ".join(text.split(None, width + 1))[: width + 1]), width)


def cut(line: str, width: int) -> str:
    """Cut a line to *width* characters, of which the last is an ellipsis."""
    return line if len(line) <= width else line[: max(0, width - 1)] + "…" if width > 0 else ""


def span(seconds: float) -> str:
    """
    Format a duration in its largest unit and the next smaller one: `2d 3h`, `45s`. A negative one, from a clock that is
    wrong, has a sign.
    """
    text = " ".join(f"{count}{unit}" for count, unit in largest_units(int(abs(seconds)))) or "0s"
    return f"-{text}" if seconds <= -1 else text


def relative(at: datetime | None, now: float) -> str:
    """Format a time as how long ago or how far ahead it is; "-" for None."""
    if at is None:
        return "-"
    seconds = at.timestamp() - now
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


@contextmanager
def progress(label: str, length: int, *, hidden: bool) -> Iterator[Callable[[int], None]]:
    """
    Show a progress bar on standard error, if that is a terminal. Yields a function that takes the number of items done.

    Args:
        hidden: Show no bar.
    """
    if hidden or length == 0 or not sys.stderr.isatty():
        yield lambda done: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        # A search inside Redis reports its progress only approximately.
        yield lambda done: bar.update(max(0, min(done, length) - bar.pos))


def fit(widths: list[int], elastic: Sequence[int], room: int, narrowest: int) -> None:
    """
    Shrink the widest of the *elastic* columns, one character at a time, until the table fits into *room*, or they are
    as narrow as *narrowest*.
    """
    surplus = sum(widths) + 2 * (len(widths) - 1) - room
    while surplus > 0 and elastic:
        widest = max(elastic, key=widths.__getitem__)
        if widths[widest] <= narrowest:
            return
        widths[widest] -= 1
        surplus -= 1


def _json(value: Any) -> str:
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text(value))


def plain(text: str) -> str:
    """Replace control characters, because payloads come from anywhere and a terminal would act on them."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
