"""
Time limits of `async def` tasks.

The soft one is raised inside the coroutine, where it waits, so that it can clean up as a plain function can. The hard
one cancels it: there is no process to kill that others do not need.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

from sidekiq_celery.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

__all__ = ("within_limits",)


async def within_limits(coroutine: Coroutine[Any, Any, Any], hard: float | None, soft: float | None) -> Any:
    """
    The coroutine's end.

    Args:
        hard, soft: Seconds; None for no limit.

    Raises:
        TimeLimitExceeded: It was cancelled by the hard limit.
        SoftTimeLimitExceeded: It let that pass.
    """
    limited: Any = _SoftLimited(coroutine, soft) if soft else coroutine
    scope = asyncio.timeout(hard or None)
    try:
        async with scope:
            return await limited
    except TimeoutError:
        if scope.expired():
            raise TimeLimitExceeded(hard) from None
        raise


class _SoftLimited:
    """
    Awaits a coroutine, and raises `SoftTimeLimitExceeded` in it after so many seconds.

    The coroutine's task is cancelled to wake it, and the cancellation is turned into the error on its way in.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], seconds: float) -> None:
        self._coroutine = coroutine
        self._seconds = seconds
        self._is_due = False
        self._cancelled_before = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        timer = asyncio.get_running_loop().call_later(self._seconds, self._strike, task)
        try:
            return (yield from self._steps(task))
        finally:
            timer.cancel()

    def _strike(self, task: "asyncio.Task[Any]") -> None:
        self._is_due = True
        self._cancelled_before = task.cancelling()
        task.cancel()

    def _steps(self, task: "asyncio.Task[Any]") -> Generator[Any, Any, Any]:
        steps = self._coroutine.__await__()
        error: BaseException | None = None
        while True:
            try:
                awaited = next(steps) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            error = None
            try:
                yield awaited
            except asyncio.CancelledError as cancelled:
                error = cancelled
                if self._is_due:
                    self._is_due = False
                    # Where somebody else has cancelled it meanwhile, both came as one: that weighs more.
                    if task.uncancel() <= self._cancelled_before:
                        error = SoftTimeLimitExceeded()
            except BaseException as other:  # noqa: BLE001 - whatever is raised in the coroutine is its own to handle
                error = other
