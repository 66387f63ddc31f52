"""
One stream of events for measuring, tracing and logging what the library does.

    from sidekiq_py import telemetry

    def slow_jobs(name, measurements):
        if measurements["seconds"] > 60:
            print(measurements["payload"]["class"])

    telemetry.attach("slow jobs", ["sidekiq.job.stop"], slow_jobs)

Handlers attach to event names. The library emits events without knowing the handlers: the job log,
`sidekiq_py.metrics` and `sidekiq_py.contrib.statsd`, `opentelemetry` and `sentry` are handlers like your own. A handler
is called where the event happens, in the thread that runs the job, so it must be quick and must not block.

A handler that raises never affects a job. Its error goes to the error handlers (`on_error`): the first one immediately,
then at most one per minute. The handler stays attached, because the cause may be a network that recovers.

An event without handlers costs one check of `Event.handlers`. `docs/telemetry.md` lists all events.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from sidekiq_py.clock import monotonic
from sidekiq_py.errors import ConfigError, Shutdown, SoftTimeLimitError

Measurements = dict[str, Any]
Handler = Callable[[str, Measurements], Any]
Report = Callable[[BaseException, dict[str, Any]], None]

_log = logging.getLogger("sidekiq")

_REPORT_EVERY_SECONDS = 60.0
LEAST_MILLISECONDS = 100_000_000_000
"""
A timestamp above this is in milliseconds, as Sidekiq 8 writes them: as milliseconds the number is in 1973, as seconds
in the year 5138.
"""


def _log_only(error: BaseException, context: dict[str, Any]) -> None:
    _log.warning("%s: %s: %s", context["context"], type(error).__name__, error)


_report: Report = _log_only


class _Attachment:
    """One handler, its id and the events it is attached to."""

    __slots__ = ("_failures", "_quiet_until", "handler", "id", "names")

    def __init__(self, id: str, names: tuple[str, ...], handler: Handler) -> None:
        self.id = id
        self.names = names
        self.handler = handler
        self._failures = 0
        self._quiet_until = -math.inf

    def note_failure(self, name: str, error: BaseException) -> None:
        """Report an error of the handler, at most once a minute rather than for each of a million jobs."""
        self._failures += 1
        now = monotonic()
        if now < self._quiet_until:
            return
        self._quiet_until = now + _REPORT_EVERY_SECONDS
        times, self._failures = self._failures, 0
        often = "" if times == 1 else f", {times} times since the last report"
        context = {"context": f"The telemetry handler {self.id!r} failed on {name}{often}", "event": name}
        # A broken log must not fail the job either.
        with suppress(Exception):
            _report(error, context)


EVENTS: dict[str, "Event"] = {}
"""All events, by name."""


class Event:
    """
    One kind of event. Each is in `EVENTS`.

    Args:
        name: The name that handlers attach to.
        measurements: The names of the event's measurements, each with a description.
        happens_in_jobs: True if a job's own code may cause the event, so a time limit or a shutdown may interrupt the
            job during it.

    Attributes:
        handlers: The attached handlers. Check them before you gather measurements: `if PUSH.handlers: PUSH.emit({…})`.
        emit: Calls all handlers, in the order in which they were attached.
    """

    __slots__ = ("_happens_in_jobs", "emit", "handlers", "measurements", "name")

    def __init__(self, name: str, measurements: Mapping[str, str], *, happens_in_jobs: bool = False) -> None:
        self.name = name
        self.measurements = measurements
        self._happens_in_jobs = happens_in_jobs
        self.listen(())
        EVENTS[name] = self

    def __repr__(self) -> str:
        return f"<Event {self.name} handlers={[attachment.id for attachment in self.handlers]}>"

    def listen(self, handlers: "tuple[_Attachment, ...]") -> None:
        """Replace the handlers with these."""
        self.handlers = handlers
        self.emit: Callable[[Measurements], None] = self._one_calls(handlers[0]) if len(handlers) == 1 else self._call

    def _one_calls(self, attachment: _Attachment) -> Callable[[Measurements], None]:
        """`_call` for a single handler. It runs for every job, and the loop would be a fifth of its cost."""
        name, handler = self.name, attachment.handler

        def emit(measurements: Measurements) -> None:
            try:
                handler(name, measurements)
            except BaseException as error:  # noqa: BLE001 — raised again if it is meant for the job
                self._note_failure(attachment, error)

        return emit

    def _call(self, measurements: Measurements) -> None:
        for attachment in self.handlers:
            try:
                attachment.handler(self.name, measurements)
            except BaseException as error:  # noqa: BLE001 — as above
                self._note_failure(attachment, error)

    def _note_failure(self, attachment: _Attachment, error: BaseException) -> None:
        if self._happens_in_jobs and isinstance(error, (Shutdown, SoftTimeLimitError, KeyboardInterrupt)):
            # It was raised to interrupt the job that is being measured, so the job must receive it.
            raise error
        attachment.note_failure(self.name, error)


_PAYLOAD = "the parsed job; other handlers see the same dict, so do not change it"
_QUEUE = "name of the queue the job came from"
_JOB = {"payload": _PAYLOAD, "queue": _QUEUE}
_RUN = {**_JOB, "identity": "identity of the worker process, as in Redis's set `processes`"}
_ENDED_RUN = {**_RUN, "seconds": "how long it ran, including middleware"}

JOB_START = Event("sidekiq.job.start", _RUN)
JOB_STOP = Event("sidekiq.job.stop", _ENDED_RUN)
JOB_EXCEPTION = Event(
    "sidekiq.job.exception",
    {
        **_ENDED_RUN,
        "error": "the exception",
        "is_failure": "False if the job was only interrupted: by a shutdown, or an `IterableJob` that continues later",
    },
)
JOB_EXPIRED = Event("sidekiq.job.expired", _JOB)
PUSH = Event(
    "sidekiq.push",
    {
        "queue": "where the jobs went; None for scheduled jobs",
        "jids": "list of their ids",
        "payloads": "list of their bytes, as written",
        "is_scheduled": "True if they went to the set `schedule`",
    },
    happens_in_jobs=True,
)
FETCH = Event(
    "sidekiq.fetch",
    {"count": "how many jobs one round trip brought, 1 or more", "queues": "dict of how many came from which queue"},
)
SETTLE = Event(
    "sidekiq.settle",
    {
        "outcome": "`done`, `retry`, `dead`, `discarded`, `dropped` (failed, and without retries), `requeue` or "
        "`interrupted` (an `IterableJob` that continues later)",
        "payload": "the parsed job, or an empty dict if it could not be parsed",
        "raw": "the job's bytes, as they were fetched",
        "queue": _QUEUE,
    },
)
PROMOTE = Event(
    "sidekiq.promote",
    {
        "set": "`retry` or `schedule`",
        "moved": "how many due jobs went to their queues",
        "stopped": "how many a client middleware stopped",
        "unusable": "how many members were not usable jobs, and are in `dead` now",
    },
)
RECOVER = Event(
    "sidekiq.recover",
    {
        "owner": "the dead worker's name, `<identity>:<epoch>`",
        "count": "how many of its jobs are no longer in flight",
        "dead": "how many of these went to `dead`, because their process died too often",
    },
)
REDIS_OUTAGE = Event(
    "sidekiq.redis.outage",
    {
        "is_over": "False when Redis begins to fail, True when it works again",
        "seconds": "how long it has lasted; 0.0 at its beginning",
        "error": "the error with which it began; None at its end",
    },
)

QUEUE = Event(
    "sidekiq.queue",
    {
        "queue": "its name",
        "size": "jobs that wait",
        "latency_seconds": "how long the job that runs next has waited",
    },
)
BATCH = Event(
    "sidekiq.batch",
    {
        "bid": "its id",
        "event": "`created`, `complete`, `success` or `death`, as its callbacks",
    },
)

_attachments: dict[str, _Attachment] = {}
_lock = threading.Lock()


def attach(id: str, names: str | Iterable[str], handler: Handler) -> None:
    """
    Call `handler(name, measurements)` for every event with one of these names.

    Args:
        id: Identifies the handler for `detach` and in reports of its errors.
        names: One name from `EVENTS`, or several.
        handler: A plain function; not an `async def`.

    Raises:
        ConfigError: A name is unknown, the id is taken, or *handler* is not callable.
    """
    wanted = (names,) if isinstance(names, str) else tuple(names)
    for name in wanted:
        if name not in EVENTS:
            raise ConfigError(f"{name!r} is not a telemetry event; there are {', '.join(EVENTS)}")
    # Imported here, because it is heavier than everything else that a program imports to enqueue jobs.
    from inspect import iscoroutinefunction

    if not callable(handler) or iscoroutinefunction(handler):
        raise ConfigError(f"{handler!r} is not a telemetry handler; give a plain function of (name, measurements)")
    with _lock:
        if id in _attachments:
            raise ConfigError(f"a telemetry handler {id!r} is attached already; detach it first, or use another id")
        _attachments[id] = attachment = _Attachment(id, wanted, handler)
        for name in dict.fromkeys(wanted):
            EVENTS[name].listen((*EVENTS[name].handlers, attachment))


def detach(id: str) -> None:
    """Remove the handler with this id. Does nothing if there is none."""
    with _lock:
        attachment = _attachments.pop(id, None)
        for name in () if attachment is None else attachment.names:
            event = EVENTS[name]
            event.listen(tuple(other for other in event.handlers if other is not attachment))


def detach_all() -> None:
    """Remove all handlers."""
    for id in list(_attachments):
        detach(id)


def report_to(report: Report) -> None:
    """
    Set where errors of handlers are reported. `sidekiq_py.program` sets it to the program's error handlers when it is
    imported.
    """
    global _report
    _report = report


def latency_seconds(payload: Mapping[str, Any], now: float) -> float | None:
    """
    How many seconds a job has waited since it was last enqueued; None if its payload does not say.

    Args:
        now: Seconds since the epoch.
    """
    since = epoch_seconds(payload.get("enqueued_at"))
    # The clocks of two machines differ, so the difference can be negative.
    return None if since is None else max(0.0, now - since)


def epoch_seconds(stamp: Any) -> float | None:
    """
    Convert a payload's timestamp from any Sidekiq release (float seconds or whole milliseconds) to seconds. Returns
    None if it is not a timestamp since 1970.
    """
    if (type(stamp) is not float and type(stamp) is not int) or not 0 <= stamp < math.inf:
        return None
    try:
        return stamp / 1000 if stamp > LEAST_MILLISECONDS else float(stamp)
    except OverflowError:
        return None
