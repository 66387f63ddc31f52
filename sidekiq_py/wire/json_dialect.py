"""
JSON as Ruby reads and writes it.

orjson is the fast path. An exact reader and writer take over where orjson would change a value: for integers beyond 64
bits, floats that Ruby writes differently, comments and other things that Ruby accepts, and everything that must be
refused with a reason.
"""

from itertools import chain
from typing import Any

import orjson

from sidekiq_py.errors import ArgumentTypeError, JsonParseError
from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.json_reader import MAX_NESTING, read
from sidekiq_py.wire.json_writer import named, write

# `args` is inside the payload's object, which uses one level.
ARGS_NESTING = MAX_NESTING - 1

_OPTIONS = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_RUBY = FloatText.RUBY
_LISTS = frozenset({list})
_SCALARS = frozenset({str, int, bool, type(None)})
_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_NINETEEN_DIGITS = b"0" * 19  # the shortest that may exceed 64 bits, where orjson turns an integer into a float

_orjson_loads = orjson.loads
_orjson_dumps = orjson.dumps


def loads(raw: bytes) -> Any:
    """
    Parse anything that some Ruby release reads.

    Integers of any length are exact. For duplicate keys, the last value is kept in the place of the first. `1E400` is
    infinite, as in Ruby. Lone surrogates are refused, because they could not be written again.

    Raises:
        JsonParseError: It is not JSON, or it is nested deeper than 100 levels.
    """
    if raw.translate(_DIGITS_ALIKE).rfind(_NINETEEN_DIGITS) >= 0:
        return read(raw)
    try:
        value = _orjson_loads(raw)
    except ValueError:
        return read(raw)
    if len(raw) > 2 * MAX_NESTING and raw.count(b"[") + raw.count(b"{") > MAX_NESTING and _nesting(value) > MAX_NESTING:
        raise JsonParseError(f"nested deeper than {MAX_NESTING} levels, which no Ruby release reads")
    return value


def loads_or_none(raw: bytes) -> Any:
    """What `loads` returns; None for bytes that it refuses, which another program may have written."""
    try:
        return loads(raw)
    except JsonParseError:
        return None


def dumps(value: Any, float_text: FloatText, place: str = "value", levels: int = MAX_NESTING) -> bytes:
    """
    The bytes of Ruby's `JSON.generate`.

    Args:
        value: Made of str, int, float, bool, None, list and dict with str keys; no subclasses.
        float_text: How to write floats.
        place: The value's name in messages.
        levels: How many levels of nesting it may have.

    Raises:
        ArgumentTypeError: A part has another type.
        ArgumentValueError: NaN, Infinity, a lone surrogate, or too many levels.
    """
    try:
        if _agrees(value, levels, float_text):
            return _orjson_dumps(value, option=_OPTIONS)
    except (_NotPlainError, TypeError):  # orjson's TypeError: an integer over 64 bits, a lone surrogate, a foreign key
        pass
    return write(value, float_text, place, levels)


def dumps_known(value: Any) -> bytes:
    """
    `dumps` for a value that is known to be JSON without floats and only a few levels deep.

    Raises:
        TypeError: There is a lone surrogate, or an integer beyond 64 bits.
    """
    return _orjson_dumps(value, option=_OPTIONS)


def dump_args(args: list[Any], float_text: FloatText, place: str = "args") -> bytes:
    """
    Check a job's arguments and write them.

    Args:
        args: The list of arguments.
        float_text: How to write floats.
        place: The list's name in messages.

    Raises:
        ArgumentTypeError: An argument has a type that JSON lacks; the message says which one.
        ArgumentValueError: An argument has a value that JSON cannot carry.
    """
    if type(args) is list:
        for item in args:
            kind = type(item)
            if kind is not str and kind is not int and kind is not bool and item is not None:
                break
        else:
            try:
                return _orjson_dumps(args)
            except TypeError:
                pass  # an integer beyond 64 bits, or a lone surrogate
    text = dumps(args, float_text, place, ARGS_NESTING)
    if type(args) is not list:
        raise ArgumentTypeError(f"{place} is {named(type(args))}; pass a list, [x] for a single argument", place)
    return text


def dump_args_many(arg_lists: list[list[Any]], float_text: FloatText) -> list[bytes]:
    """
    `dump_args` for the jobs of a bulk push, at a fraction of the cost for each.

    Args:
        arg_lists: A list of arguments for each job.
        float_text: How to write floats.

    Raises:
        ArgumentTypeError: An argument has a type that JSON lacks; the message names the job and the argument, as in
            `args[3][0]`.
        ArgumentValueError: An argument has a value that JSON cannot carry.
    """
    if _LISTS.issuperset(map(type, arg_lists)) and _SCALARS.issuperset(map(type, chain.from_iterable(arg_lists))):
        try:
            texts = _orjson_dumps(arg_lists)[2:-2].split(b"],[")
        except TypeError:
            texts = []
        if len(texts) == len(arg_lists):  # otherwise a string contains the separator
            return [b"[%b]" % text for text in texts]
    # The copy is compact; orjson's own results take a kilobyte each.
    return [b"%b" % dump_args(args, float_text, f"args[{index}]") for index, args in enumerate(arg_lists)]


def check_args(args: Any, place: str = "args") -> None:
    """
    Refuse arguments that a job cannot carry, like Sidekiq's `strict_args!` and JSON.

    Args:
        args: The list of arguments.
        place: The list's name in messages.

    Raises:
        ArgumentTypeError: An argument has a type that JSON lacks, or is of a subclass.
        ArgumentValueError: NaN, Infinity, a lone surrogate, a circle, or nested too deep.
    """
    dump_args(args, _RUBY, place)


class _NotPlainError(Exception):
    """The quick check found something that may not be JSON."""


def _agrees(value: Any, levels: int, style: FloatText) -> bool:
    """True if orjson writes *value* as Ruby does. Raises `_NotPlainError` if it is not plain JSON."""
    kind = type(value)
    if kind is list:
        items = value
    elif kind is dict:
        items = value.values()
    else:
        return _agrees_on_scalar(value, style)
    if levels <= 0:
        raise _NotPlainError
    agrees = True
    for item in items:
        kind = type(item)
        if kind is str or kind is int or kind is bool or item is None:
            continue
        if kind is float and style is _RUBY and 1e-4 <= item < 1e15:
            continue
        if not _agrees(item, levels - 1, style):
            agrees = False
    return agrees


def _agrees_on_scalar(value: Any, style: FloatText) -> bool:
    if type(value) is not float:
        if value is None or type(value) in _SCALARS:
            return True
        raise _NotPlainError
    if value - value != 0.0:
        raise _NotPlainError
    if style is _RUBY:
        return 1e-4 <= abs(value) < 1e15 or value == 0.0
    return abs(value) < 1e15 and value.is_integer()


def _nesting(value: Any) -> int:
    """How many levels of lists and dicts *value* has."""
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if type(item) is dict:
            children: Any = item.values()
        elif type(item) is list:
            children = item
        else:
            continue
        deepest = max(deepest, depth)
        waiting += [(child, depth + 1) for child in children if type(child) is list or type(child) is dict]
    return deepest
