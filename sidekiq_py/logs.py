"""
Ruby's log formats on the standard library's logging.

The formatters work with any handler, also in a program's own `dictConfig`:

    "formatters": {"sidekiq": {"()": "sidekiq_py.logs.JsonFormatter"}}

A line that is logged while a job runs includes the job's class, jid, bid and tags. `JobContextFilter` adds these for
other formatters. There are two generations of the text format: that of Sidekiq 6 and 7, and that of Sidekiq 8, which
puts the level first. Source: Sidekiq 6.4.1 and 8.1.7, logger.rb and job_logger.rb.

Unlike Ruby's, the text formats spell out control characters, so that a payload cannot forge a line: a message of
the logger `sidekiq` is one line, unless it is logged with `extra=SEVERAL_LINES`. A program's own messages stay as they
are.
"""

import json
import logging
import os
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import islice
from typing import Any

import orjson

from sidekiq_py import redaction, tid
from sidekiq_py.errors import SoftTimeLimitError
from sidekiq_py.wire.control_characters import escaped, escaped_lines
from sidekiq_py.wire.failure import error_class_name, error_text, shortened
from sidekiq_py.wire.json_writer import display_text, write_for_display
from sidekiq_py.wire.payload import parse_job_or_empty

log = logging.getLogger("sidekiq")
"""Takes this library's lines. Unlike other loggers, it reports an error of a program's log handler and goes on."""

# The payload of the job that the current thread or task is running.
running_payload: ContextVar[Mapping[str, Any] | None] = ContextVar("sidekiq_running_payload", default=None)

LOGGED_ATTRIBUTES = ("bid", "tags")
MOST_NAMED = 10
"""How many jobs a line about several names."""
_LONGEST_JID = 100
SEVERAL_LINES = {"sidekiq_has_lines": True}
"""`extra` of a log call whose message has several lines on purpose."""

# The additional fields of a line about an error, in `extra` and in JSON.
ERROR_FIELDS = ("error_class", "error_message", "job_class", "queue")

_LEVEL_NAMES = {10: "DEBUG", 20: "INFO", 30: "WARN", 40: "ERROR", 50: "FATAL"}
_LEVELS = {"debug": 10, "info": 20, "warn": 30, "warning": 30, "error": 40, "fatal": 50, "critical": 50}
_COLOURED = {
    name: f"\x1b[1;{colour}m{name:5}\x1b[0m"
    for name, colour in {"DEBUG": 32, "INFO": 34, "WARN": 33, "ERROR": 31, "FATAL": 35}.items()
}

_escaping_json = json.JSONEncoder(separators=(",", ":"), default=str)

# The last whole second that was formatted, and its text. Most lines fall in the same second as the line before.
_second: tuple[int, str] = (-1, "")


def _handle_although_handlers_raise(record: logging.LogRecord) -> None:
    # Whoever logs here has work to do: a stop that raised at its first line did not wait for its jobs.
    try:
        type(log).handle(log, record)
    except (SoftTimeLimitError, RecursionError):
        # The time limit was raised in the job while the job was logging, and the job must see it. A handler that logs
        # here itself would be reported, and go on, at each of its hundreds of levels.
        raise
    except Exception as error:  # noqa: BLE001
        # A job's error that is being logged would be printed with this one, although its message may be hidden.
        error.__suppress_context__ = True
        # Standard error may be closed; or it leads to the same handlers, as that of Celery's workers does.
        with suppress(Exception):
            _reporter.handleError(record)


_reporter = logging.Handler()
log.handle = _handle_although_handlers_raise  # type: ignore[method-assign]


@contextmanager
def log_context(payload: Mapping[str, Any] | None) -> Iterator[None]:
    """
    Add a job's context to everything that this thread or task logs in the block.

    Args:
        payload: The job's payload; empty or None if it could not be read.
    """
    token = running_payload.set(payload or None)
    try:
        yield
    finally:
        running_payload.reset(token)


def level_number(name: object) -> int | None:
    """
    The standard library's number for one of Ruby's log levels.

    Args:
        name: `debug`, `info`, `warn`, `error` or `fatal`, in upper or lower case, or Ruby's numbers 0 to 4 for them.

    Returns:
        None if *name* is not one of these.
    """
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name <= 4:
        return (name + 1) * 10
    return _LEVELS.get(display_text(name).lower())


def counted(number: int, one: str, many: str | None = None) -> str:
    """*number* with its noun: `1 job`, `1,200 processes`."""
    return f"1 {one}" if number == 1 else f"{number:,} {many or one + 's'}"


def counted_jobs(number: int, raws: Iterable[bytes]) -> str:
    """*number* jobs with the ids of the first ten, so that a search for one finds the line: `2 jobs (a1b2, c3d4)`."""
    found = [jid for raw in islice(raws, MOST_NAMED) if (jid := parse_job_or_empty(raw).get("jid"))]
    # Any program may push a job with an id of a megabyte.
    jids = [display_text(jid)[:_LONGEST_JID] for jid in found]
    rest = f" and {number - len(jids):,} more" if number > len(jids) else ""
    return counted(number, "job") + (f" ({', '.join(jids)}{rest})" if jids else "")


