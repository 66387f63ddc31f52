"""
Runs one payload: sets the current job, calls the server middleware, and calls the job. The engine, inline runs and the
test helpers share it.

`run` runs plain functions in the calling thread; `arun` runs `async def` jobs on their event loop. Middleware of either
kind works around jobs of either kind (`mixed_chain`).
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from types import CoroutineType
from typing import Any

from sidekiq_py.errors import JobDeclarationError
from sidekiq_py.middleware import mixed_chain
from sidekiq_py.middleware.chain import Chain, ServerMiddleware
from sidekiq_py.registry import JobDefinition, Payload, never_stopping

ServerChain = Chain[ServerMiddleware]

# Payload, queue and deadline. The object for users (`running_job.py`) is created when it is asked for.
_current: ContextVar[tuple[Payload, str, float | None] | None] = ContextVar("sidekiq_current_job", default=None)


running_here = _current.get
"""Payload, queue and deadline of the job that runs in this thread or task, or None."""


def is_in_loop() -> bool:
    """True if an event loop runs in this thread, so that a coroutine must be awaited."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run(
    definition: JobDefinition,
    payload: Payload,
    queue: str,
    chain: ServerChain,
    stopping: Callable[[], bool] = never_stopping,
    deadline: float | None = None,
) -> Any:
    """
    Run a job that is not an `async def`, in this thread.

    Args:
        definition: The job's definition, from the registry.
        payload: The parsed payload; middleware may change it, including its args.
        queue: The queue it was fetched from.
        chain: The server middleware.
        stopping: Returns True once the process is about to stop; for `interrupted()`.
        deadline: Seconds since the epoch, for `current_job().deadline`.

    Returns:
        What the outermost middleware returned, or what the job returned if there is no middleware.
    """
    token = _current.set((payload, queue, deadline))
    try:
        call = definition.bind(payload, stopping)
        if not chain:
            result = call(*(payload.get("args") or ()))
        else:
            result = mixed_chain.invoke(
                chain.make(), definition.subject(call), payload, queue, lambda: call(*(payload.get("args") or ()))
            )
        if type(result) is CoroutineType:
            _refuse_coroutine(definition, result)
        return result
    finally:
        _current.reset(token)


async def arun(
    definition: JobDefinition,
    payload: Payload,
    queue: str,
    chain: ServerChain,
    stopping: Callable[[], bool] = never_stopping,
    deadline: float | None = None,
) -> Any:
    """Run an `async def` job on this loop; otherwise like `run`."""
    token = _current.set((payload, queue, deadline))
    try:
        call = definition.bind(payload, stopping)
        if not chain:
            result = await call(*(payload.get("args") or ()))
        else:
            result = await mixed_chain.ainvoke(
                chain.make(), definition.subject(call), payload, queue, lambda: call(*(payload.get("args") or ()))
            )
        if type(result) is CoroutineType:
            _refuse_coroutine(definition, result)
        return result
    finally:
        _current.reset(token)


def _refuse_coroutine(definition: JobDefinition, coroutine: Coroutine[Any, Any, Any]) -> None:
    """
    Raises:
        JobDeclarationError: The job has not run, or not all of it, because nothing awaits the coroutine. A job that
            decides its own outcome, as a Celery task does, decides about this, too.
    """
    if definition.decide_outcome is not None:
        return
    coroutine.close()
    raise JobDeclarationError(
        f"{definition.name}, or a middleware around it, returned a coroutine that nothing awaits; declare both as "
        "`async def`, also where a decorator wraps them, and await what they call"
    )
