"""
Runs a job where it is called: client middleware, conversion to bytes and back, server middleware, the job. It does not
use Redis.

Source: Sidekiq 8.1.7, job.rb, `perform_inline`.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from sidekiq_py import program
from sidekiq_py.client import outgoing, sync_client
from sidekiq_py.errors import JobDeclarationError
from sidekiq_py.middleware import running
from sidekiq_py.middleware.running import ServerChain
from sidekiq_py.registry import JobDefinition, Payload
from sidekiq_py.wire import payload as payloads
from sidekiq_py.wire.json_dialect import check_args, loads


def perform(definition: JobDefinition, args: list[Any], set_options: Mapping[str, Any] | None = None) -> bool | None:
    """
    Run a job in this thread.

    Returns:
        True, or None if a middleware stopped it.

    Raises:
        JobDeclarationError: It is an `async def` and a loop is running here.
    """
    if definition.is_async:
        if running.is_in_loop():
            raise JobDeclarationError(
                f"{definition.name} is an `async def` and a loop is running here; use `await ….aperform_inline(…)`"
            )
        return asyncio.run(aperform(definition, args, set_options))
    payload = _round_trip(definition, args, set_options)
    if payload is None:
        return None
    witness = _Witness()
    chain = witness.within(program.server_middleware, witness.see)
    with program.extensions.run_without_end(payload):
        running.run(definition, payload, payload["queue"], chain)
    return witness.has_run


async def aperform(
    definition: JobDefinition, args: list[Any], set_options: Mapping[str, Any] | None = None
) -> bool | None:
    """`perform` in a running loop: an `async def` job runs on the loop, any other job in a thread."""
    if not definition.is_async:
        return await asyncio.to_thread(perform, definition, args, set_options)
    payload = _round_trip(definition, args, set_options)
    if payload is None:
        return None
    witness = _Witness()
    chain = witness.within(program.server_middleware, witness.asee)
    with program.extensions.run_without_end(payload):
        await running.arun(definition, payload, payload["queue"], chain)
    return witness.has_run


class _Witness:
    """The innermost middleware. It records that the others let the job run, whatever they return."""

    def __init__(self) -> None:
        self.has_run: bool | None = None

    def within(self, chain: ServerChain, innermost: Callable[..., Any]) -> ServerChain:
        if not chain:
            self.has_run = True
            return chain
        whole = chain.copy()
        whole.add(innermost)
        return whole

    def see(self, job: Any, payload: Payload, queue: str, call_next: Callable[[], Any]) -> Any:
        self.has_run = True
        return call_next()

    async def asee(self, job: Any, payload: Payload, queue: str, call_next: Callable[[], Any]) -> Any:
        self.has_run = True
        return await call_next()


def _round_trip(definition: JobDefinition, args: list[Any], set_options: Mapping[str, Any] | None) -> Payload | None:
    """The payload as a worker would parse it; None if a client middleware stopped it."""
    if type(definition) is JobDefinition:
        raise JobDeclarationError(f"{definition.name} is implemented elsewhere; it can be enqueued here, but not run")
    pushing = sync_client.for_job(definition)
    dialect = pushing.detection.last
    order = outgoing.order_of_call(definition, args, dialect=dialect, set_options=set_options)
    payload = outgoing.completed(order, dialect=dialect, chain=pushing.middleware)
    if payload is None:
        return None
    outgoing.apply_strictness(payload)
    # A client middleware may have removed them; a worker would then run the job without arguments, as Ruby does.
    check_args(payload.get("args") or [])
    whole: Payload = loads(payloads.dump(payload, dialect=dialect))
    return whole
