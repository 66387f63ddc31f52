"""
A job's bytes, fit for a screen: broken into lines between its members, each marked as new, changed or kept.

The text is that of the bytes; only line breaks are added.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Mark = Literal["new", "changed", "kept"]

_BLANKS = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Part:
    """
    One member of the payload, with the brace or comma beside it.

    Args:
        text: As in the bytes.
        mark: What it is beside the payload as it was before.
    """

    text: str
    mark: Mark


def members(payload: str) -> dict[str, str]:
    """
    The members of a JSON object, each value as the text that stands there: `1.0` stays `1.0`, `"\\u00e9"` escaped.

    Raises:
        ValueError: It is no object.
    """
    return {name: payload[start:end] for name, _, start, end in _walk(payload)}


def parts(payload: str, before: str | None = None) -> list[Part]:
    """
    The payload in pieces that joined together are the payload.

    Args:
        before: The payload as it was; without it every part counts as kept.
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
    The pieces on lines of at most *width* characters; a line holds pieces of one mark only.

    All but the first are set in by one character, to stand below the first member.
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
            # After a comma, if there is one: a number that is cut in two reads like two.
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
    """Name, where the member begins, where its value begins and ends."""
    decoder = json.JSONDecoder()
    at = _skip(payload, 0)
    if payload[at : at + 1] != "{":
        raise ValueError(f"no JSON object: {payload[:40]!r}")
    at = _skip(payload, at + 1)
    while payload[at : at + 1] == '"':
        begin = at
        name, at = decoder.raw_decode(payload, at)
        start = _skip(payload, _skip(payload, at) + 1)
        _, end = decoder.raw_decode(payload, start)
        yield name, begin, start, end
        at = _skip(payload, _skip(payload, end) + 1)


def _skip(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at
