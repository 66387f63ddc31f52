"""Lets every line that is logged while a job runs say whose it is, and heeds the job's own log level."""

import logging
from collections.abc import Mapping
from typing import Any

from sidekiq_py.engine.report.job_log_level import LevelGate, find_gate, new_gate
from sidekiq_py.logs import level_number, running_payload

_log = logging.getLogger("sidekiq")


class JobContext:
    """
    Of one worker. Both calls belong to the thread or the asyncio task that runs the job.

    Attributes:
        gate: What keeps lines back that only the level of another job lets through; None while no job had one.
    """

    def __init__(self) -> None:
        self.gate: LevelGate | None = None

    def enter(self, payload: Mapping[str, Any]) -> None:
        """The job *payload* starts in this thread or task."""
        running_payload.set(payload)
        if "log_level" in payload:
            self._use_level(payload["log_level"])

    def leave(self) -> None:
        """The thread or task has nothing to do with the job any more."""
        running_payload.set(None)
        if self.gate is not None:
            self.gate.leave()

    def _use_level(self, name: object) -> None:
        level = level_number(name)
        if level is None:
            _log.warning("Invalid log level: %r", name)
            return
        self.gate = find_gate() or new_gate()
        self.gate.enter(level)
