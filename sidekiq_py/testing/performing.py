"""Runs a job from its bytes, as a worker would, in the test's own thread or loop."""

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.errors import JobFailed, JobNotFoundError, WrongModeError
from sidekiq_py.extension import EndKind, JobEnd
from sidekiq_py.middleware import running
from sidekiq_py.middleware.running import ServerChain
from sidekiq_py.registry import JobDefinition, registry
from sidekiq_py.wire.payload import parse_job


def perform(raw: bytes, chain: ServerChain, *, is_scheduled: bool) -> Any:
    """
    Run a job in this thread.

    Args:
        raw: The job's payload.
        is_scheduled: True if the job was scheduled, and so goes through a second push.

    Raises:
        WrongModeError: The job is an `async def` and a loop is running here.
        JobNotFoundError: The job is not declared in this process.
        Exception: The exception that the job raised.
    """
    definition, payload = _decoded(raw, is_scheduled)
    if definition is None:
        return None
    if definition.is_async and running.is_in_loop():
        raise WrongModeError(
            f"{definition.name} is an `async def` and a loop is running here; use `await adrain()` or `aperform_one()`"
        )
    with program.extensions.run_without_end(payload), _ends_of(payload, raw):
        if not definition.is_async:
            return running.run(definition, payload, payload["queue"], chain)
        return asyncio.run(running.arun(definition, payload, payload["queue"], chain))


async def aperform(raw: bytes, chain: ServerChain, *, is_scheduled: bool) -> Any:
    """Like `perform`, within a running loop: an `async def` job runs on the loop, any other job in a thread."""
    definition, payload = _decoded(raw, is_scheduled)
    if definition is None:
        return None
    with program.extensions.run_without_end(payload), _ends_of(payload, raw):
        if definition.is_async:
            return await running.arun(definition, payload, payload["queue"], chain)
        return await asyncio.to_thread(running.run, definition, payload, payload["queue"], chain)


@contextmanager
def _ends_of(payload: dict[str, Any], raw: bytes) -> Iterator[None]:
    """Run the block, and report to the extensions that handle this job how it ended."""
    extensions = program.extensions
    if not extensions.handles(payload):
        yield
        return
    began = monotonic()

    def report_end(kind: EndKind, error: BaseException | None) -> None:
        now, dialect = now_seconds(), sync_client.current().detection.dialect(now_seconds())
        extensions.pretend(JobEnd(kind, payload, raw, payload["queue"], now, dialect, error, monotonic() - began))

    try:
        yield
    except Exception as error:
        report_end(_kind_of(payload, error), error)
        raise
    report_end("success", None)


def _kind_of(payload: Mapping[str, Any], error: Exception) -> EndKind:
    """What a worker would have done next with a failed job. A testing mode itself runs a job only once."""
    if payload.get("retry") is False:
        return "dropped"
    return "dead" if isinstance(error, JobFailed) or payload.get("retry") == 0 else "retry"


def perform_at_once(raw: bytes, chain: ServerChain) -> None:
    """
    Run a job where it is enqueued, and wait for it.

    The caller of a push cannot await the job, so an `async def` job that is enqueued from a running loop gets a thread
    with its own loop.
    """
    if not running.is_in_loop():
        perform(raw, chain, is_scheduled=False)
        return
    with ThreadPoolExecutor(1) as executor:
        executor.submit(copy_context().run, perform, raw, chain, is_scheduled=False).result()


def runs_elsewhere(payload: Mapping[str, Any]) -> bool:
    """True for a job of the Ruby side (`ruby_job`, `perform_later`) that is not declared here, too."""
    is_theirs = "wrapped" in payload or payload["class"] in registry.elsewhere
    return is_theirs and registry.find_for(dict(payload)) is None


def _decoded(raw: bytes, is_scheduled: bool) -> tuple[JobDefinition | None, dict[str, Any]]:
    """The job's definition and the payload to run; no definition if client middleware stopped the second push."""
    payload = parse_job(raw)
    if is_scheduled:
        repushed = sync_client.current().repush(payload)
        if repushed is None:
            return None, payload
        payload = parse_job(repushed.payload)
    definition = registry.find_for(dict(payload))
    if definition is None:
        wrapped = payload.get("wrapped")
        raise JobNotFoundError(str(wrapped or payload["class"]), is_active_job=bool(wrapped))
    return definition, payload
