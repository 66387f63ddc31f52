"""Finds the positions of the parts of a JSON text, to replace one part and keep the bytes of the others."""

import re

from sidekiq_py.errors import JsonParseError
from sidekiq_py.wire.json_dialect import loads
from sidekiq_py.wire.json_reader import STRING

_TOKEN = re.compile(rf"{STRING}|[\[\]{{}},:]|[^\s\[\]{{}},:\"]++", re.S)

Span = tuple[int, int]
"""The start and the end of a value."""


def members(text: str) -> dict[str, Span]:
    """
    The members of an object: maps each key to the position of its value. If a key is repeated, the last one counts.

    Raises:
        JsonParseError: It is not a JSON object, or it has comments.
    """
    tokens = _parts(text, "{", "}")
    found: dict[str, Span] = {}
    for part in tokens:
        key, colon, *value = part
        if colon.group() != ":" or not value:
            raise JsonParseError("not JSON: an object's key and value are not separated by a colon")
        found[loads(key.group().encode())] = (value[0].start(), value[-1].end())
    return found


def elements(text: str) -> list[Span]:
    """
    The positions of an array's elements.

    Raises:
        JsonParseError: It is not a JSON array, or it has comments.
    """
    return [(part[0].start(), part[-1].end()) for part in _parts(text, "[", "]")]


def _parts(text: str, opening: str, closing: str) -> list[list["re.Match[str]"]]:
    """The tokens between the outermost brackets, split at the commas of that level."""
    if "/" in text and ("/*" in text or "//" in text) and _has_comment(text):
        raise JsonParseError("not JSON: comments are not allowed here")
    tokens = list(_TOKEN.finditer(text))
    if len(tokens) < 2 or tokens[0].group() != opening or tokens[-1].group() != closing:
        raise JsonParseError(f"not JSON that begins with {opening} and ends with {closing}")
    parts: list[list[re.Match[str]]] = []
    part: list[re.Match[str]] = []
    depth = 0
    for token in tokens[1:-1]:
        sign = token.group()
        if sign == "," and depth == 0:
            parts.append(part)
            part = []
            continue
        if sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
        part.append(token)
    if part:
        parts.append(part)
    if any(not one for one in parts):
        raise JsonParseError("not JSON: two commas in a row")
    return parts


def _has_comment(text: str) -> bool:
    return any(token.group()[0] == "/" for token in _TOKEN.finditer(text))
