"""
The effects of a task's end: callbacks, errbacks, the next step of a workflow, its part of a chord.

When a task has ended whose run has `is_part`, `_run.task_run` collects these effects before it writes the result,
and adds them to the script that ends the job. Anything published within `buffering()` becomes part of that script, so
signatures can be called as usual: `apply_async` writes nothing by itself then, and `request.children` is complete when
the result is made.

Each kind of effect is a module, a `Flow`; `FLOWS` lists them in the order in which they run.
"""

from collections.abc import Callable
from typing import Any, Protocol

from sidekiq_celery import states
from sidekiq_celery._send import pipeline_buffer
from sidekiq_celery._wire.context import Context
from sidekiq_celery._wire.passed_values import handed_on
from sidekiq_celery._workflow import chain_continuation, chord_completion, links
from sidekiq_celery.contract import App
from sidekiq_py.extension import Effect


class Flow(Protocol):
    """One kind of effect of a task's end."""

    def after_success(self, app: App, request: Context, retval: Any) -> list[Effect]:
        """
        The effects if the task returned *retval*.

        Raises:
            Exception: This fails the task, and nothing from this flow is written.
        """

    def after_failure(
        self, app: App, request: Context, exc: BaseException, traceback: str | None, state: str
    ) -> list[Effect]:
        """The effects if the task has failed for good, or was revoked or has expired (*state* is REVOKED then)."""


FLOWS: tuple[Flow, ...] = (links, chain_continuation, chord_completion)


def after_success(app: App, request: Context, retval: Any) -> list[Effect]:
    """
    All effects of a success.

    Raises:
        Exception: This fails the task.
    """
    count = len(request.children)

    def effects_of(result: Any) -> list[Effect]:
        del request.children[count:]
        return _together(app, request, lambda flow: flow.after_success(app, request, result))

    return handed_on(effects_of, retval)


def after_failure(
    app: App, request: Context, exc: BaseException, traceback: str | None, state: str = states.FAILURE
) -> list[Effect]:
    """All effects of a failure, or of a revoke (*state* is REVOKED then)."""
    return _together(app, request, lambda flow: flow.after_failure(app, request, exc, traceback, state))


def _together(app: App, request: Context, effects_of: Callable[[Flow], list[Effect]]) -> list[Effect]:
    """The effects of all flows: first the jobs that they publish, then the effects that they return."""
    effects: list[Effect] = []
    with pipeline_buffer.buffering() as jobs:
        for flow in FLOWS:
            effects += effects_of(flow)
    return [*pipeline_buffer.commands(app, jobs, request), *effects]
