"""A job that fails, and what it fails with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sidekiq_py.outcome import DecideOutcome


@dataclass(frozen=True)
class FailingJob:
    """What `retry` asks of a declared job."""

    name: str = "FailingJob"
    options: Mapping[str, Any] = field(default_factory=dict)
    retry_in_block: Callable[[int, BaseException, dict[str, Any]], Any] | None = None
    exhausted_block: Callable[[dict[str, Any], BaseException], Any] | None = None
    decide_outcome: DecideOutcome | None = None


class Boom(Exception):
    """An error whose message may raise in turn."""

    def __init__(self, message: str = "boom", *, has_message: bool = True) -> None:
        super().__init__(message)
        self._has_message = has_message

    def __str__(self) -> str:
        if not self._has_message:
            raise RuntimeError("no message")
        return super().__str__()


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """*error* with a traceback of three frames, as if a job had raised it."""

    def innermost() -> None:
        if cause is not None:
            raise error from cause
        raise error

    def perform() -> None:
        innermost()

    try:
        perform()
    except BaseException as caught:  # noqa: BLE001
        return caught
    raise AssertionError("nothing was raised")
