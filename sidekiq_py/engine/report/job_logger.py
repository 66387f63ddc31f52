"""
Logs the lines `start`, `done` and `fail` of every job.

Two lines per job are a good part of the cost of a short job, so there is a fast path. If a line can reach only one
`LineHandler`, it is formatted and written directly. If the program has handlers, filters or patches of its own, such as
an error tracker's, the line goes through the standard library like any other record. Which path applies is checked once
a second.

Two lines per job, written to a file, cost some 10 µs of CPU on the fast path and 28 µs on the other
(`bench/job_log.py`). Source: Sidekiq 6.4.1 and 8.1.7, job_logger.rb.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any

from sidekiq_py import telemetry
from sidekiq_py.engine.report.job_context import JobContext
from sidekiq_py.engine.report.job_log_level import JOB_LOGGER_NAME, LevelGate, find_gate, handlers_of
from sidekiq_py.engine.report.line_handler import LineHandler
from sidekiq_py.logs import job_fields
from sidekiq_py.redaction import current
from sidekiq_py.telemetry import JOB_EXCEPTION, JOB_START, JOB_STOP, Measurements
from sidekiq_py.wire.control_characters import escaped

_MESSAGES = {JOB_START.name: "start", JOB_STOP.name: "done", JOB_EXCEPTION.name: "fail"}


class JobLogger:
    """
    Logs when the jobs of one worker start and end. It is a telemetry handler like any other.

    Args:
        context: The worker's job context.
        identity: The worker's identity. Jobs of another worker in this process are logged by that worker's own logger.
    """

    def __init__(self, context: JobContext, identity: str) -> None:
        self._context = context
        self._identity = identity
        self._logger = logging.getLogger(JOB_LOGGER_NAME)
        self._handler: LineHandler | None = None
        self._looked_at = -1

    def attach(self) -> None:
        """Start to log."""
        telemetry.attach(self._id, _MESSAGES, self)

    def detach(self) -> None:
        """Stop logging. Does nothing if it is not attached."""
        telemetry.detach(self._id)

    @property
    def _id(self) -> str:
        return f"sidekiq.job_log {self._identity}"

    def __call__(self, name: str, measurements: Measurements) -> None:
        """Handle the event that a job has started or ended."""
        if measurements["identity"] == self._identity and self._logger.isEnabledFor(logging.INFO):
            seconds = measurements.get("seconds")
            self._say(_MESSAGES[name], measurements["payload"], None if seconds is None else round(seconds, 3))

    def _say(self, message: str, payload: Mapping[str, Any], elapsed: float | None) -> None:
        now = time.time()
        if int(now) != self._looked_at:
            self._look(int(now))
        gate = self._context.gate
        if gate is not None and not gate.allows(logging.INFO):
            return
        handler = self._handler
        if handler is None:
            self._say_to_all(message, payload, elapsed)
            return
        formatter = handler.line_formatter
        handler.write_line(formatter.line("INFO", now, formatter.context(payload, elapsed), message))

    def _say_to_all(self, message: str, payload: Mapping[str, Any], elapsed: float | None) -> None:
        fields = job_fields(payload, 7)
        if elapsed is not None:
            fields["elapsed"] = elapsed
        # Other formatters may write the message as it is.
        shown = escaped(" ".join(f"{key}={value}" for key, value in fields.items()))
        # Other formatters may write every attribute of the record, so the payload is redacted here.
        marks = {"sidekiq_job": current().apply(payload), "sidekiq_message": message, "sidekiq_elapsed": elapsed}
        self._logger.info("%s %s", message, shown, extra=marks)

    def _look(self, second: int) -> None:
        self._looked_at = second
        self._handler = _only_line_handler(self._logger)
        self._context.gate = find_gate()


def _only_line_handler(logger: logging.Logger) -> LineHandler | None:
    """The only handler of *logger*, if it is ours and there are no filters or patches of the program; else None."""
    handlers = handlers_of(logger)
    if len(handlers) != 1 or type(handlers[0]) is not LineHandler or handlers[0].level > logging.INFO:
        return None
    filters = [*logger.filters, *handlers[0].filters]
    if any(not isinstance(own, LevelGate) for own in filters):
        return None
    patched = any(
        getattr(method, "__module__", None) != "logging"
        for method in (logging.Logger.handle, logging.Logger.callHandlers, logging.Logger.makeRecord)
    )
    return None if patched else handlers[0]
