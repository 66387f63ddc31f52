"""
Runs server middleware of both kinds, plain and `async def`, around jobs of both kinds.

Around an `async def` job, an `async def` middleware is awaited on the loop. A plain middleware runs in a thread, where
its `call_next()` blocks until the job has really ended, instead of returning a coroutine that has not run. Around a
plain job, an `async def` middleware runs on its own loop in the job's thread. A middleware object can avoid both
detours: if it has an `async def acall` beside its plain `__call__`, the one that fits the job is called.
"""

import asyncio
import os
from asyncio import events, tasks
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from inspect import iscoroutinefunction
from typing import Any, TypeVar

T = TypeVar("T")
Middleware = Callable[..., Any]
_Outcome = tuple[Any, BaseException | None]

# Each running `async def` job may need a thread for its plain middleware. Threads are created on demand.
_MOST_THREADS = 4096

_threads: ThreadPoolExecutor | None = None


def invoke(
    chain: Sequence[Middleware], job: Any, payload: dict[str, Any], queue: str, innermost: Callable[[], Any]
) -> Any:
    """
    Call the chain around a plain job.

    Args:
        chain: The middleware, outermost first.
        job: Passed to each middleware as its *job* argument.
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
        # The job is a plain function: asyncio.run and Django's ORM must work in it, as they do without the middleware.
        with _outside_of_the_loop():
            return call_next()

    return drive(middleware(job, payload, queue, call_next_async))


async def ainvoke(
    chain: Sequence[Middleware],
    job: Any,
    payload: dict[str, Any],
    queue: str,
    innermost: Callable[[], Coroutine[Any, Any, Any]],
) -> Any:
    """Call the chain around an `async def` job; see `invoke`."""
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
    """True if the middleware is an `async def`, or an object whose `__call__` is one."""
    return iscoroutinefunction(middleware) or iscoroutinefunction(type(middleware).__call__)


def drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end in this thread. A loop that is running in the thread is blocked until then."""
    with _outside_of_the_loop():
        return asyncio.run(coroutine)


@contextmanager
def _outside_of_the_loop() -> Iterator[None]:
    """Hide the loop that is running in this thread, if there is one, so that the block may start another."""
    outer = events._get_running_loop()
    task = None if outer is None else asyncio.current_task(outer)
    # From Python 3.14 on, a thread has one current task for all its loops: the outer task would keep inner ones from
    # running.
    if outer is not None and task is not None:
        tasks._leave_task(outer, task)
    events._set_running_loop(None)
    try:
        yield
    finally:
        events._set_running_loop(outer)
        if outer is not None and task is not None:
            tasks._enter_task(outer, task)


class _InThread:
    """Runs one plain middleware in a thread, around the rest of an async chain."""

    def __init__(self, call_next: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._call_next = call_next
        self._loop = asyncio.get_running_loop()
        self._inner: asyncio.Task[_Outcome] | None = None
        self._cancelled: asyncio.CancelledError | None = None

    async def run(self, middleware: Middleware, job: Any, payload: dict[str, Any], queue: str) -> Any:
        context = copy_context()
        call: Future[Any] = Future()
        try:
            _executor().submit(
                fulfil, lambda: context.run(middleware, job, payload, queue, self._call_next_blocking), call
            )
        except RuntimeError:
            # The system allows no more threads. The call is queued nevertheless, but this job has failed.
            if call.cancel():
                raise
        outer = asyncio.wrap_future(call)
        while not outer.done():
            try:
                await asyncio.wait([outer])
            except asyncio.CancelledError as error:
                # The job is cancelled, perhaps again: by its time limit, then by a stop. The middleware's `call_next()`
                # raises then, so that the middleware can clean up, unless the job returns or raises something else.
                self._cancelled = error
                if self._inner is not None:
                    self._inner.cancel(*error.args)
        if self._cancelled is not None and (outer.cancelled() or isinstance(outer.exception(), asyncio.CancelledError)):
            raise self._cancelled
        return outer.result()

    def _call_next_blocking(self) -> Any:
        """The middleware's `call_next`, called in its thread. The job sees context variables that were set there."""
        context = copy_context()
        done: Future[Any] = Future()
        self._loop.call_soon_threadsafe(lambda: self._start(done), context=context)
        return done.result()

    def _start(self, done: "Future[Any]") -> None:
        task = self._loop.create_task(_outcome_of(self._call_next()))
        self._inner = task
        if self._cancelled is not None:
            task.cancel(*self._cancelled.args)
        task.add_done_callback(lambda task: _hand_over(task, done))


async def _outcome_of(coroutine: Coroutine[Any, Any, Any]) -> _Outcome:
    """
    Await a coroutine, and return its result and its error.

    A SystemExit that left the task would end the loop, and with it every other job.
    """
    try:
        return await coroutine, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 — see the docstring; it is raised again in the middleware
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


def fulfil(call: Callable[[], T], future: "Future[T]") -> None:
    """Make a call and give its outcome to a future, unless that was cancelled before."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 — whoever waits for the future gets it
        future.set_exception(error)
        # Otherwise the error's traceback would hold the future, which holds the error.
        del future


def _executor() -> ThreadPoolExecutor:
    global _threads
    if _threads is None:
        _threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="sidekiq.middleware")
    return _threads


def _forget_threads() -> None:
    global _threads
    _threads = None


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_threads)
