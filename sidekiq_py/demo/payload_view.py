"""
Formats a job's bytes for the screen: breaks them into lines between members, each marked as new, changed or kept.

The text is exactly that of the bytes; only line breaks are added.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from sidekiq_py.wire import json_spans

Mark = Literal["new", "changed", "kept"]


class Part(NamedTuple):
    """
    One member of the payload, with the brace or comma next to it.

    Args:
        text: The text, as in the bytes.
        mark: How the member compares with the earlier payload.
    """

    text: str
    mark: Mark


def members(payload: str) -> dict[str, str]:
    """
    The members of a JSON object, each value as its original text: `1.0` stays `1.0`, and `"\\u00e9"` stays escaped.

    Raises:
        ValueError: The payload is not an object.
    """
    return {name: payload[start:end] for name, _, start, end in _walk(payload)}


def parts(payload: str, before: str | None = None) -> list[Part]:
    """
    Split the payload into pieces, which joined together are the payload.

    Args:
        before: The earlier payload to compare with; without it every part counts as kept.
    """
    was = None if before is None else members(before)
    cut = [(name, begin, payload[start:end]) for name, begin, start, end in _walk(payload)]
    if not cut:
        return [Part(payload, "kept")]
    begins = [0, *(begin for _, begin, _ in cut[1:]), len(payload)]
    return [
        Part(payload[begins[i] : begins[i + 1]], "kept" if was is None else _mark(name, value, was))
        for i, (name, _, value) in enumerate(cut)
    ]


def lines(pieces: list[Part], width: int) -> Iterator[tuple[Mark, str]]:
    """
    Put the pieces on lines of at most *width* characters, each with pieces of one mark only.

    All lines but the first are indented by one character, to align with the first member.
    """
    mark: Mark = "kept"
    line = ""
    for piece in pieces:
        if line and (piece.mark != mark or len(line) + len(piece.text) > width):
            yield mark, line
            line = " "
        mark = piece.mark
        line += piece.text
        while len(line) > width:
            # Break after a comma if possible, because a number that is cut in two looks like two numbers.
            end = line.rfind(",", width // 2, width) + 1 or width
            yield mark, line[:end]
            line = " " + line[end:]
    if line.strip():
        yield mark, line


def _mark(name: str, value: str, was: Mapping[str, str]) -> Mark:
    if name not in was:
        return "new"
    return "kept" if was[name] == value else "changed"


def _walk(payload: str) -> Iterator[tuple[str, int, int, int]]:
    """For each member: its name, the start of the member, and the start and end of its value."""
    before = 0
    for name, (start, end) in json_spans.members(payload).items():
        yield name, payload.index('"', before), start, end
        before = end
