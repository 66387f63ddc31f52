"""
Parses single values from flags, files and environment variables.

Each error message names the option and the values that it accepts.
"""

import re
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from typing import Any

import click

from sidekiq_py.clock import now_seconds, utc
from sidekiq_py.errors import ConfigError, JsonParseError
from sidekiq_py.wire.json_dialect import loads
from sidekiq_py.wire.json_writer import to_s

_UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST_SECONDS = 366 * 86400
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?[smhd]?)+", re.ASCII)
_SPAN_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)", re.ASCII)


def whole_number(value: Any, name: str) -> int:
    """A whole number, 0 or more; a string of digits is accepted, too."""
    return _integer(value, name, 0)


def positive_integer(value: Any, name: str) -> int:
    """A whole number, 1 or more; a string of digits is accepted, too."""
    return _integer(value, name, 1)


def positive_number(value: Any, name: str) -> float:
    """A number greater than 0, whole or not."""
    try:
        number = float(value) if not isinstance(value, bool) else 0.0
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < float("inf"):
        raise ConfigError(f"{name} is {value!r}; it must be a number greater than 0")
    return number


def one_of(value: Any, allowed: Collection[str], name: str) -> str | None:
    """One of the names in *allowed*; None stays None."""
    if value is not None and str(value) not in allowed:
        raise ConfigError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
    return None if value is None else str(value)


def texts(value: Any, name: str) -> tuple[str, ...]:
    """A list of strings, or a single one; None counts as an empty list."""
    if value is None:
        return ()
    entries = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(entry, list | tuple | dict) or entry is None for entry in entries):
        raise ConfigError(f"{name} is {value!r}; it must be a list of names")
    return tuple(map(to_s, entries))


class Seconds(click.FloatRange):
    """A number of seconds that a program can wait for: click's range takes nan, and the system cannot wait for inf."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Like that of the range, for up to a year."""
        seconds = float(super().convert(value, param, ctx))
        if not seconds <= _MOST_SECONDS:
            self.fail(f"{value} is not a number of seconds to wait; give at most {_MOST_SECONDS:,}", param, ctx)
        return seconds


def span_seconds(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    """Parse a duration such as `90`, `5m`, `1h30m` or `2d`; returns seconds."""
    if text is None:
        return None
    if not _SPAN.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not a duration; write seconds, or 5m, 1h30m, 2d")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _SPAN_PART.findall(text))


def epoch_seconds(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    """Parse a time given as epoch seconds, or in ISO 8601 with a zone; returns epoch seconds."""
    return None if text is None else _epoch_seconds(text, "or epoch seconds")


def _epoch_seconds(text: str, other_forms: str) -> float:
    if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time; write 2030-01-31T08:00:00Z, {other_forms}") from None
    if moment.tzinfo is None:
        raise click.BadParameter(f"{text!r} has no time zone; add Z for UTC, or +01:00")
    return moment.timestamp()


def time_given(at: float | None, interval: float | None) -> float | None:
    """
    The time that `--at` or `--in` gives, in epoch seconds; None if neither is given.

    Raises:
        UsageError: Both are given, or no calendar has the time after that interval.
    """
    if at is not None and interval is not None:
        raise click.UsageError("--in and --at both say when the job runs; give one of them")
    if interval is None:
        return at
    seconds = now_seconds() + interval
    if utc(seconds) is None:
        raise click.UsageError(f"--in is too far off: {interval / 86_400:,.0f} days; the last year is 9999")
    return seconds


def calendar_time(seconds: float) -> datetime:
    """
    The time of a job, which people will want to read, as a datetime.

    Raises:
        UsageError: No calendar has it.
    """
    moment = utc(seconds)
    if moment is None:
        raise click.UsageError(f"the time {seconds:g} is too far off; give epoch seconds, not milliseconds")
    return moment


def moment_seconds(ctx: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """Parse what `epoch_seconds` accepts, or `2h` (two hours ago), or `+2h` (in two hours); returns epoch seconds."""
    if text is None or not re.fullmatch(r"\+.*|\d.*[smhd]", text, re.ASCII):
        return None if text is None else _epoch_seconds(text, "epoch seconds, 2h (ago) or +2h (from now)")
    seconds = span_seconds(ctx, parameter, text.removeprefix("+")) or 0.0
    return now_seconds() + (seconds if text.startswith("+") else -seconds)


def json_arguments(text: str) -> list[Any]:
    """Parse the arguments of a job, a JSON array."""
    try:
        args = loads(text.encode(errors="surrogateescape"))
    except JsonParseError as error:
        why = str(error).removeprefix("not JSON: ")
        raise click.UsageError(
            f"""ARGS is not valid JSON: {why}. Put the array in single quotes, strings in double: '["bob", 5]'"""
        ) from error
    if not isinstance(args, list):
        given = text.strip()
        raise click.UsageError(f"ARGS is {given}, which is not an array; for a single argument write '[{given}]'")
    return args


def _integer(value: Any, name: str, least: int) -> int:
    number = least - 1
    if isinstance(value, int | str) and not isinstance(value, bool):
        with suppress(ValueError):
            number = int(value)
    if number < least:
        raise ConfigError(f"{name} is {value!r}; it must be a whole number, {least} or more")
    return number
