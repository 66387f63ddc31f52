"""Passes on what the lease keeper and the housekeeper report, in a thread that they need not wait for."""

from typing import Any

from sidekiq_py.engine.callback_thread import CallbackThread
from sidekiq_py.engine.ownership.pending_deaths import PendingDeath
from sidekiq_py.hooks import Hooks
from sidekiq_py.logs import log, log_context
from sidekiq_py.telemetry import RECOVER
from sidekiq_py.wire.payload import parse_job_or_empty


class OwnershipReports:
    """
    Calls the program's handlers in the callback thread.

    Args:
        callbacks: The thread that calls them.
        hooks: The program's error and death handlers.
    """

    def __init__(self, callbacks: CallbackThread, hooks: Hooks) -> None:
        self._callbacks = callbacks
        self._hooks = hooks

    def report(self, error: BaseException, context: dict[str, Any]) -> None:
        """Report an error that belongs to no job."""
        self._callbacks.call(lambda: self._hooks.report(error, context))

    def warn(self, text: str) -> None:
        """Log a warning."""
        self._callbacks.call(lambda: log.warning("%s", text))

    def recovered(self, owner: str, count: int, dead: int) -> None:
        """Emit the telemetry event for a dead owner's recovered jobs."""
        if RECOVER.handlers:
            self._callbacks.call(lambda: RECOVER.emit({"owner": owner, "count": count, "dead": dead}))

    def dead_lettered(self, raw: bytes, error: BaseException, death: PendingDeath | None) -> None:
        """Report a job that went to the dead set because its process died too often."""
        payload = parse_job_or_empty(raw)
        about: dict[str, Any] = {"context": "Poison pill", "jobstr": raw}
        if payload:
            about["job"] = payload

        def announce() -> None:
            with log_context(payload):
                self._hooks.report(error, about)
                if payload and death is not None:
                    death.announce(payload, error)

        self._callbacks.call(announce)

    def pending_death(self, death: PendingDeath, payload: dict[str, Any], error: BaseException) -> None:
        """Call the death handlers that another process left uncalled."""
        self._callbacks.call(lambda: death.announce(payload, error))
