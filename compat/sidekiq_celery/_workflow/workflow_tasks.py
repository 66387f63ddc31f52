"""
The internal tasks that continue workflows.

`celery.step_ended` continues after a step that Ruby has run; it is enqueued where Ruby writes the step's result.
`celery.chord_start` calls a body that is more than one job, and `celery.chord_fail` fails a body; both are enqueued
once, by the script that ends a part. The effects of each of these tasks are written by the script that ends the task
itself. `app.builtins` adds them to each app.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from sidekiq_celery import states
from sidekiq_celery._send.running_task import current
from sidekiq_celery._wire.context import Context
from sidekiq_celery._wire.passed_values import handed_on
from sidekiq_celery._wire.payload import request_fields
from sidekiq_celery._wire.ruby_headers import ENDED_TASK
from sidekiq_celery._workflow import flow, kinds, links
from sidekiq_celery._workflow.chord_completion import START_TASK
from sidekiq_celery._workflow.never import FAIL_TASK, never_runs, result_stored
from sidekiq_celery._workflow.signature import maybe_signature
from sidekiq_celery.backends import failures
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import ChordError
from sidekiq_celery.utils.einfo import ExceptionInfo
from sidekiq_celery.utils.functional import maybe_list
from sidekiq_py.extension import Effect

logger = logging.getLogger("celery.app.trace")


def add_tasks(app: App) -> None:
    """Add the tasks that move workflows on."""
    add = partial(app.task, bind=True, shared=False, lazy=False, ignore_result=True, max_retries=0, _is_internal=True)

    # Calls a chord's body with the results. Each part of a chord prepares a call of it, as any may be the last: it is
    # not announced, as most are never pushed. Redis writes the results into its arguments, so they are JSON, whatever
    # `task_serializer` is.
    @add(name=START_TASK, _is_announced=False, _is_sent_as_json=True)
    def chord_start(self: Any, results: Any, body: Any) -> None:
        request = self.request
        sig = maybe_signature(body, app=app)
        options = {"parent_id": request.parent_id, "root_id": request.root_id}
        try:
            handed_on(lambda value: _with_the_end(self, lambda: sig.apply_async((value,), **options)), results)
        except Exception as error:
            # This task must not fail itself: the effects that a failed task has collected are not written.
            logger.exception("The body of chord %s cannot be called", sig.id)
            _fail(self, sig, ChordError(f"Callback error: {error!r}"), error)

    # Fails a chord's body: its results, its errbacks, and the chord that it is itself a part of. Its arguments have
    # been made for JSON; yaml, for one, cannot write a signature.
    @add(name=FAIL_TASK, _is_sent_as_json=True)
    def chord_fail(self: Any, body: Any, reason: str, failure: Any) -> None:
        cause = failures.as_exception(failure, "json")
        error = ChordError(reason)
        error.__cause__ = cause
        _fail(self, maybe_signature(body, app=app), error, cause)

    # Continues after a step run by Ruby: callbacks, the next step, its part of a chord.
    @add(name=ENDED_TASK)
    def step_ended(self: Any, name: str, task_id: str, task_headers: Any, state: str, result: Any) -> None:
        # The report's queue is where the next tasks belong: they are for Python workers.
        queue = self.request.delivery_info["routing_key"]
        request = Context(request_fields(name, {"class": name, "jid": task_id}, task_headers, queue, (), {}, None))
        failed = state != states.SUCCESS
        outcome = failures.as_exception(result, "json") if failed else result
        effects: list[Effect] = []
        if "key" not in task_headers["report"] and not task_headers.get("ignore_result"):
            effects += result_stored(app, name, task_id, outcome, state)
        if failed:
            effects += flow.after_failure(app, request, outcome, None)
        else:
            effects += flow.after_success(app, request, outcome)
        _add_to_the_end(self, effects)


def _fail(task: Any, body: Any, error: BaseException, cause: BaseException) -> None:
    """
    Fail *body*.

    Args:
        error: The error for the body. The members of a group get *cause* instead, as they have no chord.
    """
    reason = cause if kinds.is_group(body) else error
    _with_the_end(task, lambda: _call_errbacks(task.app, body, reason))
    traceback = ExceptionInfo((type(reason), reason, reason.__traceback__)).traceback
    _add_to_the_end(task, never_runs(task.app, task.request, body, reason, states.FAILURE, traceback))


def _call_errbacks(app: App, body: Any, reason: BaseException, of_group: Sequence[Any] | None = None) -> None:
    """
    Call the errbacks of *body*, or of each member if it is a group.

    Args:
        of_group: The errbacks of the group that *body* is a member of.
    """
    errbacks = [*(maybe_list(body.options.get("link_error")) or ()), *(of_group or ())]
    if kinds.is_group(body):
        for member in body.tasks:
            _call_errbacks(app, maybe_signature(member, app=app), reason, errbacks)
    elif kinds.is_chord(body) and of_group is not None:
        # A chord's result is its body's result, and the body has the errbacks.
        _call_errbacks(app, maybe_signature(body.body, app=app), reason, errbacks)
    else:
        once = [one for at, one in enumerate(errbacks) if one not in errbacks[:at]]
        request = Context({**body, "id": body.id, "errbacks": once, "delivery_info": {}, "root_id": body.root_id})
        links.after_failure(app, request, reason, None)


def _add_to_the_end(task: Any, effects: Sequence[Effect]) -> None:
    """Write *effects* together with the task's end."""
    run = current(task.request)
    if run is not None:
        run.effects += effects


def _with_the_end(task: Any, publish: Any) -> None:
    """Call *publish* so that the jobs it sends are written together with the task's end."""
    run = current(task.request)
    if run is None:
        publish()
    else:
        run.buffer(publish)
