"""
The job object that Active Job puts into a payload's `args`, and the item that its adapter pushes.

The order of the keys matters, because the bytes must match: Rails writes `job_class` first and `enqueued_at` last,
followed since 7.1 by `scheduled_at`. Source: Rails 6.0 to 8.1, activejob/core.rb and queue_adapters/sidekiq_adapter.rb.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from math import floor
from time import gmtime, strftime
from typing import Any, NamedTuple

from sidekiq_py.active_job.rails import Rails
from sidekiq_py.errors import PayloadError

JobObject = dict[str, Any]

_NS = 1_000_000_000
_US = timedelta(microseconds=1)
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class Placement(NamedTuple):
    """
    Where and when a job should run.

    Args:
        queue: Its queue.
        priority: Stored for the Rails side; Sidekiq has no priorities.
        at_ns: When it is due, in nanoseconds since the epoch; None to run it at once.
    """

    queue: str
    priority: int | None = None
    at_ns: int | None = None

    @property
    def at(self) -> float | None:
        """When it is due, in seconds since the epoch."""
        return None if self.at_ns is None else self.at_ns / _NS


def push_item(
    job: Mapping[str, Any],
    placement: Placement,
    *,
    jid: str | None,
    wrapper: str,
    sidekiq_options: Mapping[str, Any],
    rails: Rails,
    now_ns: int,
    is_in_bulk: bool = False,
) -> dict[str, Any]:
    """
    The item for `Client.push`, with its keys in the order of that Rails release's adapter.

    Missing keys of the job object are filled in as Rails would, and keys that only the Ruby class knows are kept.

    Args:
        job: What the job object says about the job, and of its runs until now.
        jid: The id of the run that enqueues it again; None for a new job.
        wrapper: The payload's `class`.
        sidekiq_options: The options that the Ruby class declares with `sidekiq_options`.
        now_ns: Nanoseconds since the epoch.
        is_in_bulk: True for the form that `perform_all_later` pushes.
    """
    known: JobObject = {
        "job_class": job["job_class"],
        "job_id": job.get("job_id"),
        "provider_job_id": jid,
        "queue_name": placement.queue,
        "priority": placement.priority,
        "arguments": job.get("arguments"),
        "executions": job.get("executions"),
        "exception_executions": job.get("exception_executions"),
        "locale": job.get("locale") or "en",
        "timezone": job.get("timezone"),
        **_times(placement, now_ns, rails),
    }
    args = [{**known, **{key: value for key, value in job.items() if key not in known and key != "scheduled_at"}}]
    item = {**sidekiq_options, "queue": placement.queue}
    name = job["job_class"]
    is_by_setter = rails.pushes_by_setter and not is_in_bulk
    if is_by_setter:
        item |= {"wrapped": name, "args": args, "class": wrapper}
    else:
        item |= {"class": wrapper, "wrapped": name, "args": args}
    # The setter omits `at` for a job that is already due. Pushes without it schedule the job all the same.
    is_due = placement.at_ns is not None and placement.at_ns <= now_ns
    if placement.at is not None and not (is_by_setter and is_due):
        item["at"] = placement.at
    return item


def due_at_ns(wait: Any, wait_until: Any, now_ns: int) -> int | None:
    """
    The time given by `wait` or `wait_until`, in nanoseconds since the epoch; None to run at once.

    Args:
        wait: Seconds or a timedelta.
        wait_until: Seconds since the epoch or an aware datetime.

    Raises:
        PayloadError: Both are given, or one has another type.
    """
    if wait is not None and wait_until is not None:
        raise PayloadError("wait and wait_until both say when the job is due; give one of them")
    if isinstance(wait, timedelta):
        return now_ns + wait // _US * 1000
    if isinstance(wait, (int, float)):
        return now_ns + nanoseconds(wait)
    if isinstance(wait_until, datetime) and wait_until.tzinfo is not None:
        return (wait_until - _EPOCH) // _US * 1000
    if isinstance(wait_until, (int, float)):
        return nanoseconds(wait_until)
    if wait is None and wait_until is None:
        return None
    if wait is not None:
        raise PayloadError(f"wait is {wait!r}; give seconds or a timedelta")
    raise PayloadError(f"wait_until is {wait_until!r}; give epoch seconds or an aware datetime")


def nanoseconds(seconds: float) -> int:
    """Whole nanoseconds, rounded down from the float's exact value, as Ruby's `Time` and `iso8601(9)` do it."""
    return floor(Fraction(seconds) * _NS)


def utc_text(at_ns: int, *, has_fraction: bool) -> str:
    """Ruby's `Time#iso8601` in UTC for nanoseconds since the epoch, with nine decimals or none."""
    seconds, nanoseconds = divmod(at_ns, _NS)
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds)) + (f".{nanoseconds:09}Z" if has_fraction else "Z")


def _times(placement: Placement, now_ns: int, rails: Rails) -> JobObject:
    if not rails.has_scheduled_at:
        return {"enqueued_at": utc_text(now_ns, has_fraction=False)}
    due = None if placement.at_ns is None else utc_text(placement.at_ns, has_fraction=True)
    return {"enqueued_at": utc_text(now_ns, has_fraction=True), "scheduled_at": due}
