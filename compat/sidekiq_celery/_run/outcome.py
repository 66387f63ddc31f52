"""
Turns the end of a task's run into the outcome of its job for the engine (`JobDefinition.decide_outcome`).

| State | What happens to the job |
|---|---|
| SUCCESS | done: result, callbacks and next step are written; without any of these it is acknowledged with others |
| RETRY | goes to the set `retry`, with Sidekiq's error fields; or to its queue, if it does not have to wait |
| FAILURE | goes to `dead`, with result and errbacks written; removed if failed tasks are not kept |
| IGNORED, REVOKED, REJECTED | removed, or back in its queue if it was rejected with `requeue=True` |
"""

from typing import Any

from sidekiq_celery import states
from sidekiq_celery._admission import revokes
from sidekiq_celery._run.failed_tasks import FailedTasks, keep_limit
from sidekiq_celery._run.task_log import is_expected
from sidekiq_celery._run.task_run import TaskRun
from sidekiq_celery._send import unique
from sidekiq_celery._wire.payload import KEY, task_headers_of
from sidekiq_celery.exceptions import NotRegistered, Reject
from sidekiq_py.extension import (
    Attempt,
    Effect,
    EndKind,
    Kind,
    Outcome,
    Outgoing,
    add_to_dead,
    add_to_retry,
    trim_dead,
)
from sidekiq_py.payloads import (
    dump,
    error_class_name,
    error_text,
    for_queue,
    keys,
    parse_job,
    record_failure,
)

# Neither of them counts as a failure in Sidekiq's statistics, and neither is a success.
_ENDS: dict[str | None, EndKind] = {states.REVOKED: "invalidated", states.REJECTED: "discarded"}

# Set by the first attempt, and kept by the next ones.
_OF_THE_FIRST_TRY = ("created_at", "enqueued_at")


def decide_outcome(run: TaskRun, attempt: Attempt, failed_tasks: FailedTasks) -> Outcome | None:
    """
    Decide the outcome of a job whose task has ended.

    Args:
        run: The run, which has ended.
        failed_tasks: The app's failed tasks.

    Returns:
        None if there is nothing to write: the job is acknowledged with others.
    """
    if run.state == states.FAILURE:
        return _failure(run, attempt, failed_tasks)
    if run.state == states.REJECTED and isinstance(run.retval, Reject) and run.retval.requeue:
        return _given_back(run, attempt)
    if run.again:
        return _retry(run, attempt)
    end = _ENDS.get(run.state)
    if not run.effects and attempt.error is None and end is None:
        return None
    return Outcome("done", attempt.payload, vital=tuple(run.effects), question=run.request._question, end=end)


def _given_back(run: TaskRun, attempt: Attempt) -> Outcome:
    """Requeue the job at the end of its queue, marked with `delivery_info["redelivered"]` so that the task can tell."""
    payload = parse_job(attempt.raw)
    payload[KEY] = {**task_headers_of(payload), "delivery_info": {**run.request.delivery_info, "redelivered": True}}
    member = dump(payload, dialect=attempt.dialect)
    back = (("SADD", keys.QUEUES, attempt.queue), ("LPUSH", keys.queue(attempt.queue), member))
    return Outcome("requeue", payload, member, vital=back)


def _retry(run: TaskRun, attempt: Attempt) -> Outcome:
    """Enqueue the next attempts: usually one, but more if the task calls `retry(throw=False)` more than once."""
    payload, member, score = _next_try(run, attempt, run.again[-1])
    kind: Kind = "retry" if run.state == states.RETRY else "done"
    outcome = Outcome(kind, payload, member, score, vital=(*run.effects, *_next_tries(run, attempt)))
    if all(job.score is None for job in run.again):
        return outcome
    # A revoke that came before the next try was written has not found it.
    return outcome._replace(afterwards=lambda: revokes.call_up_if_revoked(run.plan.app, run.task_id))


def _next_tries(run: TaskRun, attempt: Attempt) -> list[Effect]:
    wanted: list[Effect] = []
    for job in run.again:
        _, member, score = _next_try(run, attempt, job)
        if job.score is None:
            wanted += [("SADD", keys.QUEUES, job.queue), ("LPUSH", keys.queue(job.queue), member)]
        else:
            wanted.append(add_to_retry(member, score))
    return wanted


def _next_try(run: TaskRun, attempt: Attempt, job: Outgoing) -> tuple[dict[str, Any], bytes, float]:
    """Merge the published job into the current one: unknown keys stay, and Ruby's Retries page shows the reason."""
    before = parse_job(attempt.raw)
    payload = {**before, **parse_job(job.payload)}
    payload |= {key: before[key] for key in _OF_THE_FIRST_TRY if key in before}
    kept = unique.carried(task_headers_of(before))
    if kept:
        payload[KEY] = {**payload.get(KEY, {}), **kept}
    reason = run.reason
    cause = reason if reason is None or reason.exc is None else reason.exc
    _record(payload, cause, attempt, job.queue)
    payload["queue"] = job.queue
    if job.score is None:
        return payload, for_queue(payload, dialect=attempt.dialect, now=attempt.now), attempt.now
    return payload, dump(payload, dialect=attempt.dialect), float(job.score)


def _failure(run: TaskRun, attempt: Attempt, failed_tasks: FailedTasks) -> Outcome:
    task, app = run.plan.task, run.plan.app
    payload = parse_job(attempt.raw)
    _record(payload, run.retval, attempt, attempt.queue)
    may_be_no_task = isinstance(run.retval, NotRegistered) and KEY not in payload
    # A failed task that is tried again anyway, by `retry(throw=False)`, is not dead.
    limit = 0 if may_be_no_task or run.again or is_expected(task, run.retval) else keep_limit(app, task)
    if not limit and not may_be_no_task:
        vital = (*run.effects, *_next_tries(run, attempt))
        return Outcome("discarded", payload, announce_death=not run.again, vital=vital, is_logged=True)
    member = dump(payload, dialect=attempt.dialect)
    dead = Outcome("dead", payload, member, attempt.now, announce_death=True, is_logged=True)
    if may_be_no_task:
        # It is kept by Sidekiq's own rules, whatever the setting for failed tasks.
        trims = trim_dead(attempt.now, attempt.config.dead_limits)
        return dead._replace(vital=(*run.effects, add_to_dead(member, attempt.now)), trims=tuple(trims))
    kept = failed_tasks.keep(member, attempt.now)
    return dead._replace(vital=(*run.effects, *kept), afterwards=lambda: failed_tasks.trim(limit))


def _record(payload: dict[str, Any], error: Any, attempt: Attempt, queue: str) -> None:
    record_failure(
        payload,
        error_class=error_class_name(error),
        error_message=_text(error),
        backtrace=None,
        queue=queue,
        dialect=attempt.dialect,
        now=attempt.now,
    )


def _text(error: Any) -> str:
    if isinstance(error, NotRegistered):
        return "\n".join(getattr(error, "__notes__", ())) or str(error)
    return error_text(error)
