"""
Renders charts as SVG on the server. Colours come from the style sheet, so they follow the dark or light theme.

Labels are HTML around the SVG, so that they have the size of other text however narrow the chart is.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from markupsafe import Markup

from sidekiq_py.api import DeployMark
from sidekiq_py.web.text import number, shortened

Spell = Callable[[float], str]

_WIDTH, _HEIGHT = 720, 140
_LABELLED_BARS = 5
_LINE_WIDTH, _LINE_HEIGHT = 160, 32
# Do not break the line at two minutes without samples, as happens when another process of the fleet takes them over.
_MOST_APART_SECONDS = 200


class Bar(NamedTuple):
    """
    One bar: successes at the bottom, failures on top.

    Args:
        at: When the bar's period begins.
        label: The text to show.
    """

    at: datetime
    label: str
    succeeded: int
    failed: int


def bars(values: Sequence[Bar], *, title: str, marks: Sequence[DeployMark] = ()) -> Markup:
    """A bar chart; empty bars keep their space."""
    top = max((bar.succeeded + bar.failed for bar in values), default=0)
    step = _WIDTH / max(1, len(values))
    width = max(1.0, step * 0.8)
    parts: list[Markup] = []
    for index, bar in enumerate(values):
        if top and bar.succeeded + bar.failed:
            good, bad = bar.succeeded / top * _HEIGHT, bar.failed / top * _HEIGHT
            x, base = index * step, _HEIGHT
            caption = f"{bar.label}: {number(bar.succeeded)} succeeded, {number(bar.failed)} failed"
            succeeded = _rectangle("good", x, base - good, width, good)
            parts.append(_bar(caption, succeeded + _rectangle("bad", x, base - good - bad, width, bad)))
    parts += [_mark(mark, values, step) for mark in marks]
    labels = [values[0].label, values[-1].label] if values else []
    return _chart(title, parts, labels, top=number(top))


def line(values: Sequence[float], *, title: str, spell: Spell = number) -> Markup:
    """
    A small line without axes, for a trend; empty for fewer than two values.

    Its lowest value is at the bottom and its highest at the top, and only the title says what they are.

    Args:
        spell: Formats a value.
    """
    return _line(list(enumerate(values)), title, spell)


def trend(points: Sequence[tuple[datetime, float]], *, title: str, spell: Spell = number) -> Markup:
    """Like `line`, over time, with gaps where minutes are missing."""
    return _line([(at.timestamp(), value) for at, value in points], title, spell, most_apart=_MOST_APART_SECONDS)


def _line(
    points: Sequence[tuple[float, float]], title: str, spell: Spell, *, most_apart: float | None = None
) -> Markup:
    if len(points) < 2:
        return Markup("")
    values = [value for _, value in points]
    low, high = min(values), max(values)
    spread = (high - low) or 1.0
    first, width = points[0][0], (points[-1][0] - points[0][0]) or 1.0
    parts: list[list[str]] = [[]]
    before = first
    for at, value in points:
        if most_apart is not None and at - before > most_apart:
            parts.append([])
        before = at
        x = (at - first) / width * _LINE_WIDTH
        parts[-1].append(f"{x:.1f},{_LINE_HEIGHT - 2 - (value - low) / spread * (_LINE_HEIGHT - 4):.1f}")
    lines = Markup("").join(Markup('<polyline points="{}"/>').format(" ".join(part)) for part in parts)
    between = spell(low) if spell(low) == spell(high) else f"{spell(low)} to {spell(high)}"
    return Markup(
        '<svg class="line" viewBox="0 0 {} {}" role="img" aria-label="{title}"><title>{title}</title>{}</svg>'
    ).format(_LINE_WIDTH, _LINE_HEIGHT, lines, title=f"{title}: {between}")


def histogram(counts: Sequence[tuple[str, int]], *, title: str) -> Markup:
    """A bar chart with a label at every fifth bar."""
    top = max((count for _, count in counts), default=0)
    step = _WIDTH / max(1, len(counts))
    parts: list[Markup] = []
    for index, (label, count) in enumerate(counts):
        x, height = index * step, count / top * _HEIGHT if top else 0.0
        rectangle = _rectangle("good", x, _HEIGHT - height, step * 0.85, height)
        parts.append(_bar(f"{label}: {number(count)}", rectangle))
    # The last label also stands for the bar that is left over.
    labels = [label for label, _ in counts[:-1:_LABELLED_BARS]]
    return _chart(title, parts, labels, top=number(top), kind="even ")


def _chart(title: str, parts: Sequence[Markup], labels: Sequence[str], *, top: str, kind: str = "") -> Markup:
    """The parts, the value of the highest bar above them, and the labels below."""
    return Markup(
        '<div class="chart"><span>{}</span><svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg><div class="{}labels">{}</div></div>'
    ).format(
        top,
        _WIDTH,
        _HEIGHT,
        title,
        Markup("").join(parts),
        kind,
        Markup("").join(Markup("<span>{}</span>").format(label) for label in labels),
    )


def _bar(caption: str, rectangles: Markup) -> Markup:
    return Markup("<g><title>{}</title>{}</g>").format(caption, rectangles)


def _rectangle(kind: str, x: float, y: float, width: float, height: float) -> Markup:
    return Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
        kind, x, y, width, height
    )


def _mark(mark: DeployMark, values: Sequence[Bar], step: float) -> Markup:
    """A vertical line at the bar of a deploy."""
    place = max((index for index, bar in enumerate(values) if bar.at <= mark.at), default=0)
    return Markup('<g class="mark"><title>{}</title><line x1="{:.1f}" y1="0" x2="{:.1f}" y2="{}"/></g>').format(
        f"Deploy: {shortened(mark.label, 200)}", place * step, place * step, _HEIGHT
    )
