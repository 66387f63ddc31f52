"""Emits a job's telemetry events other than start and stop. Check for handlers first: `if SETTLE.handlers`."""

from collections.abc import Mapping
from typing import Any

from sidekiq_py.telemetry import JOB_EXCEPTION, SETTLE

Payload = dict[str, Any]


def raised(
    payload: Payload, queue: str, identity: str, seconds: float, error: BaseException, *, is_failure: bool
) -> None:
    """Emit `sidekiq.job.exception`: the job raised or was interrupted. Its outcome is decided after this."""
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
    """Emit that an attempt was settled. Successes are queued then, and written with others within milliseconds."""
    SETTLE.emit({"outcome": outcome, "payload": payload, "raw": raw, "queue": queue})
