"""
Tasks of our own by which chords go on.

`celery.chord_start` calls a body that is more than one job; `celery.chord_fail` fails a body. Each is enqueued once, by
the script that ends a part, and what it does is written by the script that ends itself. `app.builtins` adds them to
each app.
"""

from typing import TYPE_CHECKING, Any

from sidekiq_celery import states
from sidekiq_celery._canvas import kinds
from sidekiq_celery._canvas.signature import maybe_signature
from sidekiq_celery.app.context import Context
from sidekiq_celery.app.running_task import current
from sidekiq_celery.chords import START_TASK
from sidekiq_celery.exceptions import ChordError
from sidekiq_celery.links import Links
from sidekiq_celery.never import FAIL_TASK, never_runs
from sidekiq_celery.utils.functional import maybe_list

if TYPE_CHECKING:
    from sidekiq_celery.app.base import Celery

__all__ = ("add_fail_task", "add_start_task")


def add_start_task(app: "Celery") -> Any:
    """Call a chord's body with the results."""

    @app.task(bind=True, name=START_TASK, shared=False, lazy=False, ignore_result=True, max_retries=0)
    def chord_start(self: Any, results: Any, body: Any) -> None:
        request = self.request
        sig = maybe_signature(body, app=app)
        options = {"parent_id": request.parent_id, "root_id": request.root_id}
        try:
            _with_the_end(self, lambda: sig.apply_async((results,), **options))
        except Exception as error:
            _fail(self, sig, ChordError(f"Callback error: {error!r}"), error)
            raise

    return chord_start


def add_fail_task(app: "Celery") -> Any:
    """Fail a chord's body: its results, its errbacks, the chord that it is part of itself."""

    @app.task(bind=True, name=FAIL_TASK, shared=False, lazy=False, ignore_result=True, max_retries=0)
    def chord_fail(self: Any, body: Any, reason: str, failure: Any) -> None:
        from sidekiq_celery.backends import failures

        cause = failures.as_exception(failure, "json")
        error = ChordError(reason)
        error.__cause__ = cause
        _fail(self, maybe_signature(body, app=app), error, cause)

    return chord_fail


def _fail(task: Any, body: Any, error: BaseException, cause: BaseException) -> None:
    """
    Fail *body*.

    Args:
        error: What a body is failed with; the members of a group are failed with *cause*, as they have no chord.
    """
    reason = cause if kinds.is_group(body) else error
    _with_the_end(task, lambda: _call_errbacks(task.app, body, reason))
    run = current(task.request)
    effects = never_runs(task.app, body, reason, states.FAILURE)
    if run is not None:
        run.effects += effects  # type: ignore[attr-defined]


def _call_errbacks(app: "Celery", body: Any, reason: BaseException) -> None:
    if kinds.is_group(body):
        own = maybe_list(body.options.get("link_error")) or []
        for member in body.tasks:
            errbacks = [*(maybe_list(maybe_signature(member).options.get("link_error")) or ()), *own]
            _call_for(app, member, [one for at, one in enumerate(errbacks) if one not in errbacks[:at]], reason)
        return
    _call_for(app, body, maybe_list(body.options.get("link_error")) or [], reason)


def _call_for(app: "Celery", sig: Any, errbacks: Any, reason: BaseException) -> None:
    request = Context({**sig, "id": sig.id, "errbacks": errbacks, "delivery_info": {}, "root_id": sig.root_id})
    Links().after_failure(app, request, reason, None)


def _with_the_end(task: Any, publish: Any) -> None:
    """What *publish* sends is written with the task's end."""
    run = current(task.request)
    if run is None:
        publish()
    else:
        run.gather(publish)
