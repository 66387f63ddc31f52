"""
What the end of a task sets off: callbacks, errbacks, the next step of a workflow, its part of a chord.

`_run.task_run` asks here when a task of which `is_part` is true has ended, before its result is written, and puts what
it gets into the script that ends the job. What is published within `buffering()` is part of it, so that signatures are
called as ever: `apply_async` writes nothing by itself then, and `request.children` is complete when the result is made.

Each kind of effect is a `Flow`; `FLOWS` is the list of them, asked in that order.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from sidekiq_celery._send import pipeline_buffer
from sidekiq_celery._send.running_task import payload_of
from sidekiq_celery._wire.context import Context
from sidekiq_celery._wire.passed_values import handed_on
from sidekiq_celery._workflow import chain_continuation, chord_completion, links
from sidekiq_celery.contract import App
from sidekiq_py.extension import Effect

__all__ = ("FLOWS", "TASK_HEADERS", "Flow", "after_failure", "after_success", "is_part")

TASK_HEADERS = frozenset({"callbacks", "chain", "chord", "errbacks", "flow"})
"""Keys of a payload's object `celery` that say that its end sets something off."""


class Flow(Protocol):
    """One kind of what a task's end sets off."""

    def after_success(self, app: App, request: Context, retval: Any) -> list[Effect]:
        """
        The task returned *retval*.

        Raises:
            Exception: The task has failed by that; nothing of this flow is written.
        """

    def after_failure(self, app: App, request: Context, exc: BaseException, traceback: str | None) -> list[Effect]:
        """The task has failed for good, was revoked or has expired."""


FLOWS: list[Flow] = [links.Links(), chain_continuation.Chains(), chord_completion.Chords()]


def is_part(task_headers: Mapping[str, Any]) -> bool:
    """
    Whether a task's end sets anything off.

    Args:
        task_headers: The object `celery` of its payload.
    """
    return not TASK_HEADERS.isdisjoint(task_headers)


def after_success(app: App, request: Context, retval: Any) -> list[Effect]:
    """
    All that a success sets off.

    Raises:
        Exception: The task has failed by that.
    """
    count = len(request.children)

    def effects_of(result: Any) -> list[Effect]:
        del request.children[count:]
        effects: list[Effect] = []
        with pipeline_buffer.buffering() as jobs:
            for flow in FLOWS:
                effects += flow.after_success(app, request, result)
        return [*pipeline_buffer.commands(app, jobs, follows=payload_of(request)), *effects]

    return handed_on(effects_of, retval)


def after_failure(app: App, request: Context, exc: BaseException, traceback: str | None) -> list[Effect]:
    """All that a failure sets off."""
    effects: list[Effect] = []
    with pipeline_buffer.buffering() as jobs:
        for flow in FLOWS:
            effects += flow.after_failure(app, request, exc, traceback)
    return [*pipeline_buffer.commands(app, jobs, follows=payload_of(request)), *effects]
