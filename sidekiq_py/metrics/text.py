"""
Writes the part of Prometheus's text format that is needed here.

Source: prometheus.io, "Exposition formats", version 0.0.4. The tests parse it with prometheus_client's own parser.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MOST_CHARACTERS = 200
"""The longest value of a label."""

Labels = Mapping[str, str]


class Sample(NamedTuple):
    """
    One line.

    Args:
        labels: The labels, by name.
        value: The value.
        suffix: Appended to the family's name: `_bucket`, `_sum`, `_count`, or nothing.
    """

    labels: Labels
    value: float
    suffix: str = ""


class Family(NamedTuple):
    """All lines with one name."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    about: str
    samples: Sequence[Sample]


def histogram_samples(labels: Labels, bounds: Sequence[float], counts: Sequence[int], total: float) -> Iterator[Sample]:
    """
    The lines of one histogram.

    Args:
        labels: The labels of all lines, without `le`.
        bounds: The buckets' upper bounds, ascending.
        counts: How many values fell into each bucket alone; the last count is of those above all bounds.
        total: The sum of all values.
    """
    seen = 0
    for bound, count in zip((*bounds, float("inf")), counts, strict=True):
        seen += count
        yield Sample({**labels, "le": "+Inf" if bound == float("inf") else _number(bound)}, seen, "_bucket")
    yield Sample(labels, total, "_sum")
    yield Sample(labels, seen, "_count")


def label(text: str) -> str:
    """
    *text* as the value of a label, shortened.

    Any program may push a class name of a megabyte, which would appear in 40 lines.
    """
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}\N{HORIZONTAL ELLIPSIS}"


def render(families: Iterable[Family]) -> str:
    """The text that a scrape receives."""
    return "".join(line + "\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    name = family.name
    yield f"# HELP {name} {_escaped(family.about)}"
    yield f"# TYPE {name} {family.kind}"
    for sample in family.samples:
        pairs = ",".join(f'{key}="{_quoted(value)}"' for key, value in sample.labels.items())
        yield (
            f"{name}{sample.suffix}{{{pairs}}} {_number(sample.value)}" if pairs else f"{name} {_number(sample.value)}"
        )


def _number(value: float) -> str:
    # A count above 1e16 must not become a float.
    return str(value) if isinstance(value, int) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(value: str) -> str:
    # A foreign class or queue may contain lone surrogates, which UTF-8 cannot encode. Escaped, two names stay two: a
    # server that finds the same labels twice rejects all metrics.
    sound = value.encode("utf-8", "backslashreplace").decode()
    return _escaped(sound).replace('"', '\\"')
