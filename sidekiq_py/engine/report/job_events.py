"""The events of one job's run, for the telemetry. Call these only where somebody listens: `if JOB_STOP.handlers: …`."""

from collections.abc import Mapping
from typing import Any

from sidekiq_py.clock import now_seconds
from sidekiq_py.telemetry import JOB_EXCEPTION, JOB_START, JOB_STOP, SETTLE, latency_seconds

Payload = dict[str, Any]


def started(payload: Payload, queue: str, identity: str) -> None:
    """A job is about to run in this thread or task."""
    latency = latency_seconds(payload, now_seconds())
    JOB_START.emit({"payload": payload, "queue": queue, "identity": identity, "latency_seconds": latency})


def stopped(payload: Payload, queue: str, identity: str, seconds: float) -> None:
    """It ended well, and its end has been handed in."""
    JOB_STOP.emit({"payload": payload, "queue": queue, "identity": identity, "seconds": seconds})


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
