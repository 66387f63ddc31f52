"""What `top` shows, as lines of text, for a terminal of any size or for none."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from sidekiq_py.api import Overview, Process, QueueSummary, Work
from sidekiq_py.api.processes import is_silent
from sidekiq_py.cli.output import cut, fit, plain, shortened, shown, span, table_line
from sidekiq_py.cli.processes import state as process_state
from sidekiq_py.cli.running import language
from sidekiq_py.logs import counted
from sidekiq_py.wire.json_writer import json_text

Style = Literal["", "title", "heading", "selected", "warning", "dim"]

SECTIONS = ("processes", "queues", "jobs")
_NARROWEST = 6
# A lower screen shows only the selected section.
_LEAST_ROWS = 12
_ARGS_WIDTH = 200

HELP = (
    "Tab, Shift-Tab   the next section, the previous one",
    "Up, Down, j, k   select a row",
    "u                quiet the selected process, or the one that runs the selected job: it fetches no more",
    "s                stop it",
    "d                make it log the backtraces of its threads",
    "p                pause the selected queue, or resume it",
    "r                retry all jobs in the retry set now",
    "x                stop retrying; the other jobs stay in the retry set",
    "?                show or hide these keys",
    "q                quit",
)


class Line(NamedTuple):
    """One line of the screen."""

    text: str
    style: Style = ""


@dataclass(slots=True)
class State:
    """
    What the user has selected, and what the screen has to say.

    Args:
        section: The selected section, one of `SECTIONS`.
        selected: The name of the selected row in each section: an identity, a queue, or a process and its thread.
        has_help: True to show the keys instead of the sections.
        message: The text of the last line.
        trouble: Why Redis could not be read; empty if it could.
    """

    section: str = SECTIONS[0]
    selected: dict[str, str] = field(default_factory=dict)
    has_help: bool = False
    message: str = ""
    trouble: str = ""

    def move(self, overview: Overview, step: int) -> None:
        """Select the row *step* rows further down in the section."""
        names = row_names(overview, self.section)
        if names:
            place = names.index(self.chosen(overview, self.section) or names[0])
            self.selected[self.section] = names[max(0, min(len(names) - 1, place + step))]

    def turn(self, step: int) -> None:
        """Select the section *step* sections further on."""
        self.section = SECTIONS[(SECTIONS.index(self.section) + step) % len(SECTIONS)]

    def chosen(self, overview: Overview, section: str) -> str | None:
        """The selected row's name: the first row's if the selected one has gone, None if there are no rows."""
        names = row_names(overview, section)
        name = self.selected.get(section)
        return name if name in names else next(iter(names), None)

    def chosen_process(self, overview: Overview) -> str | None:
        """The identity of the selected process, or of the one that runs the selected job."""
        if self.section == "queues":
            return None
        name = self.chosen(overview, self.section)
        return name.rpartition("/")[0] if name is not None and self.section == "jobs" else name


class _Column(NamedTuple):
    """
    A column of a table.

    Args:
        keep: The priority: if there is not enough room, the columns with the lowest numbers are dropped first.
        is_elastic: True if its text may be cut.
    """

    heading: str
    cell: Callable[[Any], Any]
    keep: int
    is_right: bool = False
    is_elastic: bool = False


def row_names(overview: Overview, section: str) -> list[str]:
    """The names of a section's rows."""
    if section == "processes":
        return [process.identity for process in overview.processes]
    if section == "queues":
        return [queue.name for queue in overview.queues]
    return [f"{work.process_id}/{work.thread_id}" for work in overview.works]


def report(overview: Overview, width: int) -> Iterator[str]:
    """The lines of the whole view, for `--once`."""
    yield from (line.text for line in _head(overview, width, is_live=False))
    for section in SECTIONS:
        yield ""
        yield from (line.text for line in _table(overview, section, width))


def worst_first(overview: Overview) -> Overview:
    """The same for a screen that may not have room for all: silent processes, and queues that wait longest, first."""
    processes = sorted(overview.processes, key=lambda one: (not is_silent(one, overview.at), one.identity))
    # By whole seconds, as they are shown, so that the rows change places less often.
    queues = sorted(overview.queues, key=lambda one: (one.error is None, -int(one.latency), -one.size, one.name))
    return replace(overview, processes=tuple(processes), queues=tuple(queues))


