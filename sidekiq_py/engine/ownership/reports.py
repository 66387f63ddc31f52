"""What the lease keeper and the housekeeper have to say, told in a thread for which they need not wait."""

import logging
from typing import Any

from sidekiq_py.engine.callback_thread import CallbackThread
from sidekiq_py.engine.ownership.owed_deaths import OwedDeath
from sidekiq_py.hooks import Hooks
from sidekiq_py.logs import log_context
from sidekiq_py.telemetry import RECOVER
from sidekiq_py.wire.payload import parse_job_or_empty

_log = logging.getLogger("sidekiq")


class OwnershipReports:
    """
    Calls handlers of the program in the callback thread.

    Args:
        callbacks: Where they are called.
        hooks: The program's error and death handlers.
    """

    def __init__(self, callbacks: CallbackThread, hooks: Hooks) -> None:
        self._callbacks = callbacks
        self._hooks = hooks

    def report(self, error: BaseException, context: dict[str, Any]) -> None:
        """An error that is nobody's."""
        self._callbacks.call(lambda: self._hooks.report(error, context))

    def warn(self, text: str) -> None:
        """A line for the log."""
        self._callbacks.call(lambda: _log.warning("%s", text))

    def recovered(self, owner: str, count: int, dead: int) -> None:
        """A dead owner's jobs went back."""
        if RECOVER.handlers:
            self._callbacks.call(lambda: RECOVER.emit({"owner": owner, "count": count, "dead": dead}))

    def dead_lettered(self, raw: bytes, error: BaseException, owed: OwedDeath | None) -> None:
        """A job went to the dead set, as its process died too often."""
        payload = parse_job_or_empty(raw)
        about: dict[str, Any] = {"context": "Poison pill", "jobstr": raw}
        if payload:
            about["job"] = payload

        def announce() -> None:
            with log_context(payload):
                self._hooks.report(error, about)
                if payload and owed is not None:
                    owed.announce(payload, error)

        self._callbacks.call(announce)

    def owed_death(self, owed: OwedDeath, payload: dict[str, Any], error: BaseException) -> None:
        """Another process has not called the death handlers."""
        self._callbacks.call(lambda: owed.announce(payload, error))