def iso_milliseconds(now: float) -> str:
    """*now*, in seconds since the epoch, as `2026-11-20T07:42:00.123Z`."""
    global _second
    whole = int(now)
    second, text = _second
    if second != whole:
        text = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(whole))
        _second = (whole, text)
    return f"{text}{int((now - whole) * 1000):03d}Z"


def job_fields(
    payload: Mapping[str, Any], generation: int, attributes: Iterable[str] = LOGGED_ATTRIBUTES
) -> dict[str, Any]:
    """The fields that identify a job in log lines, in the order of that generation of Sidekiq."""
    get = payload.get
    if generation >= 8:
        fields = {"jid": get("jid"), "class": get("wrapped") or get("class")}
    else:
        fields = {"class": get("display_class") or get("wrapped") or get("class"), "jid": get("jid")}
    for attribute in attributes:
        if attribute in payload:
            fields[attribute] = redaction.current().part(payload, attribute)
    return fields


def job_text(raw: bytes, most: int | None = None) -> str:
    """
    A job's bytes as text for a log line, after redaction.

    Args:
        most: Cut the text off after so many characters.
    """
    policy, payload = redaction.current(), parse_job_or_empty(raw)
    text = _json(policy.apply(payload)) if payload else policy.mask_text(raw.decode(errors="replace"))
    return redaction.REDACTED if text is None else text[:most]


def error_fields(error: BaseException, payload: Mapping[str, Any] | None) -> dict[str, str]:
    """
    The `ERROR_FIELDS` of an error after redaction, for the `extra` of a log call.

    Args:
        payload: The payload of the job that raised it; None if there is no job, or it could not be read.
    """
    redacted = redaction.current().error(error, payload)
    fields = {"error_class": error_class_name(error), "error_message": shortened(error_text(redacted))}
    job = payload or {}
    job_class = job.get("display_class") or job.get("wrapped") or job.get("class")
    if job_class is not None:
        fields["job_class"] = display_text(job_class)
    if job.get("queue") is not None:
        fields["queue"] = display_text(job["queue"])
    return fields


class LineFormatter(logging.Formatter):
    """
    Base of all formats: one line of facts, then the message, then a traceback if there is one.

    Except in JSON, control characters are spelled out as the head of this module says.

    Args:
        generation: The major version of Sidekiq whose format to write.
        attributes: Payload keys to show besides class and jid, if the payload has them. Sidekiq 8 has the setting
            `logged_job_attributes` for this.
    """

    def __init__(self, generation: int = 7, attributes: Iterable[str] = LOGGED_ATTRIBUTES) -> None:
        super().__init__()
        self.generation = generation
        self.attributes = tuple(attributes)

    def format(self, record: logging.LogRecord) -> str:
        """The whole text of *record*, without a trailing newline."""
        job = record.__dict__.get("sidekiq_job") or running_payload.get()
        elapsed = record.__dict__.get("sidekiq_elapsed")
        message = record.__dict__.get("sidekiq_message") or record.getMessage()
        return self.line(
            _LEVEL_NAMES.get(record.levelno, record.levelname),
            record.created,
            "" if job is None else self.context(job, elapsed),
            self._with_traceback(message, record, job),
        )

    def context(self, payload: Mapping[str, Any], elapsed: float | None) -> str:
        """
        The text about a job, ready for `line`.

        Args:
            elapsed: How long the job ran, in seconds rounded to 3 decimals; None while it runs.
        """
        get = payload.get
        if self.generation >= 8:
            text = f" jid={_text(get('jid'))} class={_text(get('wrapped') or get('class'))}"
        else:
            job_class, jid = get("display_class") or get("wrapped") or get("class"), get("jid")
            text = f" class={display_text(job_class)}" if job_class is not None else ""
            if jid is not None:
                text += f" jid={display_text(jid)}"
        for attribute in self.attributes:
            if attribute in payload and (self.generation >= 8 or payload[attribute] is not None):
                text += f" {attribute}={_text(redaction.current().part(payload, attribute))}"
        text = escaped(text)
        return text if elapsed is None else f"{text} elapsed={elapsed}"

    def line(self, level: str, created: float, context: str, message: str) -> str:
        """
        Format one line.

        Args:
            level: Ruby's name for the level.
            created: Seconds since the epoch.
            context: The result of `context`; empty outside of a job.
        """
        raise NotImplementedError(f"{type(self).__name__} must say how a line is written")

    def _with_traceback(self, message: str, record: logging.LogRecord, job: Mapping[str, Any] | None) -> str:
        if not message.isprintable() and _is_ours(record.name):
            message = escaped_lines(message) if "sidekiq_has_lines" in record.__dict__ else escaped(message)
        extra = [escaped_lines(text) for text in (self._traceback(record, job), record.stack_info) if text]
        return "\n".join([message, *extra]) if extra else message

    def formatException(self, ei: Any) -> str:
        """A traceback in which no frame and no message is longer than it should be in a log."""
        parts = [shortened(part.removesuffix("\n")) for part in traceback.format_exception(*ei)]
        return "\n".join(parts)

    def _traceback(self, record: logging.LogRecord, job: Mapping[str, Any] | None) -> str | None:
        """The traceback of the record's error, without the error's text if the policy hides it in *job*."""
        if not record.exc_info or record.exc_info[1] is None:
            return record.exc_text
        error = record.exc_info[1]
        redacted = redaction.current().error(error, job)
        if redacted is not error:
            return self.formatException((type(redacted), redacted, record.exc_info[2]))
        if not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        return record.exc_text


