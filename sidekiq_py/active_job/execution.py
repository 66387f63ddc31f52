"""
One run of an Active Job: count it, read its arguments, call the function, and apply `retry_on` and `discard_on`.

Source: Rails 6.1 to 8.1, activejob/execution.rb and exceptions.rb.
"""

import random
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from time import time, time_ns
from typing import Any

from sidekiq_py.active_job.arguments import deserialize
from sidekiq_py.active_job.current import CurrentActiveJob, running
from sidekiq_py.active_job.enqueue import rails_beside
from sidekiq_py.active_job.job_object import JobObject, Placement, nanoseconds, push_item
from sidekiq_py.active_job.rescue import Decision, RetryRule, Rule, decide
from sidekiq_py.active_job.values import Keywords
from sidekiq_py.client import async_client, sync_client
from sidekiq_py.errors import DeserializationError, SoftTimeLimitError
from sidekiq_py.logs import log, running_payload
from sidekiq_py.middleware.running import running_here
from sidekiq_py.redaction import current
from sidekiq_py.registry import Payload
from sidekiq_py.wire.dialect import Dialect

# Before 6.0.4 a payload's options come after its arguments, where keys of client middleware are, too.
_SIDEKIQ_OPTIONS = frozenset(("retry", "backtrace", "dead", "retry_queue", "retry_for", "tags", "log_level", "profile"))
# What each push sets anew.
_OF_ONE_PUSH = frozenset(("queue", "class", "wrapped", "jid", "created_at", "enqueued_at", "at"))


@dataclass(frozen=True, slots=True)
class Execution:
    """
    Runs one payload of a declared Active Job; call it with the payload's args.

    Args:
        function: The implementation.
        rules: From `rules_of`.
        sidekiq_options: Declared here; they override those in the payload.
        rails_version: As declared.
    """

    function: Callable[..., Any]
    payload: Payload
    rules: Iterable[Rule]
    sidekiq_options: Mapping[str, Any]
    rails_version: str | None

    def __call__(self, *args: Any) -> Any:
        """Run it. An error that no rule handles is raised."""
        job = counted(args)
        token = running.set(CurrentActiveJob(job, str(self.payload.get("jid"))))
        try:
            arguments, keywords = arguments_of(job)
            return self.function(*arguments, **keywords)
        except Exception as error:
            decision = decide(self.rules, error, job)
            if decision is None or (decision.is_raised and decision.cause is error):
                raise
            if not decision.is_raised:
                if decision.is_retry:
                    here = sync_client.current()
                    here.push(self._next_try(decision, job, here.detection.dialect(time())))
                _close(decision, job)
                return None
        finally:
            running.reset(token)
        # The error that the rule names, as in Rails. While the other is handled, a raise would replace its context.
        raise decision.cause

    async def acall(self, *args: Any) -> Any:
        """Like `__call__`, for an `async def` implementation."""
        job = counted(args)
        token = running.set(CurrentActiveJob(job, str(self.payload.get("jid"))))
        try:
            arguments, keywords = arguments_of(job)
            return await self.function(*arguments, **keywords)
        except (Exception, CancelledError) as raised:
            error = _time_limit(raised) if isinstance(raised, CancelledError) else raised
            decision = None if error is None else decide(self.rules, error, job)
            if decision is None or (decision.is_raised and decision.cause is error):
                raise
            if not decision.is_raised:
                if decision.is_retry:
                    here = async_client.current()
                    await here.push(self._next_try(decision, job, await here.dialect()))
                _close(decision, job)
                return None
        finally:
            running.reset(token)
        # The error that the rule names, as in Rails. While the other is handled, a raise would replace its context.
        raise decision.cause

    def _next_try(self, decision: Decision, job: JobObject, dialect: Dialect) -> dict[str, Any]:
        """The item to push for a retry."""
        rule = decision.rule
        assert isinstance(rule, RetryRule)
        now_ns = time_ns()
        delay_seconds = rule.delay_seconds(decision.count, decision.cause, random.random())
        # `scheduled_at` in the job shows that its Rails is 7.1 or later.
        rails = rails_beside(dialect, self.rails_version or ("7.1" if "scheduled_at" in job else None))
        placement = Placement(
            rule.queue or job.get("queue_name") or self.payload.get("queue") or "default",
            job.get("priority") if rule.priority is None else rule.priority,
            now_ns + nanoseconds(delay_seconds),
        )
        return push_item(
            job,
            placement,
            jid=str(self.payload.get("jid")),
            wrapper=dialect.active_job_wrapper,
            sidekiq_options={**_options_of_class(self.payload), **self.sidekiq_options},
            rails=rails,
            now_ns=now_ns,
        )


def _options_of_class(payload: Payload) -> Payload:
    """What a Ruby class declared with `sidekiq_options`, and keys of its own: they precede the arguments."""
    before_args = frozenset(takewhile(lambda key: key != "args", payload))
    names = (before_args - _OF_ONE_PUSH) | _SIDEKIQ_OPTIONS
    return {key: value for key, value in payload.items() if key in names}


def job_object_of(payload: Mapping[str, Any]) -> JobObject | None:
    """The job object in an Active Job's payload; None if there is none."""
    args = payload.get("args")
    job = args[0] if isinstance(args, list) and args else None
    return job if isinstance(job, dict) and isinstance(job.get("job_class"), str) else None


def counted(args: tuple[Any, ...]) -> JobObject:
    """A copy of the job object with this run counted. The payload keeps its own counts, for Sidekiq's retry."""
    job = dict(args[0])
    job["executions"] = (job.get("executions") or 0) + 1
    if job.get("exception_executions") is not None:
        job["exception_executions"] = dict(job["exception_executions"])
    return job


def arguments_of(job: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """
    The arguments of a job object for a Python function: positional ones, and keywords if Ruby's keywords come last.

    Raises:
        DeserializationError: An argument cannot be read.
    """
    serialized = job.get("arguments") or []
    if not isinstance(serialized, list):
        raise DeserializationError(f"the job's arguments are {serialized!r}, where an array should stand")
    values = deserialize(serialized)
    if values and isinstance(values[-1], Keywords):
        return values[:-1], {str(key): value for key, value in values[-1].items()}
    return values, {}


def _time_limit(cancelled: CancelledError) -> SoftTimeLimitError | None:
    """The error that a function would get in a thread, if its time limit has cancelled this job; a stop says so."""
    _, _, deadline = running_here() or (None, None, None)
    if cancelled.args or deadline is None or time() < deadline:
        return None
    return SoftTimeLimitError()


def _close(decision: Decision, job: JobObject) -> None:
    """Log how a job ended that its rules handled, and call the rule's `exhausted` if its attempts are used up."""
    done = "retrying" if decision.is_retry else "discarded"
    cause = decision.cause
    shown = current().error(cause, running_payload.get())
    log.info("%s %s (job_id %s): %s: %s", done, job["job_class"], job.get("job_id"), type(cause).__name__, shown)
    if isinstance(decision.rule, RetryRule) and decision.rule.exhausted is not None and not decision.is_retry:
        decision.rule.exhausted(job, cause)
