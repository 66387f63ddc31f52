"""
A log level for one job: the key `log_level` of its payload.

The standard library asks a logger's level before anything else, and that is one for all threads. So while a job that
wants more runs, the logger lets more through, and the gate behind it stops what other jobs did not ask for. Source:
Sidekiq 6.4.1, logger.rb, `log_at`.
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
    Stops records below the level of the running job; without a level of its own, below the program's.

    Args:
        loggers: Those that are opened while a job wants more than they let through.
    """

    def __init__(self, loggers: Sequence[logging.Logger]) -> None:
        super().__init__()
        self._loggers = loggers
        self._lock = threading.Lock()
        self._wanted: Counter[int] = Counter()
        self._usual: list[tuple[logging.Logger, int, int]] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether *record* may pass."""
        return self.allows(record.levelno)

    def allows(self, level: int) -> bool:
        """Whether the running thread or task may log at *level*."""
        if not self._usual:
            return True
        own = _own_level.get()
        return level >= (self._usual[0][2] if own is None else own)

    def enter(self, level: int) -> None:
        """The running job logs at *level* until `leave`."""
        self.leave()
        _own_level.set(level)
        with self._lock:
            if not self._wanted:
                self._usual = [(logger, logger.level, logger.getEffectiveLevel()) for logger in self._loggers]
            self._wanted[level] += 1
            self._open()

    def leave(self) -> None:
        """The job is over; nothing happens if it had no level of its own."""
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


def chain_of(logger: logging.Logger) -> list[logging.Logger]:
    """*logger* and those above it whose handlers see what it logs."""
    chain = [logger]
    while chain[-1].propagate and chain[-1].parent is not None:
        chain.append(chain[-1].parent)
    return chain


def find_gate() -> LevelGate | None:
    """The gate that what the job log says comes to; None if there is none yet."""
    logger = logging.getLogger(JOB_LOGGER_NAME)
    handlers = [handler for link in chain_of(logger) for handler in link.handlers]
    gates = [gate for place in (logger, *handlers) for gate in place.filters if isinstance(gate, LevelGate)]
    return gates[0] if gates else None


def new_gate() -> LevelGate:
    """A gate before our own loggers, for a program that set up its logging itself."""
    ours, jobs = logging.getLogger("sidekiq"), logging.getLogger(JOB_LOGGER_NAME)
    gate = LevelGate([ours, jobs])
    ours.addFilter(gate)
    jobs.addFilter(gate)
    return gate