def screen(overview: Overview, state: State, width: int, height: int) -> list[Line]:
    """
    The screen: exactly *height* lines of at most *width* characters. The row that it shows as selected stays selected
    when the order of the rows changes.
    """
    chosen = state.chosen(overview, state.section)
    if chosen is not None:
        state.selected[state.section] = chosen
    head = _head(overview, width, is_live=True)
    if state.trouble:
        head = [Line(shortened(state.trouble, width), "warning"), *head[1:]]
    if state.has_help:
        body = [Line(""), *(Line(cut(text, width)) for text in HELP)]
    else:
        body = _body(overview, state, width, max(0, height - len(head) - 1))
    rows = max(0, height - 1)
    lines = [*head, *body][:rows]
    lines += [Line("")] * (rows - len(lines))
    keys = state.message or "? keys  Tab section  u quiet  s stop  d dump  p pause  r retry  q quit"
    return [*lines, Line(shortened(keys, width), "warning" if state.message else "dim")][:height]


def _head(overview: Overview, width: int, *, is_live: bool) -> list[Line]:
    rates = overview.rates
    busy = sum(process.busy for process in overview.processes)
    clock = datetime.fromtimestamp(overview.at, UTC).astimezone().strftime("%H:%M:%S")
    speed = "" if rates is None else f"  {rates.processed:,.1f}/s processed  {rates.failed:,.1f}/s failed"
    in_flight = sum(entry.count for entry in overview.in_flight)
    numbers = [
        f"{busy:,} of {overview.concurrency:,} busy",
        f"{overview.enqueued:,} enqueued",
        counted(overview.retries, "retry", "retries"),
        f"{overview.dead:,} dead",
        f"{overview.scheduled:,} scheduled",
        f"{in_flight:,} in flight",
        f"{overview.processed:,} processed",
        f"{overview.failed:,} failed",
    ]
    while len(numbers) > 1 and len("  ".join(numbers)) > width:
        numbers.pop()
    title = f"sidekiq-py top  {clock}{speed}" if is_live else f"{clock}{speed}"
    return [Line(cut(title, width), "title"), Line(cut("  ".join(numbers), width))]


def _body(overview: Overview, state: State, width: int, height: int) -> list[Line]:
    sections = SECTIONS if height >= _LEAST_ROWS else (state.section,)
    wanted = {section: max(1, len(row_names(overview, section))) for section in sections}
    # Each section has a blank line and its headings, besides its rows.
    rooms = _shares(wanted, max(0, height - 2 * len(sections)))
    lines: list[Line] = []
    for section in sections:
        lines += [Line(""), *_window(overview, state, section, width, rooms[section])]
    return lines


