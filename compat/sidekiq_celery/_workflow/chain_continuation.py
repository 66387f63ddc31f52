"""A chain's next step, called with the result of the previous one."""

import logging
from typing import Any

from sidekiq_celery._send import flow_store, pipeline_buffer
from sidekiq_celery._wire.context import Context
from sidekiq_celery._workflow.never import never_runs, readable_steps
from sidekiq_celery._workflow.steps import call_step
from sidekiq_celery.contract import App
from sidekiq_py.extension import Effect

logger = logging.getLogger("celery.app.trace")


def after_success(app: App, request: Context, retval: Any) -> list[Effect]:
    """Publish the next step."""
    if not request.chain:
        return []
    *rest, following = request.chain
    taken: list[Effect] = []
    nesting = 0
    if flow_store.is_chain_position(following):
        step = flow_store.read_step(app, following, request._next_step)
        if step is None:
            logger.warning("%s: the next step of its workflow was taken before, or is forgotten", request.id)
            return []
        taken += flow_store.take_step(following)
        rest, following = [step.behind] if step.behind else [], step.signature
        # The position was written when the workflow was sent, before a step may have been replaced.
        nesting = request.replaced_task_nesting
    call_step(app, following, retval, request, rest, nesting)
    if taken and rest:
        request._question = flow_store.question_of(rest[0], pipeline_buffer.current())
    return taken


def after_failure(app: App, request: Context, exc: BaseException, traceback: str | None, state: str) -> list[Effect]:
    """Write the failure for every later step, so that callers waiting for one see it."""
    return [
        effect
        for step in readable_steps(app, request, request.chain)
        for effect in never_runs(app, request, step, exc, state, traceback, is_step=True)
    ]
