"""Formats texts for people: truncates, joins, indents."""

import io
import re
from collections.abc import Callable, Mapping
from pprint import pformat
from textwrap import fill
from typing import Any

__all__ = (
    "WhateverIO",
    "abbr",
    "abbrtask",
    "dedent",
    "dedent_initial",
    "ensure_newlines",
    "ensure_sep",
    "fill_paragraphs",
    "indent",
    "join",
    "match_case",
    "pluralize",
    "pretty",
    "remove_repeating",
    "remove_repeating_from_task",
    "simple_format",
    "str_to_list",
    "truncate",
)

RE_FORMAT = re.compile(r"%([%\w])")


def str_to_list(s: Any) -> Any:
    """Split a text at commas. Anything else stays as it is."""
    return s.split(",") if isinstance(s, str) else s


def dedent_initial(s: str, n: int = 4) -> str:
    """Remove the first *n* spaces from *s*, if it begins with that many."""
    return s.removeprefix(" " * n)


def dedent(s: str, sep: str = "\n") -> str:
    """Remove the first four spaces from each line."""
    return sep.join(map(dedent_initial, s.splitlines()))


def fill_paragraphs(s: str, width: int, sep: str = "\n") -> str:
    """Wrap each line at *width*."""
    return sep.join(fill(paragraph, width) for paragraph in s.split(sep))


def join(parts: list[str], sep: str = "\n") -> str:
    """Join the parts that are not empty."""
    return sep.join(filter(None, parts))


def ensure_sep(sep: str, s: str, n: int = 2) -> str:
    """Append *sep* to *s* until it occurs *n* times."""
    return s + sep * (n - s.count(sep))


def ensure_newlines(s: str, n: int = 2) -> str:
    """Append newlines to *s* until it has at least *n*."""
    return ensure_sep("\n", s, n)


def abbr(S: str | None, max: int, ellipsis: str | bool = "...") -> str:
    """Shorten *S* to at most *max* characters."""
    if S is None:
        return "???"
    if len(S) <= max:
        return S
    return S[: max - len(ellipsis)] + ellipsis if isinstance(ellipsis, str) and ellipsis else S[:max]


def abbrtask(S: str | None, max: int) -> str:
    """Shorten the module in a task's name."""
    if S is None or len(S) <= max:
        return abbr(S, max)
    module, _, name = S.rpartition(".")
    return f"{abbr(module, max - len(name) - 3, False)}[.]{name}"


def indent(t: str, indent: int = 0, sep: str = "\n") -> str:
    """Indent each line by *indent* spaces."""
    return sep.join(" " * indent + line for line in t.split(sep))


def truncate(s: str, maxlen: int = 128, suffix: str = "...") -> str:
    """Cut *s* after a word."""
    return s[:maxlen].rsplit(" ", 1)[0] + suffix if maxlen and len(s) >= maxlen else s


def pluralize(n: float, text: str, suffix: str = "s") -> str:
    """Append *suffix* to *text* unless *n* is one."""
    return text if n == 1 else text + suffix


def pretty(value: Any, width: int = 80, nl_width: int = 80, sep: str = "\n", **kw: Any) -> str:
    """Format a value for a console. Dicts and tuples start on a new line."""
    if isinstance(value, dict):
        return f"{sep} {pformat(value, 4, nl_width)[1:]}"
    if isinstance(value, tuple):
        return f"{sep}    {pformat(value, width=nl_width, **kw)}"
    return pformat(value, width=width, **kw)


def match_case(s: str, other: str) -> str:
    """Return *s* in upper case if *other* is, else in lower case."""
    return s.upper() if other.isupper() else s.lower()


def simple_format(
    s: str, keys: Mapping[str, str | Callable[[], str]], pattern: re.Pattern[str] = RE_FORMAT, expand: str = r"\1"
) -> str:
    """
    Replace each `%x` in *s* with the entry for `x` in *keys*; `%%` is a percent sign.

    Raises:
        ValueError: A key is unknown.
    """
    if not s:
        return s
    known = {"%": "%", **keys}

    def resolve(match: re.Match[str]) -> str:
        key = match.expand(expand)
        if key not in known:
            raise ValueError(f"Unknown format %{key} in {s!r}; write %%{key} for a percent sign before {key!r}")
        found = known[key]
        return found() if callable(found) else found

    return pattern.sub(resolve, s)


def remove_repeating_from_task(task_name: str, s: str) -> str:
    """Remove the module of *task_name* from *s* after its first mention, as in `tasks.add(2), mul(3)`."""
    module = str(task_name).rpartition(".")[0]
    return remove_repeating(f"{module}.", s) if module else s


def remove_repeating(substr: str, s: str) -> str:
    """Remove *substr* from *s* after its first mention, wherever it begins a name."""
    index = s.find(substr)
    if index < 0:
        return s
    cut = index + len(substr)
    return s[:cut] + re.sub(rf"(?<![\w.-]){re.escape(substr)}", "", s[cut:])


class WhateverIO(io.StringIO):
    """A `StringIO` that also accepts bytes."""

    def __init__(self, v: bytes | str | None = None, *a: Any, **kw: Any) -> None:
        super().__init__(v.decode() if isinstance(v, bytes) else v, *a, **kw)

    def write(self, data: bytes | str) -> int:
        """Write *data*, decoding bytes."""
        return super().write(data.decode() if isinstance(data, bytes) else data)