def _window(overview: Overview, state: State, section: str, width: int, room: int) -> list[Line]:
    """The headings, and as many rows around the selected one as there is room for. No other row is looked at."""
    names = row_names(overview, section)
    chosen = state.chosen(overview, section)
    place = names.index(chosen) if chosen is not None else 0
    start = max(0, min(place - room // 2, len(names) - room))
    headings, *rows = _table(overview, section, width, start, start + room)
    rows = rows[:room]
    if chosen is not None and section == state.section and 0 <= place - start < len(rows):
        rows[place - start] = Line(rows[place - start].text, "selected")
    return [headings, *rows]


def _shares(wanted: dict[str, int], room: int) -> dict[str, int]:
    """How many rows each section gets: equal shares, and what one does not need goes to the others."""
    shares = dict.fromkeys(wanted, 0)
    while room > 0 and (open_ones := [name for name in wanted if shares[name] < wanted[name]]):
        for name in open_ones[:room]:
            shares[name] += 1
        room -= len(open_ones[:room])
    return shares


def _table(overview: Overview, section: str, width: int, start: int = 0, end: int | None = None) -> list[Line]:
    """The headings and the rows from *start* to *end*."""
    all_rows, columns = _columns(overview, section)
    rows = all_rows[start:end]
    texts = {column: [column.heading, *(_text(column, row) for row in rows)] for column in columns}
    texts[columns[0]][0] += f" ({len(all_rows):,})"
    while len(texts) > 1 and _least(texts) > width:
        del texts[min(texts, key=lambda column: column.keep)]
    widths = [max(map(len, cells)) for cells in texts.values()]
    elastic = [index for index, column in enumerate(texts) if column.is_elastic]
    fit(widths, elastic or range(len(widths)), width, _NARROWEST)
    are_right = [column.is_right for column in texts]
    lines = []
    for number, cells in enumerate(zip(*texts.values(), strict=True)):
        style: Style = "heading" if number == 0 else _style(rows[number - 1], overview)
        lines.append(Line(cut(table_line(cells, widths, are_right), width), style))
    if not all_rows:
        lines.append(Line(cut(_NONE[section], width), "dim"))
    return lines


_NONE = {
    "processes": "No worker process is running.",
    "queues": "Nothing has ever been pushed to this Redis.",
    "jobs": "No job is running.",
}


def _columns(overview: Overview, section: str) -> tuple[Sequence[Any], list[_Column]]:
    if section == "processes":
        return overview.processes, [
            _Column("PROCESS", lambda one: one.identity, 9, is_elastic=True),
            _Column("", language, 7),
            _Column("VERSION", lambda one: one.version or "", 2),
            _Column("BUSY", lambda one: f"{one.busy}/{one.concurrency}", 8, is_right=True),
            _Column(
                "IN FLIGHT",
                lambda one: overview.in_flight_of(one.identity) if one.is_python else "-",
                4,
                is_right=True,
            ),
            _Column("RSS", lambda one: f"{one.rss_kb // 1024} MB", 3, is_right=True),
            _Column("STATE", lambda one: process_state(one, overview.at), 6),
            _Column("QUEUES", lambda one: ",".join(one.queues), 5, is_elastic=True),
        ]
    if section == "queues":
        return overview.queues, [
            _Column("QUEUE", lambda one: one.name, 9, is_elastic=True),
            _Column("SIZE", lambda one: "-" if one.error else f"{one.size:,}", 8, is_right=True),
            _Column("LATENCY", lambda one: "-" if one.error else span(one.latency), 7, is_right=True),
            _Column("IN FLIGHT", lambda one: f"{one.in_flight:,}", 4, is_right=True),
            _Column("STATE", _queue_state, 6),
        ]
    processes = {process.identity: process for process in overview.processes}
    return overview.works, [
        _Column("RUNNING", lambda one: _age(one, overview.at), 9, is_right=True),
        _Column("CLASS", lambda one: one.job.display_class or "-", 8, is_elastic=True),
        _Column("", lambda one: language(processes.get(one.process_id)), 4),
        _Column("QUEUE", lambda one: one.queue, 7, is_elastic=True),
        _Column("ARGS", lambda one: json_text(shown(one.job).display_args), 6, is_elastic=True),
        _Column("JID", lambda one: one.job.jid or "-", 2),
        _Column("PROCESS", lambda one: one.process_id, 5, is_elastic=True),
    ]


def _text(column: _Column, row: Any) -> str:
    text = str(column.cell(row))
    return shortened(text, _ARGS_WIDTH) if column.is_elastic else plain(text)


def _least(texts: Mapping[_Column, Sequence[str]]) -> int:
    """The width that these columns need at least, with the elastic ones cut."""
    widths = [
        min(max(map(len, cells)), 3 * _NARROWEST) if column.is_elastic else max(map(len, cells))
        for column, cells in texts.items()
    ]
    return sum(widths) + 2 * (len(widths) - 1)


def _queue_state(queue: QueueSummary) -> str:
    return ", ".join([*(["paused"] if queue.paused else []), *(["cannot be read"] if queue.error else [])])


def _age(work: Work, now: float) -> str:
    return "-" if work.run_at is None else span(max(0.0, now - work.run_at.timestamp()))


def _style(row: Any, overview: Overview) -> Style:
    if isinstance(row, Process):
        return "warning" if process_state(row, overview.at) else ""
    return "warning" if isinstance(row, QueueSummary) and _queue_state(row) else ""
