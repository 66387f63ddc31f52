"""
The lines `start`, `done` and `fail` of every job.

Two lines a job are a good part of what a short job costs, so there are two ways. When a line can reach nothing but one
`LineHandler`, it is formatted and written straight away. When anybody else listens (handlers, filters or patches of the
program's own, such as an error tracker's) it goes through the standard library as any record does. Which way is
open is looked up once a second.

Two lines a job to a file cost some 10 µs of CPU by the first way and 28 by the second (`bench/job_log.py`). Source:
Sidekiq 6.4.1 and 8.1.7, job_logger.rb.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any

from sidekiq_py.engine.report.job_log_level import LevelGate
from sidekiq_py.engine.report.line_handler import LineHandler
from sidekiq_py.logs import job_fields, level_number, running_payload

JOB_LOGGER_NAME = "sidekiq.job"

_log = logging.getLogger("sidekiq")


class JobLogger:
    """
    Says when a job starts and ends, and lets every line in between say whose it is.

    One run: `start`, then `done` or `fail`, and `leave` when nothing more will be said about the job. All four belong
    to the thread or the asyncio task that runs it.

    Args:
        is_on: False: no lines, only the context and the job's own level.
    """

    def __init__(self, *, is_on: bool = True) -> None:
        self._is_on = is_on
        self._logger = logging.getLogger(JOB_LOGGER_NAME)
        self._handler: LineHandler | None = None
        self._gate: LevelGate | None = None
        self._looked_at = -1

    def start(self, payload: Mapping[str, Any]) -> None:
        """The job *payload* starts in this thread or task."""
        running_payload.set(payload)
        if "log_level" in payload:
            self._use_level(payload["log_level"])
        if self._is_heard:
            self._say("start", payload, None)

    def done(self, elapsed_seconds: float) -> None:
        """It ended well."""
        if self._is_heard:
            self._say("done", running_payload.get() or {}, round(elapsed_seconds, 3))

    def fail(self, elapsed_seconds: float) -> None:
        """It raised, or was cut off."""
        if self._is_heard:
            self._say("fail", running_payload.get() or {}, round(elapsed_seconds, 3))

    @property
    def _is_heard(self) -> bool:
        return self._is_on and self._logger.isEnabledFor(logging.INFO)

    def leave(self) -> None:
        """The thread or task has nothing to do with the job any more."""
        running_payload.set(None)
        if self._gate is not None:
            self._gate.leave()

    def _say(self, message: str, payload: Mapping[str, Any], elapsed: float | None) -> None:
        now = time.time()
        if int(now) != self._looked_at:
            self._look(int(now))
        if self._gate is not None and not self._gate.allows(logging.INFO):
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
        shown = " ".join(f"{key}={value}" for key, value in fields.items())
        marks = {"sidekiq_job": payload, "sidekiq_message": message, "sidekiq_elapsed": elapsed}
        self._logger.info("%s %s", message, shown, extra=marks)

    def _look(self, second: int) -> None:
        self._looked_at = second
        self._handler = _only_line_handler(self._logger)
        self._gate = _find_gate(self._logger)

    def _use_level(self, name: object) -> None:
        level = level_number(name)
        if level is None:
            _log.warning("Invalid log level: %r", name)
            return
        self._gate = _find_gate(self._logger) or _new_gate(self._logger)
        self._gate.enter(level)


def _chain_of(logger: logging.Logger) -> list[logging.Logger]:
    chain = [logger]
    while chain[-1].propagate and chain[-1].parent is not None:
        chain.append(chain[-1].parent)
    return chain


def _only_line_handler(logger: logging.Logger) -> LineHandler | None:
    """The handler that alone sees what *logger* logs, if that is ours and nobody looks over its shoulder."""
    handlers = [handler for link in _chain_of(logger) for handler in link.handlers]
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


def _find_gate(logger: logging.Logger) -> LevelGate | None:
    handlers = [handler for link in _chain_of(logger) for handler in link.handlers]
    gates = [gate for place in (logger, *handlers) for gate in place.filters if isinstance(gate, LevelGate)]
    return gates[0] if gates else None


def _new_gate(logger: logging.Logger) -> LevelGate:
    """A gate before our own loggers, for a program that set up its logging itself."""
    gate = LevelGate([_log, logger])
    _log.addFilter(gate)
    logger.addFilter(gate)
    return gate
