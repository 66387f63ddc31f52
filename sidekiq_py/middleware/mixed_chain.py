"""
Server middleware of both kinds around jobs of both kinds.

Around an `async def` job an `async def` middleware is awaited on the loop. A plain one gets a thread, in which its
`call_next()` blocks until the job has really ended: it must not be shown a coroutine that has only been made. Around a
plain job an `async def` middleware is driven to its end on a loop of its own, in the job's thread. An object may spare
both: one with an `async def acall` beside its plain `__call__` is asked in the job's own way.
"""

import asyncio
import os
from asyncio import events, tasks
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from inspect import iscoroutinefunction
from typing import Any

Middleware = Callable[..., Any]
_Outcome = tuple[Any, BaseException | None]

# Each running `async def` job may hold a thread for its plain middleware; threads are made as they are needed.
_MOST_THREADS = 4096

_threads: ThreadPoolExecutor | None = None


def invoke(
    chain: Sequence[Middleware], job: Any, payload: dict[str, Any], queue: str, innermost: Callable[[], Any]
) -> Any:
    """
    Call the chain around a plain job.

    Args:
        chain: Outermost first.
        job: What each middleware is shown.
        innermost: Runs the job.
    """
    if not chain:
        return innermost()
    middleware, rest = chain[0], chain[1:]

    def call_next() -> Any:
        return invoke(rest, job, payload, queue, innermost)

    if not is_async(middleware):
        return middleware(job, payload, queue, call_next)

    async def call_next_async() -> Any:
        return call_next()

    return drive(middleware(job, payload, queue, call_next_async))


async def ainvoke(
    chain: Sequence[Middleware],
    job: Any,
    payload: dict[str, Any],
    queue: str,
    innermost: Callable[[], Coroutine[Any, Any, Any]],
) -> Any:
    """Call the chain around an `async def` job; as `invoke`."""
    if not chain:
        return await innermost()
    middleware, rest = chain[0], chain[1:]

    def call_next() -> Coroutine[Any, Any, Any]:
        return ainvoke(rest, job, payload, queue, innermost)

    if is_async(middleware):
        return await middleware(job, payload, queue, call_next)
    if hasattr(middleware, "acall"):
        return await middleware.acall(job, payload, queue, call_next)
    return await _InThread(call_next).run(middleware, job, payload, queue)


def is_async(middleware: Middleware) -> bool:
    """Whether it is an `async def`, or an object whose `__call__` is one."""
    return iscoroutinefunction(middleware) or iscoroutinefunction(type(middleware).__call__)


def drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end in this thread, also if a loop is running in it: that one waits."""
    outer = events._get_running_loop()
    task = None if outer is None else asyncio.current_task(outer)
    # From Python 3.14 on a thread has one current task, whatever its loops: the outer one would lock inner ones out.
    if outer is not None and task is not None:
        tasks._leave_task(outer, task)
    events._set_running_loop(None)
    try:
        return asyncio.run(coroutine)
    finally:
        events._set_running_loop(outer)
        if outer is not None and task is not None:
            tasks._enter_task(outer, task)


class _InThread:
    """One plain middleware around the rest of an async chain."""

    def __init__(self, call_next: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._call_next = call_next
        self._loop = asyncio.get_running_loop()
        self._inner: asyncio.Task[_Outcome] | None = None
        self._is_cancelled = False

    async def run(self, middleware: Middleware, job: Any, payload: dict[str, Any], queue: str) -> Any:
        context = copy_context()
        outer = self._loop.run_in_executor(
            _executor(), context.run, middleware, job, payload, queue, self._call_next_blocking
        )
        try:
            return await asyncio.shield(outer)
        except asyncio.CancelledError:
            # The job is cancelled; the middleware then sees that as its call_next() raising, and may clean up.
            self._is_cancelled = True
            if self._inner is not None:
                self._inner.cancel()
            await asyncio.wait([outer])
            if not outer.cancelled():
                outer.exception()
            raise

    def _call_next_blocking(self) -> Any:
        """What the middleware calls, in its thread. Context variables that it has set hold in the job."""
        context = copy_context()
        done: Future[Any] = Future()
        self._loop.call_soon_threadsafe(lambda: self._start(done), context=context)
        return done.result()

    def _start(self, done: "Future[Any]") -> None:
        task = self._loop.create_task(_outcome_of(self._call_next()))
        self._inner = task
        if self._is_cancelled:
            task.cancel()
        task.add_done_callback(lambda task: _hand_over(task, done))


async def _outcome_of(coroutine: Coroutine[Any, Any, Any]) -> _Outcome:
    """What a coroutine came to. A SystemExit that left the task would end the loop and with it every other job."""
    try:
        return await coroutine, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 — as said above; the middleware sees it raised
        return None, error


def _hand_over(task: "asyncio.Task[_Outcome]", done: "Future[Any]") -> None:
    if task.cancelled():
        done.set_exception(asyncio.CancelledError())
        return
    result, error = task.result()
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)


def _executor() -> ThreadPoolExecutor:
    global _threads
    if _threads is None:
        _threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="sidekiq.middleware")
    return _threads


def _forget_threads() -> None:
    global _threads
    _threads = None


os.register_at_fork(after_in_child=_forget_threads)
