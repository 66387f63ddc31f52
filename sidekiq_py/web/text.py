"""
Formats values for people.

Whatever a payload contains, the result can be encoded and contains no characters that deceive the reader.
"""

import json
import re
from datetime import datetime
from functools import cached_property
from typing import Any

from sidekiq_py.api import JobRecord
from sidekiq_py.clock import largest_units
from sidekiq_py.redaction import REDACTED, Redaction
from sidekiq_py.wire.control_characters import UNSAFE_IN_LINES, spelled_or_byte
from sidekiq_py.wire.json_writer import write_for_display

NOTHING = "\N{EN DASH}"
TOO_DEEP = "nested too deeply to be shown"
_LONGEST_NAME = 200
_LONGEST_SENT = 1000
_LONGEST_NUMBER = 40
_LONGEST_ARGUMENTS = 300
_LONGEST_TEXT = 100_000
LONGEST_WANTED = 500
"""The longest text in a field of a filter; more is cut off."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def plain(value: Any) -> Any:
    """Spell out the unsafe characters in a string; other values stay as they are. Every template uses it."""
    if isinstance(value, str) and UNSAFE_IN_LINES.search(value):
        # Text marked as HTML comes from our own templates, and its parts have already passed through here.
        return type(value)(UNSAFE_IN_LINES.sub(lambda found: spelled_or_byte(found[0]), value))
    return "" if value is None else value


def is_linkable(name: str) -> bool:
    """True if an address can carry the name of a queue: it is not too long, and it is UTF-8."""
    return len(name) <= _LONGEST_SENT and not _SURROGATE.search(name)


def is_sendable(name: str) -> bool:
    """True if a form can carry the name of a queue. In a form, unsafe characters are spelled out."""
    return 0 < len(name) <= _LONGEST_SENT and not UNSAFE_IN_LINES.search(name)


def _is_wanted(tag: str) -> bool:
    """True if the field of a filter can hold the tag."""
    return is_sendable(tag) and len(tag) <= LONGEST_WANTED and tag == tag.strip()


def whole_number(given: str, most_digits: int = 19) -> int | None:
    """What a user or a program has sent, as a whole number; None if it is anything else, or longer."""
    return int(given) if given.isascii() and given.isdigit() and len(given) <= most_digits else None


def number(value: float) -> str:
    """`1,234,567`; of a payload's number with very many digits, the beginning."""
    try:
        text = f"{value:,.0f}" if isinstance(value, float) else f"{value:,}"
    except ValueError:
        text = json_text(value)
    return shortened(text, _LONGEST_NUMBER)


def duration(seconds: float | None) -> str:
    """`4 ms`, `12.3 s`, `3 h 20 m`."""
    if seconds is None:
        return NOTHING
    size = abs(seconds)
    sign = "-" if seconds < 0 else ""
    if size < 0.0005:
        return "0 s"
    if size < 1:
        return f"{sign}{size * 1000:.0f} ms"
    if size < 60:
        return f"{sign}{size:.1f} s"
    return sign + _spelled_units(round(size))


def _spelled_units(seconds: int) -> str:
    return " ".join(f"{count:,} {unit}" for count, unit in largest_units(seconds))


def memory(kilobytes: int) -> str:
    """`512 MB`."""
    return f"{kilobytes / 1024:,.0f} MB" if kilobytes else NOTHING


def byte_size(count: int) -> str:
    """`812 bytes`, `1.2 MB`."""
    if count < 1024:
        return f"{count} bytes" if count != 1 else "1 byte"
    return f"{count / 1024:,.1f} kB" if count < 1024**2 else f"{count / 1024**2:,.1f} MB"


def stamp(at: datetime | None) -> str:
    """`2026-02-14 09:30:12 UTC`."""
    return NOTHING if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def iso(at: datetime) -> str:
    """The value of an HTML attribute `datetime`."""
    return at.isoformat()


def relative(at: datetime | None, now: datetime) -> str:
    """`in 16 s`, `2 h ago`; tenths of seconds would only flicker on a live page."""
    if at is None:
        return NOTHING
    seconds = round((at - now).total_seconds())
    if seconds == 0:
        return "now"
    text = _spelled_units(abs(seconds))
    return f"in {text}" if seconds > 0 else f"{text} ago"


def json_text(value: Any) -> str:
    """
    A value as JSON; integers of any length keep all their digits. A value that JSON lacks, such as a time in a Celery
    result, is shown as text.
    """
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return TOO_DEEP
    except ValueError:
        # Python refuses to convert an integer of more than 4,300 digits.
        return write_for_display(value)


def shortened(text: str, most: int) -> str:
    """Cut a long text, with an ellipsis at the end."""
    return text if len(text) <= most else f"{text[:most]}\N{HORIZONTAL ELLIPSIS}"


class ShownJob:
    """
    A job as a page may show it: the redaction policy has been applied to all of it.

    Args:
        record: The job.
        redaction: The policy.
    """

    def __init__(self, record: JobRecord, redaction: Redaction) -> None:
        self.record = record
        self._redaction = redaction

    @property
    def is_redacted(self) -> bool:
        """True if anything is hidden."""
        return self.redacted.item != self.record.item

    @cached_property
    def redacted(self) -> JobRecord:
        """The job without the hidden values."""
        return self.record.redacted(self._redaction)

    @property
    def title(self) -> str:
        """The job's class, or "no class" or "unreadable"; cut if it is long."""
        name = self.redacted.display_class or ("no class" if self.record.is_readable else "unreadable")
        return shortened(name, _LONGEST_NAME)

    @property
    def arguments(self) -> str:
        """The arguments on one line, cut if it is long."""
        if not self.record.is_readable:
            text = self.text
            return "hidden" if text is None else shortened(text, _LONGEST_ARGUMENTS)
        shown = self.redacted.display_args
        inner = json_text(shown)
        return shortened(inner[1:-1] if isinstance(shown, list) else inner, _LONGEST_ARGUMENTS)

    def tags(self, most: int) -> list[tuple[str, bool]]:
        """The first tags, each with whether a list can be filtered by it; those that are not text as JSON."""
        if self.redacted.item.get("tags") == REDACTED:
            return [(REDACTED, False)]
        return [
            (tag, _is_wanted(tag)) if isinstance(tag, str) else (json_text(tag), False)
            for tag in self.redacted.tags[:most]
        ]

    @property
    def error(self) -> str:
        """The job's last error as `Class: message`; empty if there is none."""
        hidden = self.redacted
        if hidden.error_class is None and hidden.error_message is None:
            return ""
        return ": ".join(part for part in (hidden.error_class, hidden.error_message) if part is not None)

    @property
    def text(self) -> str | None:
        """
        The payload as text, exactly as in Redis unless something is hidden; cut after 100,000 characters.

        Returns:
            None if the policy cannot be applied to it.
        """
        text = self._whole_text
        return None if text is None else shortened(text, _LONGEST_TEXT)

    @property
    def known_by(self) -> bytes:
        """The payload, or what is shown of it if something is hidden; see `Site.known_by`."""
        text = self._whole_text
        return self.record.value if text == self._raw else (text or "").encode(errors="backslashreplace")

    @property
    def _raw(self) -> str:
        return self.record.value.decode(errors="backslashreplace")

    @property
    def _whole_text(self) -> str | None:
        if self._redaction.is_empty:
            return self._raw
        if not self.record.item:
            return self._redaction.mask_text(self._raw)
        return json_text(self.redacted.item) if self.is_redacted else self._raw