class PrettyFormatter(LineFormatter):
    """Ruby's `Pretty` format, which is in colour from Sidekiq 8."""

    has_time = True
    colours: Mapping[str, str] = _COLOURED

    def line(self, level: str, created: float, context: str, message: str) -> str:
        """Time, pid, tid, job and message; the level comes first (Sidekiq 8) or after the job (6, 7)."""
        time = f"{iso_milliseconds(created)} " if self.has_time else ""
        facts = f"{time}pid={os.getpid()} tid={tid.current()}{context}"
        if self.generation >= 8:
            return f"{self.colours.get(level, level)} {facts}: {message}"
        return f"{facts} {level}: {message}"


class PlainFormatter(PrettyFormatter):
    """`PrettyFormatter` without colour."""

    colours = {}


class WithoutTimestampFormatter(PrettyFormatter):
    """`PrettyFormatter` without the time, for platforms that add it to every line themselves."""

    has_time = False


class JsonFormatter(LineFormatter):
    """
    Ruby's `JSON` format: one object per line, `{"ts", "pid", "tid", "lvl", "msg"}`, plus `ctx` while a job runs.

    A line about an error also has `error_class`, `error_message` and `error_backtrace`, and for a job's error
    `job_class` and `queue`. You can search and group by these fields; Ruby's lines only have text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The JSON object for *record*, with the facts about an error as separate fields."""
        line = super().format(record)
        fields = self._error_fields(record)
        return f"{line[:-1]},{_json(fields)[1:]}" if fields else line

    def _error_fields(self, record: logging.LogRecord) -> dict[str, str]:
        error = record.exc_info[1] if record.exc_info else None
        if error is None and "error_class" not in record.__dict__:
            return {}
        job = record.__dict__.get("sidekiq_job") or running_payload.get()
        fields = {} if error is None else error_fields(error, job)
        fields |= {name: record.__dict__[name] for name in ERROR_FIELDS if record.__dict__.get(name)}
        if record.exc_info:
            fields["error_backtrace"] = self._traceback(record, job) or ""
        return fields

    def _with_traceback(self, message: str, record: logging.LogRecord, job: Mapping[str, Any] | None) -> str:
        return message if record.stack_info is None else f"{message}\n{record.stack_info}"

    def context(self, payload: Mapping[str, Any], elapsed: float | None) -> str:
        """The object for the field `ctx`."""
        fields = job_fields(payload, self.generation, self.attributes)
        if elapsed is not None:
            fields["elapsed"] = elapsed
        return _json(fields)

    def line(self, level: str, created: float, context: str, message: str) -> str:
        """One JSON object."""
        head = f'{{"ts":"{iso_milliseconds(created)}","pid":{os.getpid()},"tid":"{tid.current()}","lvl":"{level}"'
        return f'{head},"msg":{_json(message)},"ctx":{context}}}' if context else f'{head},"msg":{_json(message)}}}'


class JobContextFilter(logging.Filter):
    """
    Adds `jid`, `job_class` and `tid` to every record, for formats such as `%(jid)s`. Outside of a job, the first two
    are empty.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes. Always returns True."""
        job = running_payload.get() or {}
        record.jid = escaped(display_text(job.get("jid") or ""))
        named = job.get("wrapped") or job.get("class") or record.__dict__.get("job_class")
        record.job_class = escaped(display_text(named or ""))
        record.tid = tid.current()
        return True


FORMATTERS: Mapping[str, type[LineFormatter]] = {
    "pretty": PrettyFormatter,
    "plain": PlainFormatter,
    "json": JsonFormatter,
    "without-timestamp": WithoutTimestampFormatter,
}
"""By the name of the format."""
FORMAT_NAMES = tuple(FORMATTERS)


def _is_ours(logger_name: str) -> bool:
    return logger_name == "sidekiq" or logger_name.startswith("sidekiq.")


def _text(value: Any) -> str:
    """*value* as Ruby's string interpolation shows it."""
    if value.__class__ is str:
        return value
    if value is None:
        return ""
    if isinstance(value, list):
        return ",".join(_text(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else display_text(value)


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value, default=str).decode()
    except TypeError:
        # A lone surrogate or an integer beyond 64 bits. The log line must be written anyway.
        try:
            return _escaping_json.encode(value)
        except ValueError:
            # An integer of more than 4,300 digits.
            return write_for_display(value)
