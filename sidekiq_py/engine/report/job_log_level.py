"""
A log level for one job: the key `log_level` of its payload.

The standard library checks a logger's level first, and that level is the same for all threads. So while a job with a
lower level runs, the logger's level is lowered too, and the gate behind it drops the lines that other jobs did not ask
for. Source: Sidekiq 6.4.1, logger.rb, `log_at`.
"""

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar

JOB_LOGGER_NAME = "sidekiq.job"

_own_level: ContextVar[int | None] = ContextVar("sidekiq_job_log_level", default=None)


class LevelGate(logging.Filter):
    """
    Drops records below the level of the running job, or below the program's level if the job has none.

    Args:
        loggers: The loggers whose level is lowered while a job wants more than they let through.
    """

    def __init__(self, loggers: Sequence[logging.Logger]) -> None:
        super().__init__()
        self._loggers = loggers
        self._lock = threading.Lock()
        self._wanted: Counter[int] = Counter()
        self._usual: list[tuple[logging.Logger, int, int]] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """True if *record* may pass."""
        return self.allows(record.levelno)

    def allows(self, level: int) -> bool:
        """True if the current thread or task may log at *level*."""
        if not self._usual:
            return True
        own = _own_level.get()
        return level >= (self._usual[0][2] if own is None else own)

    def enter(self, level: int) -> None:
        """Let the running job log at *level* until `leave`."""
        self.leave()
        _own_level.set(level)
        with self._lock:
            if not self._wanted:
                self._usual = [(logger, logger.level, logger.getEffectiveLevel()) for logger in self._loggers]
            self._wanted[level] += 1
            self._open()

    def leave(self) -> None:
        """End the running job's level. Does nothing if the job had no level of its own."""
        level = _own_level.get()
        if level is None:
            return
        _own_level.set(None)
        with self._lock:
            self._wanted[level] -= 1
            self._wanted += Counter()
            if self._wanted:
                self._open()
                return
            for logger, usual, _ in self._usual:
                logger.setLevel(usual)
            self._usual = []

    def _open(self) -> None:
        for logger, _, effective in self._usual:
            logger.setLevel(min(effective, *self._wanted))


def handlers_of(logger: logging.Logger) -> list[logging.Handler]:
    """The handlers that receive what *logger* logs: its own, and those of its ancestors."""
    handlers = [*logger.handlers]
    while logger.propagate and logger.parent is not None:
        logger = logger.parent
        handlers += logger.handlers
    return handlers


def find_gate() -> LevelGate | None:
    """The gate that the job log's records pass, or None if there is none yet."""
    logger = logging.getLogger(JOB_LOGGER_NAME)
    gates = [gate for place in (logger, *handlers_of(logger)) for gate in place.filters if isinstance(gate, LevelGate)]
    return gates[0] if gates else None


def new_gate() -> LevelGate:
    """Put a gate on our own loggers, for a program that has set up its logging itself."""
    ours, jobs = logging.getLogger("sidekiq"), logging.getLogger(JOB_LOGGER_NAME)
    gate = LevelGate([ours, jobs])
    ours.addFilter(gate)
    jobs.addFilter(gate)
    return gate
