"""
A `repr` that stops at a number of characters and at a depth, for messages, events and logs. It closes each bracket that
it has opened.

The texts are Celery's, since they are parts of its messages (`argsrepr`) and log lines. Source: Celery 5.7.0,
`celery.utils.saferepr`.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from enum import Enum, auto
from numbers import Number
from typing import Any

from sidekiq_celery.utils.serialization import safe_repr, unrepresentable
from sidekiq_celery.utils.text import truncate

__all__ = ("saferepr",)


# Those that are neither containers nor unusual numbers; most values are.
_SIMPLE = frozenset({int, float, bool, type(None), str, bytes})


class _Kind(Enum):
    OPEN = auto()
    CLOSE = auto()
    WHOLE = auto()
    CUT = auto()
    KEY = auto()


_Token = tuple[_Kind, Any]
_END: _Token = (_Kind.CLOSE, None)


def saferepr(o: Any, maxlen: int | None = None, maxlevels: int = 3, seen: Any = None) -> str:
    """
    Return a text for *o*, also if its `__repr__` or another method is broken.

    Args:
        maxlen: After this many characters, only brackets and quotes are closed; None for no limit.
        maxlevels: Containers below this depth are shown as `[...]`; 0 for no limit.
        seen: The ids of containers that are not to be shown again.
    """
    parts: list[str] = []
    closing: list[str] = []
    left = maxlen
    try:
        for kind, value in _tokens(o, maxlevels, list(seen or ())):
            if kind is _Kind.CLOSE:
                text = closing.pop()
            elif left is not None and left <= 0:
                parts += [", ...", *reversed(closing)]
                break
            elif kind is _Kind.OPEN:
                text, end = value
                closing.append(end)
            elif kind is _Kind.KEY:
                text = saferepr(value, left, maxlevels)
            elif kind is _Kind.CUT:
                text = _chars(value, left) if isinstance(value, bytes | str) else truncate(_plain(value), left or 0)
            else:
                text = value
            parts.append(text)
            if left is not None:
                left -= len(text)
    except Exception as error:  # noqa: BLE001 - any method of a container may be broken, or another thread changes it
        return unrepresentable(o, error)
    return "".join(parts)


def _tokens(o: Any, maxlevels: int, around: list[int]) -> Iterator[_Token]:
    # Not recursive: a result may be nested more deeply than Python's stack is.
    rest = [iter([(_Kind.CUT, o)])]
    while rest:
        kind, value = token = next(rest[-1], _END)
        if kind is _Kind.CLOSE:
            rest.pop()
            if rest:
                around.pop()
                yield token
        elif kind is not _Kind.CUT or type(value) in _SIMPLE or (brackets := _brackets(value)) is None:
            yield token
        elif maxlevels and len(rest) > maxlevels:
            yield _Kind.WHOLE, "...".join(brackets)
        elif id(value) in around:
            yield _Kind.WHOLE, f"<Recursion on {type(value).__name__} with id={id(value)}>"
        else:
            around.append(id(value))
            yield _Kind.OPEN, brackets
            rest.append(_pairs(value) if isinstance(value, dict) else _items(value))


def _brackets(value: Any) -> tuple[str, str] | None:
    """Those of a container, or None."""
    if isinstance(value, dict):
        return "{", "}"
    if isinstance(value, list):
        return "[", "]"
    if isinstance(value, tuple):
        return "(", ",)" if len(value) == 1 else ")"
    if isinstance(value, set | frozenset) and value:
        return ("{", "}") if type(value) is set else (f"{type(value).__name__}({{", "})")
    return None


def _items(values: Iterable[Any]) -> Iterator[_Token]:
    for number, value in enumerate(values):
        if number:
            yield _Kind.WHOLE, ", "
        yield _Kind.CUT, value


def _pairs(mapping: Mapping[Any, Any]) -> Iterator[_Token]:
    for number, (key, value) in enumerate(mapping.items()):
        if number:
            yield _Kind.WHOLE, ", "
        yield _Kind.KEY, key
        yield _Kind.WHOLE, ": "
        yield _Kind.CUT, value


def _plain(value: Any) -> str:
    if type(value) in _SIMPLE:
        return repr(value)
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}()"
    return str(value) if isinstance(value, Number) and not isinstance(value, Decimal) else safe_repr(value)


def _chars(value: bytes | str, left: int | None) -> str:
    if isinstance(value, str):
        return "'" + truncate(value, left or 0).replace("'", "\\'") + "'"
    shown = value[:left]
    try:
        # Celery leaves quotes as they are, but a text in which a secret is to be found must say where it ends.
        text = shown.decode().replace("'", "\\'")
    except UnicodeDecodeError:
        text = shown.hex()
    return f"b'{text}'" if len(shown) == len(value) else f"b'{text}...'"
