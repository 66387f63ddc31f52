"""
One job as stored in Redis, read-only.

The bytes can be anything: payloads of other releases or other products, or text that is not JSON at all. Nothing here
raises because of them.
"""

import math
from datetime import datetime
from functools import cached_property
from typing import Any

from sidekiq_py.clock import now_seconds, utc
from sidekiq_py.redaction import Redaction
from sidekiq_py.telemetry import LEAST_MILLISECONDS
from sidekiq_py.wire.dialect import NEW_WRAPPER, OLD_WRAPPER
from sidekiq_py.wire.failure import expand_backtrace
from sidekiq_py.wire.json_dialect import loads_or_none

_WRAPPERS = (OLD_WRAPPER, NEW_WRAPPER)
_MAILER_JOB, _MAIL_DELIVERY_JOB = "ActionMailer::DeliveryJob", "ActionMailer::MailDeliveryJob"
_MAX_DEPTH = 100


class JobRecord:
    """
    A waiting or running job.

    Args:
        value: The payload's exact bytes in Redis.
        queue: The queue where it was found; None takes the payload's.
    """

    def __init__(self, value: bytes, queue: str | None = None) -> None:
        self.value = value
        self._queue = queue

    @classmethod
    def of_payload(cls, payload: dict[str, Any], queue: str | None = None) -> "JobRecord":
        """A job with this payload but without bytes, as for one whose secrets were removed before it is shown."""
        record = JobRecord(b"{}", queue)
        record.__dict__["item"] = payload
        return record

    def redacted(self, policy: Redaction) -> "JobRecord":
        """A copy of the job without the values that *policy* hides."""
        if policy.is_empty or not self.item:
            return self
        return self.of_payload(policy.apply(self.item, self.klass, self.display_class), self.queue)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.display_class} jid={self.jid} queue={self.queue}>"

    def __getitem__(self, key: str) -> Any:
        return self.item[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The payload's value for *key*."""
        return self.item.get(key, default)

    @cached_property
    def item(self) -> dict[str, Any]:
        """The payload; empty if the bytes are not a JSON object."""
        payload = loads_or_none(self.value)
        return payload if isinstance(payload, dict) else {}

    @property
    def is_readable(self) -> bool:
        """True if the bytes are a JSON object."""
        return bool(self.item) or self.value.strip() == b"{}"

    @property
    def klass(self) -> str | None:
        """The class that the payload names; for Active Job, a wrapper."""
        return _text(self.item.get("class"))

    @property
    def jid(self) -> str | None:
        """The job's id."""
        return _text(self.item.get("jid"))

    @property
    def bid(self) -> str | None:
        """The id of its batch (Sidekiq Pro)."""
        return _text(self.item.get("bid"))

    @property
    def queue(self) -> str | None:
        """The queue it was found in or will go to."""
        return self._queue or _text(self.item.get("queue"))

    @property
    def args(self) -> list[Any]:
        """
        The arguments. For bytes that are not a JSON object, the only one is their text, so that a list of jobs shows
        it.
        """
        if not self.is_readable:
            return [self.value.decode(errors="replace")]
        args = self.item.get("args")
        return args if isinstance(args, list) else []

    @property
    def tags(self) -> list[str]:
        """The job's tags."""
        tags = self.item.get("tags")
        return tags if isinstance(tags, list) else []

    @property
    def created_at(self) -> datetime | None:
        """When it was first pushed or scheduled."""
        return moment(self.item.get("created_at")) or self.enqueued_at

    @property
    def enqueued_at(self) -> datetime | None:
        """When it was last put into a queue."""
        return moment(self.item.get("enqueued_at"))

    @property
    def failed_at(self) -> datetime | None:
        """When it first failed."""
        return moment(self.item.get("failed_at"))

    @property
    def retried_at(self) -> datetime | None:
        """When it last failed; None before the second failure."""
        return moment(self.item.get("retried_at"))

    @property
    def retry_count(self) -> int | None:
        """0 after the first failure; None before."""
        count = self.item.get("retry_count")
        return count if type(count) is int else None

    @property
    def error_class(self) -> str | None:
        """The class name of its last error."""
        return _text(self.item.get("error_class"))

    @property
    def error_message(self) -> str | None:
        """The message of its last error."""
        return _text(self.item.get("error_message"))

    @property
    def error_backtrace(self) -> list[str] | None:
        """The backtrace of its last error, if the job keeps backtraces."""
        return expand_backtrace(self.item.get("error_backtrace"))

    @property
    def latency(self) -> float:
        """Seconds since it was put into its queue, or created; 0.0 if the payload has neither time."""
        return latency(self.item, now_seconds())

    @property
    def display_class(self) -> str | None:
        """
        The class to show: for Active Job the job's own instead of the wrapper, for mails `Mailer#action`.

        Source: Sidekiq 8.1.7, api.rb, `JobRecord#display_class`.
        """
        shown = _text(self.item.get("display_class"))
        if shown:
            return shown
        if self.klass not in _WRAPPERS:
            return self.klass
        wrapped = self._wrapped
        if wrapped in (_MAILER_JOB, _MAIL_DELIVERY_JOB):
            names = [name for name in self._active_job_arguments[:2] if isinstance(name, str)]
            return "#".join(names) if len(names) == 2 else wrapped
        return wrapped

    @property
    def display_args(self) -> list[Any]:
        """
        The arguments to show: for Active Job the job's own without Rails' type markers; an encrypted last argument is
        hidden.

        Source: Sidekiq 8.1.7, api.rb, `JobRecord#display_args`.
        """
        stored = self.item.get("args")
        if stored is not None and not isinstance(stored, list):
            # A policy hides them all, or this is not a job. An empty list would say that it has none.
            return [stored]
        if self.klass in _WRAPPERS:
            return self._active_job_display()
        if self.item.get("encrypt") and self.args:
            return [*self.args[:-1], "[encrypted data]"]
        return self.args

    @property
    def _wrapped(self) -> str | None:
        # Programs other than Rails may leave `wrapped` out. Ruby runs such a job, too, by the name in its arguments.
        first = self.args[0] if self.args else None
        inner = first.get("job_class") if isinstance(first, dict) else first
        return _text(self.item.get("wrapped")) or _text(inner)

    @property
    def _active_job_arguments(self) -> list[Any]:
        inner = self.args[0] if self.args else None
        arguments = inner.get("arguments") if isinstance(inner, dict) else None
        return arguments if isinstance(arguments, list) else []

    def _active_job_display(self) -> list[Any]:
        arguments: list[Any] = _shown(self._active_job_arguments)
        if self._wrapped == _MAILER_JOB:
            return arguments[3:]
        if self._wrapped == _MAIL_DELIVERY_JOB:
            # MailerClass, action, "deliver_now", {params, args}
            options = arguments[3] if len(arguments) > 3 and isinstance(arguments[3], dict) else {}
            return [options.get("params"), options.get("args")]
        return arguments


def seconds_of(stamp: Any) -> float | None:
    """Convert a timestamp of any release to epoch seconds: float seconds, whole milliseconds, or either as text."""
    if isinstance(stamp, str):
        try:
            stamp = float(stamp)
        except ValueError:
            return None
    if type(stamp) not in (int, float) or (isinstance(stamp, float) and not math.isfinite(stamp)):
        return None
    try:
        return stamp / 1000 if stamp > LEAST_MILLISECONDS else float(stamp)
    except OverflowError:
        return None


def moment(stamp: Any) -> datetime | None:
    """Convert a timestamp of any release to a UTC datetime; None if it is not a timestamp."""
    seconds = seconds_of(stamp)
    return None if seconds is None else utc(seconds)


def latency(item: dict[str, Any], now: float) -> float:
    """Seconds from a payload's `enqueued_at` or `created_at` to *now*; 0.0 if it has neither."""
    since = seconds_of(item.get("enqueued_at"))
    if since is None:
        since = seconds_of(item.get("created_at"))
    return 0.0 if since is None else now - since


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _shown(value: Any, depth: int = 0) -> Any:
    """An Active Job argument without Rails' type markers; a GlobalID as its text."""
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, list):
        return [_shown(part, depth + 1) for part in value]
    if isinstance(value, dict):
        if "_aj_globalid" in value:
            return value["_aj_globalid"]
        plain = {key: _shown(part, depth + 1) for key, part in value.items() if not key.startswith("_aj_")}
        return plain["value"] if "_aj_serialized" in value and set(plain) == {"value"} else plain
    return value
