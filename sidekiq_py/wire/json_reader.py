"""
The exact reader: reads what orjson refuses or would change, as Ruby's json gem reads it.

`json_dialect.loads` only uses it if the fast reader is not enough.
"""

import json
import re
from typing import Any

from sidekiq_py.errors import JsonParseError

MAX_NESTING = 100

# Comments only count outside strings and escapes only inside them, so a string is always matched as a whole.
STRING = r'"(?:[^"\\]++|\\.)*+"'
_WHOLE_STRING = re.compile(STRING, re.S)
# A string or a comment without an end takes all that follows: a search that went on behind each quote, or each start of
# a comment, would take minutes for a payload of 100 KB that was cut off.
_TO_ITS_END = STRING + "?+"
_STRING_OR_COMMENT = re.compile(_TO_ITS_END + r"|(?P<comment>/\*.*?\*/|//[^\n]*+\n)|/[*/].*+", re.S)
_STRING_OR_BRACKET = re.compile(_TO_ITS_END + r"|[\[\]{}]", re.S)
_ESCAPE = re.compile(r'\\(?:(?P<known>["\\/bfnrt]|u[0-9a-fA-F]{4})|(?P<other>.))', re.S)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")

# Python refuses to convert longer decimal texts in one go, because that takes quadratic time.
_DIGITS_AT_ONCE = 600  # the least limit that `sys.set_int_max_str_digits` allows is 640


def read(raw: bytes) -> Any:
    """
    Parse *raw* like json before 3.0, including comments, duplicate keys and unknown escapes.

    A lone surrogate is refused: Ruby reads a low one as a string that it can never write again, and a high one as `?`
    and whatever it then takes for its partner.

    Raises:
        JsonParseError: It is not JSON.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise JsonParseError(f"not UTF-8: byte {error.start} is {raw[error.start]:#04x}") from None
    try:
        return _parse(text)
    except ValueError as error:
        strict_error = error
    try:
        tolerated = _without_leniencies(text)
        if tolerated != text:
            return _parse(tolerated)
    except ValueError as error:
        raise JsonParseError(f"not JSON: {error}") from None
    raise JsonParseError(f"not JSON: {strict_error}")


def read_integer(text: str) -> int:
    """A decimal integer of any length."""
    if len(text) <= _DIGITS_AT_ONCE:
        return int(text)
    if text[0] == "-":
        return -read_integer(text[1:])
    middle = len(text) // 2
    low = text[middle:]
    power: int = 10 ** len(low)
    return read_integer(text[:middle]) * power + read_integer(low)


def _parse(text: str) -> Any:
    if _nesting(text) > MAX_NESTING:
        raise ValueError(f"nested deeper than {MAX_NESTING} levels, which no Ruby release reads")
    value = json.loads(text, parse_int=read_integer, parse_constant=_refuse_constant)
    if _SURROGATE_ESCAPE.search(text):
        _refuse_lone_surrogates(text)
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _refuse_lone_surrogates(text: str) -> None:
    """Checks the text rather than the value, because a duplicate key may have replaced the value that has one."""
    for string in _WHOLE_STRING.finditer(text):
        if _SURROGATE_ESCAPE.search(string[0]):
            try:
                json.loads(string[0]).encode()
            except UnicodeEncodeError:
                raise ValueError("a lone surrogate, which UTF-8 cannot carry") from None


def _nesting(text: str) -> int:
    """The deepest level of brackets."""
    depth = deepest = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        bracket = match[0]
        if bracket in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif bracket in "]}":
            depth -= 1
    return deepest


def _without_leniencies(text: str) -> str:
    """
    *text* with comments replaced by blanks and unknown escapes (`\\x` for `x`) resolved.

    Raises:
        ValueError: A `\\u` lacks its four digits.
    """
    return _STRING_OR_COMMENT.sub(lambda token: " " if token["comment"] else _ESCAPE.sub(_strict, token[0]), text)


def _strict(escape: re.Match[str]) -> str:
    if escape["known"]:
        return escape[0]
    if escape["other"] == "u":  # otherwise the digits after another escape could be taken for its own
        raise ValueError(f"a \\u without four digits at character {escape.start()} of a string")
    return escape["other"]
