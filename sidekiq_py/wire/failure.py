"""What a failed attempt writes to the payload."""

import binascii
import re
import zlib
from types import TracebackType
from typing import Any

from sidekiq_py.errors import PayloadError
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.json_dialect import dumps, loads
from sidekiq_py.wire.json_reader import read_integer

MESSAGE_CHARACTERS = 10_000
UNPRINTABLE_ERROR = "!!! ERROR MESSAGE THREW AN ERROR !!!"

# Bytes that are not UTF-8, as `os.fsdecode` and the error handler surrogateescape keep them.
_UNDECODED = re.compile("[\udc80-\udcff]+")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MIME_LINE = 60
# A backtrace is a few kilobytes. If a stored one inflates to more than this, a failing job did not write it.
_BACKTRACE_BYTES = 8 * 1024 * 1024


def error_class_name(error: BaseException) -> str:
    """The name of an exception on the Retries page: `ValueError`, `billing.errors.CardRefused`."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def error_text(error: BaseException) -> str:
    """
    An exception's message, or Ruby's fixed text if the message itself raises. For a group, which an `asyncio.TaskGroup`
    raises with a message that says nothing, also the class and message of the first exception in it.
    """
    try:
        if isinstance(error, BaseExceptionGroup):
            first = error.exceptions[0]
            return f"{error}: {error_class_name(first)}: {error_text(first)}"
        return str(error)
    except BaseException:  # noqa: BLE001 - a KeyboardInterrupt here would count as a stop and run the job again at once
        return UNPRINTABLE_ERROR


def scrub_message(text: str) -> str:
    """
    An error's message as it is stored: at most 10,000 characters, with U+FFFD for anything that UTF-8 cannot encode.

    Source: Sidekiq 4.2 to 8.1.7, job_retry.rb, `exception_message` and `process_retry`.
    """
    return _scrubbed(text[:MESSAGE_CHARACTERS])


def shortened(text: str) -> str:
    """An error's message, or a part of its traceback, as it is logged: about as long as a stored message at most."""
    if len(text) <= MESSAGE_CHARACTERS:
        return text
    return f"{text[:MESSAGE_CHARACTERS]}… ({len(text):,} characters)"


def compress_backtrace(lines: list[str], *, dialect: Dialect) -> str:
    """
    The text of `error_backtrace`: the lines as JSON, deflated, in base64. Up to 7.2.0 it has line breaks.

    Source: Sidekiq 6.0.2 to 8.1.7, job_retry.rb, `compress_backtrace`.
    """
    deflated = zlib.compress(dumps([_scrubbed(line) for line in lines], dialect.float_text))
    text = binascii.b2a_base64(deflated, newline=False).decode()
    if dialect.strict_base64:
        return text
    return "".join(text[start : start + _MIME_LINE] + "\n" for start in range(0, len(text), _MIME_LINE))


def expand_backtrace(value: object) -> list[str] | None:
    """
    The lines of an `error_backtrace` from any release, or `None` if it cannot be read. Ruby's Marshal (6.0.1) is not
    supported.

    Args:
        value: An array of lines (before 6.0), or the text of `compress_backtrace`.
    """
    lines: Any = value
    if isinstance(value, str):
        try:
            inflater = zlib.decompressobj()
            content = inflater.decompress(binascii.a2b_base64(value.encode()), _BACKTRACE_BYTES)
            lines = loads(content)
        except (ValueError, zlib.error, PayloadError):
            return None
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        return None
    return lines


def record_failure(
    payload: dict[str, Any],
    *,
    error_class: str,
    error_message: str,
    backtrace: list[str] | None,
    queue: str,
    dialect: Dialect,
    now: float,
    retry_option: object = None,
) -> int:
    """
    Write a failure to *payload*. Existing keys are updated in place, new ones are appended in Ruby's order.

    Args:
        payload: Parsed again from the stored bytes, so that changes by the job to its own copy are not kept.
        error_class: The exception's name for the Retries page.
        error_message: Its message, of any length.
        backtrace: Its lines, innermost first; kept only if the payload's `backtrace` asks for them.
        queue: The queue the job was fetched from; the payload's `retry_queue` takes precedence.
        dialect: The release to follow.
        now: Seconds since the epoch.
        retry_option: The declared job's own `retry`, used if the payload has none; `None` if the class is not known.

    Returns:
        `retry_count` after this failure: 0 for the first.

    Source: Sidekiq 6.4.1 and 8.1.7, job_retry.rb, `local` and `process_retry`.
    """
    if payload.get("retry") is None and retry_option is not None:
        payload["retry"] = retry_option
    payload["queue"] = payload.get("retry_queue") or queue
    payload["error_message"] = scrub_message(error_message)
    payload["error_class"] = _scrubbed(error_class)
    count = _count_failure(payload, dialect.stamp(now))
    lines = _wanted_lines(payload.get("backtrace"), backtrace)
    if lines is not None:
        payload["error_backtrace"] = (
            compress_backtrace(lines, dialect=dialect) if dialect.compresses_backtrace else lines
        )
    return count


def decrement_for_manual_retry(payload: dict[str, Any]) -> None:
    """
    Keep a manual retry from counting towards the limit.

    Source: Sidekiq 8.1.7, api.rb, `SortedEntry#retry`.
    """
    if type(payload.get("retry_count")) is int:
        payload["retry_count"] -= 1


def _count_failure(payload: dict[str, Any], stamp: float | int) -> int:
    count = payload.get("retry_count")
    if count is None or count is False:
        payload["failed_at"] = stamp
        payload["retry_count"] = 0
        return 0
    payload["retried_at"] = stamp
    # A text or float from another program must not stop the retry, as it would in Ruby.
    payload["retry_count"] = _whole_number(count) + 1
    return int(payload["retry_count"])


def _wanted_lines(option: Any, backtrace: list[str] | None) -> list[str] | None:
    if option is None or option is False or backtrace is None:
        return None
    return backtrace if option is True else backtrace[: _whole_number(option)]


def _whole_number(value: Any) -> int:
    """Ruby's `to_i` for a JSON value: 0 if it is not a number."""
    if isinstance(value, str):
        match = re.match(r"\s*(?:\+(?=\d))?(-?\d+)", value, re.A)
        return read_integer(match[1]) if match else 0
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


def _scrubbed(text: str) -> str:
    if text.isascii():
        return text
    # Like Ruby's `scrub`, one U+FFFD for all bytes of a character that was cut off.
    decoded = _UNDECODED.sub(lambda run: run[0].encode(errors="surrogateescape").decode(errors="replace"), text)
    return _LONE_SURROGATE.sub("\ufffd", decoded)


def backtrace_lines(error: BaseException) -> list[str]:
    """A traceback in Ruby's format, innermost line first: ``/app/jobs.py:12:in `HardWorker.perform'``."""
    lines: list[str] = []
    step: TracebackType | None = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        lines.append(f"{code.co_filename}:{step.tb_lineno}:in `{code.co_qualname}'")
        step = step.tb_next
    return lines[::-1]
