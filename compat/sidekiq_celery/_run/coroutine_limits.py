"""
Time limits for `async def` tasks.

The soft limit is raised inside the coroutine, where it is waiting, so that it can clean up as a plain function can. The
hard limit cancels the coroutine, because its process cannot be killed: other tasks run in it too.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Protocol

from sidekiq_celery.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded


class Report(Protocol):
    """Called when a limit has been reached."""

    def __call__(self, seconds: float, *, is_hard: bool) -> None: ...


async def within_limits(
    coroutine: Coroutine[Any, Any, Any], hard: float | None, soft: float | None, report: Report
) -> Any:
    """
    Await the coroutine within its time limits, and return its result.

    Args:
        hard, soft: Seconds; None for no limit.

    Raises:
        TimeLimitExceeded: The hard limit cancelled the coroutine.
        SoftTimeLimitExceeded: The soft limit passed, and the coroutine did not catch the error.
    """
    limited: Any = _SoftLimited(coroutine, soft, report) if soft else coroutine
    scope = asyncio.timeout(hard or None)
    try:
        async with scope:
            return await limited
    except TimeoutError:
        if scope.expired():
            report(hard or 0.0, is_hard=True)
            raise TimeLimitExceeded(hard) from None
        raise


class _SoftLimited:
    """
    Awaits a coroutine, and raises `SoftTimeLimitExceeded` in it after the given number of seconds.

    It cancels the coroutine's task to wake it, and replaces the cancellation with the error before the coroutine sees
    it.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], seconds: float, report: Report) -> None:
        self._coroutine = coroutine
        self._seconds = seconds
        self._report = report
        self._is_due = False
        self._cancelled_before = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        timer = asyncio.get_running_loop().call_later(self._seconds, self._cancel, task)
        try:
            return (yield from self._steps(task))
        finally:
            timer.cancel()

    def _cancel(self, task: "asyncio.Task[Any]") -> None:
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
                    # If other code has cancelled the task as well, both arrive as one cancellation, and that one wins.
                    if task.uncancel() <= self._cancelled_before:
                        error = SoftTimeLimitExceeded()
                        self._report(self._seconds, is_hard=False)
            except BaseException as other:  # noqa: BLE001 - the coroutine handles whatever is raised in it
                error = other
