"""What is told of a job's run besides its start and stop. To be called where somebody listens: `if SETTLE.handlers`."""

from collections.abc import Mapping
from typing import Any

from sidekiq_py.telemetry import JOB_EXCEPTION, SETTLE

Payload = dict[str, Any]


def raised(
    payload: Payload, queue: str, identity: str, seconds: float, error: BaseException, *, is_failure: bool
) -> None:
    """It raised, or was cut off; what becomes of it is decided next."""
    JOB_EXCEPTION.emit(
        {
            "payload": payload,
            "queue": queue,
            "identity": identity,
            "seconds": seconds,
            "error": error,
            "is_failure": is_failure,
        }
    )


def settled(outcome: str, payload: Mapping[str, Any], raw: bytes, queue: str) -> None:
    """An attempt's end has been handed in. Successes are written with others, within milliseconds."""
    SETTLE.emit({"outcome": outcome, "payload": payload, "raw": raw, "queue": queue})
