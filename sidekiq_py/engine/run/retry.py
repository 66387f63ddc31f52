"""
Decides what happens to a failed job: it is retried, dead, discarded, dropped, or goes back to its queue.

Nothing here talks to Redis. The payload is parsed again from the stored bytes, so changes that middleware and the job
made to their copy are not kept. Where Ruby would lose the job (an unknown class without a `retry` in the payload, or a
payload that can be read but not written), it goes to `dead`, and a report says why.

Source: Sidekiq 6.4.1, 7.3.2 and 8.1.7, job_retry.rb.
"""

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from datetime import timedelta
from typing import Any, Literal, NamedTuple

from sidekiq_py.config import Config
from sidekiq_py.errors import JobFailed, PayloadError, Shutdown
from sidekiq_py.outcome import Attempt, Outcome
from sidekiq_py.redis_access.job_path.failed_jobs import add_to_dead, add_to_retry, trim_dead
from sidekiq_py.registry import JobDefinition
from sidekiq_py.telemetry import LEAST_MILLISECONDS, Report
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.failure import backtrace_lines, error_class_name, error_text, record_failure
from sidekiq_py.wire.payload import dump, parse_job

Payload = dict[str, Any]


class Failure(NamedTuple):
    """
    One failed run and everything that its outcome depends on.

    Args:
        raw: The bytes as they were fetched.
        queue: The queue they were fetched from.
        error: The exception that was raised; its traceback gives the lines of `error_backtrace`.
        job: The declared job, or `None` if no declared job has this class.
        config: The limits.
        dialect: The release to follow.
        now: Seconds since the epoch.
        draw: Returns a random number from [0, 1), for the jitter.
        report: Called with errors of the blocks, and with the reason when a job is kept in `dead` that Ruby would lose.
    """

    raw: bytes
    queue: str
    error: BaseException
    job: JobDefinition | None
    config: Config
    dialect: Dialect
    now: float
    draw: Callable[[], float]
    report: Report

    def report_problem(self, problem: BaseException, context: str, **facts: Any) -> None:
        """Report what went wrong on the way. An error in the report itself is ignored."""
        # Not even a handler that calls sys.exit() may interfere.
        with suppress(BaseException):
            self.report(problem, {"context": context, **facts})


def after_failure(failure: Failure) -> Outcome:
    """Decide what happens to a job that raised. Calls the job's blocks, and never raises."""
    if is_caused_by_shutdown(failure.error):
        return Outcome("requeue", {})
    payload: Payload = {}
    try:
        payload = parse_job(failure.raw)
        return _own_judgement(failure, payload) or _judge(failure, payload)
    except PayloadError as problem:
        # The run has failed for the same reason, and its traceback would stand before this one.
        problem.__suppress_context__ = True
        return _keep_as_it_is(failure, payload, problem, "The payload is not a usable job; it is kept in dead")
    except Shutdown:
        # The process has begun to stop meanwhile: the job runs again elsewhere.
        return Outcome("requeue", {})
    except BaseException as problem:  # noqa: BLE001 - whatever is wrong with this payload must not cost the job
        return _keep_as_it_is(failure, payload, problem, "The failure cannot be recorded; the job is kept in dead")


def dead_letter(member: bytes, payload: Payload, config: Config, now: float, *, announce_death: bool = True) -> Outcome:
    """
    The outcome of a job that goes to `dead`.

    Args:
        member: The bytes to keep: those that were fetched, if the job must not run here.
        payload: The parsed payload, for death handlers.
        now: Seconds since the epoch.
        announce_death: False calls no death handlers.
    """
    return Outcome(
        "dead",
        payload,
        member,
        now,
        announce_death,
        vital=(add_to_dead(member, now),),
        trims=tuple(trim_dead(now, config.dead_limits)),
    )


def is_caused_by_shutdown(error: BaseException) -> bool:
    """
    True if the process's shutdown made the job fail, even if the job wrapped that in an error of its own.

    Source: Sidekiq 8.1.7, job_retry.rb, `exception_caused_by_shutdown?`.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        if isinstance(one, Shutdown):
            return True
        seen.add(id(one))
        waiting.append(one.__cause__ or (None if one.__suppress_context__ else one.__context__))
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(one.exceptions)
    return False


def retry_jitter_seconds(count: int, draw: Callable[[], float], dialect: Dialect) -> int:
    """
    The random part of a retry's delay.

    Args:
        count: The retry count as in the payload: 0 after the first failure.
        draw: Returns a random number from [0, 1).
    """
    if dialect.jitter == "rand_range":
        return int(draw() * 10 * (count + 1))
    return int(draw() * (30 if dialect.jitter == "rand30" else 10)) * (count + 1)


def _own_judgement(failure: Failure, payload: Payload) -> Outcome | None:
    decide_outcome = failure.job.decide_outcome if failure.job is not None else None
    if decide_outcome is None:
        return None
    attempt = Attempt(
        failure.raw, payload, failure.queue, None, failure.error, failure.config, failure.dialect, failure.now
    )
    return decide_outcome(attempt)


def _judge(failure: Failure, payload: Payload) -> Outcome:
    job = failure.job
    retry = payload.get("retry")
    if retry is None and job is not None:
        retry = job.options.get("retry", True)
    if retry is False or (retry is None and job is not None):
        return Outcome("dropped", payload, announce_death=True)

    count = _record(failure, payload, retry)
    if retry is None:
        failure.report_problem(
            failure.error,
            f"{payload['class']!r} is not declared here, and the payload does not say whether to retry the job; "
            "it is kept in dead",
            job=payload,
        )
        return _dead_letter(failure, payload)
    if isinstance(failure.error, JobFailed) or _is_exhausted(failure, payload, retry, count):
        return _exhaust(failure, payload)
    wanted = _wanted_delay(failure, payload, count)
    if wanted == "discard":
        return _discard(failure, payload, announce_death=failure.dialect.discard_runs_death_handlers)
    if wanted == "kill":
        return _exhaust(failure, payload)
    return _retry(failure, payload, count, wanted)


def _record(failure: Failure, payload: Payload, retry: Any) -> int:
    return record_failure(
        payload,
        error_class=error_class_name(failure.error),
        error_message=error_text(failure.error),
        backtrace=backtrace_lines(failure.error) if payload.get("backtrace") else [],
        queue=failure.queue,
        dialect=failure.dialect,
        now=failure.now,
        retry_option=retry,
    )


def _is_exhausted(failure: Failure, payload: Payload, retry: Any, count: int) -> bool:
    window = payload.get("retry_for") if failure.dialect.has_retry_for else None
    if window is not None and window is not False:
        # Ruby's clock has gone on since it noted the first failure, so a window of 0 ends with that failure.
        if _seconds(payload["failed_at"]) + window <= failure.now:
            return True
        if failure.dialect.retry_for_exclusive:
            return False
    return count >= (retry if type(retry) is int else failure.config.max_retries)


def _seconds(stamp: Any) -> float:
    """A payload's time stamp in seconds. Sidekiq 8 writes whole milliseconds, earlier releases write float seconds."""
    return stamp / 1000 if type(stamp) is int and stamp >= LEAST_MILLISECONDS else float(stamp)


