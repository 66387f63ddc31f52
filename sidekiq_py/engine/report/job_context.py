"""Adds the running job to every line that is logged while it runs, and applies the job's own log level."""

from collections.abc import Mapping
from typing import Any

from sidekiq_py.engine.report.job_log_level import LevelGate, find_gate, new_gate
from sidekiq_py.logs import level_number, log, running_payload


class JobContext:
    """
    The job context of one worker. Call `enter` and `leave` in the thread or asyncio task that runs the job.

    Attributes:
        gate: Drops lines that pass only because another job has a lower log level; None until a job has set a level.
    """

    def __init__(self) -> None:
        self.gate: LevelGate | None = None

    def enter(self, payload: Mapping[str, Any]) -> None:
        """Set *payload* as the job that runs in this thread or task."""
        running_payload.set(payload)
        if "log_level" in payload:
            self._use_level(payload["log_level"])

    def leave(self) -> None:
        """Clear the job of this thread or task."""
        running_payload.set(None)
        if self.gate is not None:
            self.gate.leave()

    def _use_level(self, name: object) -> None:
        level = level_number(name)
        if level is None:
            log.warning("Invalid log level: %r", name)
            return
        self.gate = find_gate() or new_gate()
        self.gate.enter(level)