def _wanted_delay(failure: Failure, payload: Payload, count: int) -> int | Literal["kill", "discard"] | None:
    """What the job's `retry_in` block returns; `None` for the default delay, also if the block fails."""
    job = failure.job
    if job is None or (block := job.retry_in_block) is None:
        return None
    try:
        return _as_delay(_with_draft(failure, payload, lambda draft: block(count, failure.error, draft)))
    except BaseException as problem:  # noqa: BLE001 - as in Ruby, an error in this block must not lose the job
        failure.report_problem(
            problem, f"Failure scheduling retry using the `retry_in` of {job.name}, falling back to default"
        )
        return None


def _with_draft(failure: Failure, payload: Payload, call: Callable[[Payload], Any]) -> Any:
    """
    Call a block with a copy of *payload*, and keep its changes.

    In Ruby, blocks change the payload itself. Here the result must still be this job: an empty payload would lose it.
    """
    draft = deepcopy(payload)
    try:
        return call(draft)
    finally:
        try:
            written = parse_job(dump(draft, dialect=failure.dialect))
            if (written["class"], written.get("jid")) != (payload["class"], payload.get("jid")):
                raise PayloadError(f"class and jid are now {written['class']!r} and {written.get('jid')!r}")
        except Exception as problem:  # noqa: BLE001 - whatever cannot be written
            failure.report_problem(problem, "A block made the payload invalid; its changes are dropped", job=payload)
        else:
            payload.clear()
            payload.update(draft)


def _as_delay(value: Any) -> int | Literal["kill", "discard"] | None:
    if value is None or value in ("kill", "discard"):
        return value  # type: ignore[no-any-return]
    seconds = int(value.total_seconds()) if isinstance(value, timedelta) else int(value)
    if seconds <= 0 or isinstance(value, bool):
        raise ValueError(
            f'retry_in returned {value!r}; return seconds above 0, "kill", "discard", or None for the default'
        )
    float(seconds)  # an integer too large for a score fails here
    return seconds


def _retry(failure: Failure, payload: Payload, count: int, wanted: int | None) -> Outcome:
    delay = count**4 + 15 if wanted is None else wanted
    has_jitter = wanted is None or failure.dialect.custom_delay_jitter
    score = failure.now + delay + (retry_jitter_seconds(count, failure.draw, failure.dialect) if has_jitter else 0)
    member = dump(payload, dialect=failure.dialect)
    return Outcome("retry", payload, member, score, vital=(add_to_retry(member, score),))


def _exhaust(failure: Failure, payload: Payload) -> Outcome:
    dialect = failure.dialect
    if _exhausted_decision(failure, payload) == "discard" and dialect.exhausted_may_discard:
        return _discard(failure, payload, announce_death=dialect.discard_runs_death_handlers)
    if payload.get("dead") is False:
        return _discard(failure, payload, announce_death=True)
    return _dead_letter(failure, payload)


def _exhausted_decision(failure: Failure, payload: Payload) -> Any:
    block = failure.job.exhausted_block if failure.job else None
    if block is None:
        return None
    try:
        return _with_draft(failure, payload, lambda draft: block(draft, failure.error))
    except Shutdown:
        raise
    except BaseException as problem:  # noqa: BLE001 - a SystemExit in a block is that block's failure
        failure.report_problem(problem, "Error calling retries_exhausted", job=payload)
        return None


def _discard(failure: Failure, payload: Payload, *, announce_death: bool) -> Outcome:
    if failure.dialect.stamps_discarded_at:
        payload["discarded_at"] = failure.dialect.stamp(failure.now)
    return Outcome("discarded", payload, announce_death=announce_death)


def _dead_letter(failure: Failure, payload: Payload) -> Outcome:
    return dead_letter(dump(payload, dialect=failure.dialect), payload, failure.config, failure.now)


def _keep_as_it_is(failure: Failure, payload: Payload, problem: BaseException, context: str) -> Outcome:
    """
    Keep the fetched bytes in `dead`, as a last resort.

    If they are not even a job, no death handlers are called, as in Ruby.
    """
    failure.report_problem(problem, context, jobstr=failure.raw)
    return dead_letter(failure.raw, payload, failure.config, failure.now, announce_death=bool(payload))
