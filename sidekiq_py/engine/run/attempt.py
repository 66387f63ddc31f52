"""
The end of one attempt at a job.

Threads and the event loop each run jobs in their own way. Both settle them here: success, failure, interruption or
shutdown.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from sidekiq_py.clock import now_seconds
from sidekiq_py.config import Config
from sidekiq_py.engine.fetch.fetcher import Fetcher
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.ownership.pending_deaths import PendingDeath, PendingDeaths
from sidekiq_py.engine.report.job_context import JobContext
from sidekiq_py.engine.run import retry
from sidekiq_py.engine.run.foreign_features import ForeignFeatures
from sidekiq_py.engine.run.metrics import ExecutionMetrics
from sidekiq_py.engine.run.work_state import WorkState
from sidekiq_py.errors import (
    ExtensionError,
    Interrupted,
    JobTooLargeError,
    PayloadError,
    RedisError,
    SidekiqError,
    Stopped,
)
from sidekiq_py.extension import Extension, JobEnd
from sidekiq_py.hooks import Hooks
from sidekiq_py.loaded_extensions import LoadedExtensions
from sidekiq_py.logs import log
from sidekiq_py.middleware.chain import Chain, ServerMiddleware
from sidekiq_py.outcome import Attempt, EndKind, Outcome, Question
from sidekiq_py.redis_access.job_path import job_counts, settle_script
from sidekiq_py.redis_access.job_path.failed_jobs import add_to_dead
from sidekiq_py.redis_access.job_path.push import Outgoing
from sidekiq_py.registry import JobDefinition, Registry
from sidekiq_py.telemetry import JOB_EXCEPTION, JOB_START, JOB_STOP, SETTLE
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.payload import parse_job_or_empty, score_text

_SHOWN_BYTES = 200

Payload = dict[str, Any]

_END_KINDS: dict[str, EndKind] = {
    "done": "success",
    "retry": "retry",
    "dead": "dead",
    "discarded": "discarded",
    "dropped": "dropped",
}

Repush = Callable[[Payload], Outgoing | None]


class HardLimitWatch(Protocol):
    """Gets this process killed when a job runs past its hard limit."""

    def begin(self, unit: UnitOfWork, seconds: float) -> None:
        """A job with a hard limit of this many seconds starts."""

    def end(self) -> None:
        """The job has ended and is not settled yet."""

    def terminate(self, unit: UnitOfWork, signal_number: int) -> None:
        """Have the running job ended from outside."""

    def replace(self) -> None:
        """Have this process, which takes no more jobs, replaced by another one."""


class Ended(NamedTuple):
    """
    A job whose attempt is over, or which will not be run at all.

    Args:
        raw: The bytes as they were fetched.
        payload: The payload as the run left it; empty if the bytes are not a job.
        queue: The queue it was fetched from.
        error: The exception it raised, or None.
        now: Seconds since the epoch.
        seconds: How long it ran.
        is_reported: True if the error has already been reported to the error handlers.
    """

    raw: bytes
    payload: Payload
    queue: str
    error: BaseException | None
    now: float
    seconds: float = 0.0
    is_reported: bool = False


Settle = Callable[[Sequence[settle_script.Effect], Sequence[settle_script.Effect]], bool]
"""Runs the commands that must succeed and those that may fail, if the job is still ours. Returns True if it was."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything that a capsule's jobs need to run; shared by all its processors."""

    config: Config
    registry: Registry
    chain: Chain[ServerMiddleware]
    hooks: Hooks
    pending_deaths: PendingDeaths
    state: WorkState
    metrics: ExecutionMetrics
    context: JobContext
    identity: str
    dialect: Callable[[], Dialect]
    repush: Repush
    foreign: ForeignFeatures
    extensions: LoadedExtensions
    is_stopping: Callable[[], bool]

    def chain_for(self, payload: Payload) -> Chain[ServerMiddleware]:
        """The middleware for a job: the program's, wrapped in that of the extensions that handle the job."""
        found = self.extensions.around(payload)
        if not found:
            return self.chain
        chain = self.chain.copy()
        for middleware in reversed(found):
            chain.prepend(middleware)
        return chain

    def with_ends_of_extensions(self, ended: Ended, outcome: Outcome) -> Outcome:
        """
        Add to *outcome* the effects that extensions want written with it.

        Their effects come first. A verb may fail while it writes, and Redis does not roll back what was written before
        it: the job would wait for its retry and be in flight at the same time.

        If an extension fails after the job itself failed, the job's bytes go to `dead`, because the extension's own
        records would otherwise be wrong.

        Raises:
            ExtensionError: An extension failed after the job succeeded.
        """
        raw, payload, queue, error, now, seconds, _ = ended
        kind = outcome.end or _END_KINDS.get(outcome.kind)
        if kind is None or not self.extensions.handles(payload):
            return outcome
        end = JobEnd(kind, payload, raw, queue, now, self.dialect(), error, seconds, outcome.member, outcome.score)
        try:
            own = self.extensions.followed(end, outcome.vital)
            theirs = self.extensions.end_effects(end)
            # An extension that replaces the definition's own effects does so with a verb, which checks before it
            # writes. It has to record the next step before this end is counted: otherwise a batch succeeded after the
            # first step of a chain.
            vital = (*theirs, *own) if own == outcome.vital else (*own, *theirs)
            return outcome._replace(vital=vital)
        except ExtensionError as failure:
            if outcome.kind == "done" and error is None:
                raise
            self.hooks.report(failure, {"context": "The job is kept in dead", "job": payload, "jobstr": raw})
            return retry.dead_letter(raw, payload, self.config, now)

    def carry_out(self, ended: Ended, outcome: Outcome, settle: Settle) -> bool:
        """
        Settle a job of this process, or of a sibling, as *outcome* says, and call the handlers.

        Args:
            outcome: Any outcome but `"requeue"`, with the effects of extensions already added.

        Returns:
            False if the job was no longer ours; then nothing was written.
        """
        raw, payload, queue, error, now, _, is_reported = ended
        has_failed = outcome.kind != "done"
        counters = job_counts.count_commands(now, failed=has_failed)
        death = self.pending_death(outcome, raw, error)
        others = [*outcome.trims, *counters] if death is None else [*death.commands, *outcome.trims, *counters]
        if not settle(outcome.vital, others):
            return False
        _emit_settled(outcome.kind, payload, raw, queue)
        if payload and has_failed and error is not None and not is_reported:
            # Bytes that are not a job have no payload, and were reported on the way here.
            context = {"context": "Job raised exception", "job": payload, "jobstr": raw}
            if outcome.is_logged:
                self.hooks.call_error_handlers(error, context)
            else:
                self.hooks.report(error, context, then=_what_follows(outcome, now))
        if death is not None and error is not None:
            death.announce(outcome.payload, error)
        if outcome.afterwards is not None:
            try:
                outcome.afterwards()
            except RedisError as failure:
                log.warning("a job has ended, but its follow-up work failed: %s", failure)
        return True

    def enter(self, payload: Payload, queue: str) -> None:
        """Enter the job's context and emit `sidekiq.job.start`: a job is about to run in this thread or task."""
        self.context.enter(payload)
        if JOB_START.handlers:
            JOB_START.emit({"payload": payload, "queue": queue, "identity": self.identity})

    def emit_stopped(self, payload: Payload, queue: str, seconds: float) -> None:
        """Emit `sidekiq.job.stop`: the job succeeded or was stopped, and its acknowledgement is queued or written."""
        if JOB_STOP.handlers:
            JOB_STOP.emit({"payload": payload, "queue": queue, "identity": self.identity, "seconds": seconds})

    def emit_raised(self, payload: Payload, queue: str, seconds: float, error: BaseException) -> None:
        """Emit `sidekiq.job.exception`: the job raised or was interrupted. Its outcome is decided after this."""
        if JOB_EXCEPTION.handlers:
            is_failure = not (is_success(error) or retry.is_caused_by_shutdown(error))
            run = {"payload": payload, "queue": queue, "identity": self.identity, "seconds": seconds}
            JOB_EXCEPTION.emit({**run, "error": error, "is_failure": is_failure})

    def pending_death(self, outcome: Outcome, raw: bytes, error: BaseException | None) -> PendingDeath | None:
        """The record to write along with this outcome, so that the death handlers run even if this process dies."""
        if not outcome.announce_death or error is None:
            return None
        return self.pending_deaths.prepare(outcome.payload, raw, error)

    def after_failure(
        self, raw: bytes, queue: str, error: BaseException, definition: JobDefinition | None, now: float
    ) -> Outcome:
        """Decide the outcome of a job of this process, or of a sibling, that raised; see `retry.after_failure`."""
        failure = retry.Failure(
            raw, queue, error, definition, self.config, self.dialect(), now, random.random, self.hooks.report
        )
        return retry.after_failure(failure)


def _what_follows(outcome: Outcome, now: float) -> str:
    """What becomes of a failed job, for its line in the log."""
    if outcome.kind == "retry" and outcome.score is not None:
        return f", next try in {outcome.score - now:,.0f} s"
    return ", kept in dead" if outcome.kind == "dead" else ""


class AttemptEnd:
    """Settles the attempts of one capsule."""

    def __init__(self, surroundings: Surroundings, fetcher: Fetcher) -> None:
        self._around = surroundings
        self._fetcher = fetcher

    def unusable(self, unit: UnitOfWork, error: PayloadError) -> None:
        """Settle bytes that are not a job: they go to `dead` unchanged."""
        self._fail(unit, {}, None, error)

    def dead_lettered(self, unit: UnitOfWork, payload: Payload, error: SidekiqError) -> None:
        """Settle a job that must not run here: it goes to `dead` unchanged."""
        now = now_seconds()
        outcome = retry.dead_letter(unit.raw, payload, self._around.config, now)
        self._end(unit, Ended(unit.raw, payload, unit.queue, error, now), outcome)

    def too_large(self, unit: UnitOfWork) -> None:
        """Settle a job larger than `max_job_bytes`: its bytes go to `dead` unread."""
        around = self._around
        now = now_seconds()
        text = f"the job has {len(unit.raw):,} bytes, and max_job_bytes is {around.config.max_job_bytes:,}"
        effects: Sequence[settle_script.Effect] = ()
        if around.registry.on_too_large is not None:
            text, effects = around.registry.on_too_large(unit.raw)
        context = {"context": "A job is kept in dead, unread", "jobstr": unit.raw[:_SHOWN_BYTES]}
        around.hooks.report(JobTooLargeError(text), context)
        outcome = retry.dead_letter(unit.raw, {}, around.config, now, announce_death=False)
        outcome = outcome._replace(vital=(*effects, *outcome.vital))
        self._end(unit, Ended(unit.raw, self._payload_if_handled(unit), unit.queue, None, now), outcome)

    def postponed(self, unit: UnitOfWork, at: float, member: bytes | None = None) -> None:
        """
        Move a job that did not start to `schedule` until *at* (epoch seconds). Nothing is counted.

        Args:
            member: The bytes to write; by default those that were fetched.
        """
        self._fetcher.finish(unit, [("ZADD", keys.SCHEDULE, score_text(at), member or unit.raw)], (), 0.0)

    def invalidated(self, unit: UnitOfWork, payload: Payload, reason: str) -> None:
        """Settle a job that an extension drops before it starts."""
        around = self._around
        end = JobEnd("invalidated", payload, unit.raw, unit.queue, now_seconds(), around.dialect())
        self._fetcher.finish(unit, around.extensions.end_effects(end), (), 0.0)
        log.info("a job was not run: %s: %s", reason, unit)

    def failed(
        self,
        unit: UnitOfWork,
        payload: Payload,
        definition: JobDefinition | None,
        error: BaseException,
        seconds: float = 0.0,
    ) -> None:
        """
        Settle an attempt that raised *error* after *seconds*.

        Raises:
            RedisError: Redis is unreachable and the process is exiting. The job stays in flight and will be recovered.
        """
        if isinstance(error, Interrupted):
            self._interrupted(unit, payload, definition, seconds)
        elif has_stopped(error, definition):
            is_handled = self._around.extensions.handles(payload)
            self._succeed(
                unit, payload, definition, Outcome("done", payload), now_seconds(), seconds, is_handled=is_handled
            )
        else:
            self._fail(unit, payload, definition, error, seconds)

    def succeeded(
        self,
        unit: UnitOfWork,
        payload: Payload,
        definition: JobDefinition,
        result: Any,
        seconds: float,
        *,
        is_handled: bool,
        may_wait: bool = False,
    ) -> None:
        """
        Settle an attempt that returned. Its definition or an extension may write more than the acknowledgement.

        Args:
            seconds: How long it ran.
            is_handled: True if an extension handles the payload or this run.
            may_wait: Send the acknowledgement together with others, no matter how long the job ran.

        Raises:
            RedisError: As in `failed`.
        """
        around = self._around
        now = now_seconds()
        outcome = None
        if definition.decide_outcome is not None:
            attempt = Attempt(unit.raw, payload, unit.queue, result, None, around.config, around.dialect(), now)
            try:
                outcome = definition.decide_outcome(attempt)
            except Exception as error:  # noqa: BLE001 — a job whose outcome cannot be decided has failed
                self._fail(unit, payload, None, error, seconds)
                return
        if outcome is None and not is_handled:
            # Tasks that write no result end this way, and nothing is built for them.
            self.acknowledge(unit, payload, 0.0 if may_wait else seconds)
            return
        outcome = outcome or Outcome("done", payload)
        self._succeed(unit, payload, definition, outcome, now, seconds, is_handled=is_handled, may_wait=may_wait)

    def _succeed(
        self,
        unit: UnitOfWork,
        payload: Payload,
        definition: JobDefinition | None,
        outcome: Outcome,
        now: float,
        seconds: float,
        *,
        is_handled: bool,
        may_wait: bool = False,
    ) -> None:
        if is_handled:
            ended = Ended(unit.raw, payload, unit.queue, None, now, seconds)
            try:
                outcome = self._around.with_ends_of_extensions(ended, outcome)
            except ExtensionError as error:
                self._fail(unit, payload, definition, error, seconds)
                return
        if may_wait:
            seconds = 0.0
        if outcome.kind != "done" or outcome.afterwards is not None:
            self._carry_out(unit, Ended(unit.raw, payload, unit.queue, None, now, seconds), outcome)
        elif outcome.vital or outcome.trims or outcome.question is not None:
            # Like any success it may wait a moment for others: nothing depends on hearing that it was written.
            counters: Sequence[settle_script.Effect] = job_counts.count_commands(now, failed=False)
            if outcome.trims:
                counters = [*outcome.trims, *counters]
            self._finish(unit, payload, outcome.vital, counters, seconds, outcome.question)
        else:
            self.acknowledge(unit, payload, seconds)

    def _finish(
        self,
        unit: UnitOfWork,
        payload: Payload,
        vital: Sequence[settle_script.Effect],
        counters: Sequence[settle_script.Effect],
        seconds: float,
        question: Question | None = None,
    ) -> None:
        self._fetcher.finish(unit, vital, counters, seconds, question)
        _emit_settled("done", payload, unit.raw, unit.queue)

    def tallied(self, unit: UnitOfWork, payload: Payload, handled_by: Sequence[Extension], seconds: float) -> bool:
        """
        Settle a success whose only extra effect is a tally; those of many jobs are written together.

        Args:
            handled_by: The extensions that handle this job.

        Returns:
            False if more may have to be written, or if that is not known yet; call `succeeded` then.

        Raises:
            RedisError: As in `failed`.
        """
        tally = self._around.extensions.end_of_success(payload, handled_by)
        if tally is None:
            return False
        counters = job_counts.count_commands(now_seconds(), failed=False)
        self._finish(unit, payload, (tally,), counters, seconds)
        return True

    def acknowledge(self, unit: UnitOfWork, payload: Payload, seconds: float) -> None:
        """Settle a success that needs nothing but its acknowledgement."""
        self._fetcher.acknowledge(unit, seconds)
        # Also asked here, because the call is 1 % of a no-op job.
        if SETTLE.handlers:
            _emit_settled("done", payload, unit.raw, unit.queue)

    def rescued(self, unit: UnitOfWork, error: BaseException) -> None:
        """
        Settle a job as failed because something outside its own code went wrong.

        If the failure cannot be written either, the job goes to `dead`.
        """
        try:
            settle_or_leave(
                lambda: self._fail(unit, self._payload_if_handled(unit), None, error, is_reported=True), unit
            )
        except Exception as failure:  # noqa: BLE001 — no error may leave the job in flight forever
            context = {"context": "A job's end cannot be written; it is kept in dead", "jobstr": unit.raw}
            around = self._around
            around.hooks.report(failure, context)
            now, raw = now_seconds(), unit.raw
            payload = self._payload_if_handled(unit)
            end = JobEnd("dead", payload, raw, unit.queue, now, around.dialect(), failure, member=raw, score=now)
            vital = [*around.extensions.effects_of_dead(end, around.hooks.report), add_to_dead(raw, now)]
            counters = job_counts.count_commands(now, failed=True)
            settle_or_leave(lambda: self._fetcher.settle(unit, vital, counters), unit)

    def _payload_if_handled(self, unit: UnitOfWork) -> Payload:
        """The payload of a job that has not been parsed, if an extension handles it; else an empty one."""
        return parse_job_or_empty(unit.raw) if self._around.extensions.may_handle(unit.raw) else {}

    def unstarted(self, unit: UnitOfWork) -> None:
        """Put a job that was taken and has not started back into its queue."""
        self._requeue(unit, None, ())

    def _fail(
        self,
        unit: UnitOfWork,
        payload: Payload,
        definition: JobDefinition | None,
        error: BaseException,
        seconds: float = 0.0,
        *,
        is_reported: bool = False,
    ) -> None:
        now = now_seconds()
        outcome = self._around.after_failure(unit.raw, unit.queue, error, definition, now)
        self._end(unit, Ended(unit.raw, payload, unit.queue, error, now, seconds, is_reported), outcome)

    def _end(self, unit: UnitOfWork, ended: Ended, outcome: Outcome) -> None:
        """Settle the job with *outcome* and the effects of extensions."""
        self._carry_out(unit, ended, self._around.with_ends_of_extensions(ended, outcome))

    def _carry_out(self, unit: UnitOfWork, ended: Ended, outcome: Outcome) -> None:
        if outcome.kind == "requeue":
            self._requeue(unit, ended.error, outcome.vital)
            _emit_settled("requeue", ended.payload, unit.raw, unit.queue)
        elif not self._around.carry_out(ended, outcome, partial(self._fetcher.settle, unit)):
            log.info("a job ended after another process had taken it over; nothing was written: %s", unit)

    def _requeue(self, unit: UnitOfWork, error: BaseException | None, other: tuple[settle_script.Effect, ...]) -> None:
        """
        Put the job back into its queue, or run *other*, the commands that the job itself wants instead.

        A job that runs at most once goes back only if it asks for that itself, never because of a shutdown.
        """
        if other:
            self._fetcher.settle(unit, other, ())
        elif unit.is_acknowledged_early and not (error is not None and retry.is_caused_by_shutdown(error)):
            self._fetcher.settle(unit, push_back(unit.queue, unit.raw), ())
        else:
            self._fetcher.requeue([unit])

    def _interrupted(
        self, unit: UnitOfWork, payload: Payload, definition: JobDefinition | None, seconds: float
    ) -> None:
        """Put an iterable job that has saved its position back into its queue, in the step that ends this attempt."""
        around = self._around
        now = now_seconds()
        try:
            again = around.repush(payload)
            kind: EndKind = "stopped" if again is None else "interrupted"
            end = JobEnd(kind, payload, unit.raw, unit.queue, now, around.dialect(), seconds=seconds)
            ends = around.extensions.end_effects(end)
        except Exception as error:  # noqa: BLE001 — a client middleware that raises must not keep the job in flight
            self._fail(unit, payload, definition, error)
            return
        vital: list[settle_script.Effect] = []
        if again is not None:
            vital = [("SADD", keys.QUEUES, again.queue), ("LPUSH", keys.queue(again.queue), again.payload)]
            if again.score is not None:
                vital = [("ZADD", keys.SCHEDULE, again.score, again.payload)]
        # Counted as processed and as failed, as in Ruby, where the interruption reaches the counters as an exception.
        self._fetcher.settle(unit, [*ends, *vital], job_counts.count_commands(now, failed=True))
        _emit_settled("interrupted", payload, unit.raw, unit.queue)


def _emit_settled(outcome: str, payload: Payload, raw: bytes, queue: str) -> None:
    """Emit that an attempt was settled. Successes are queued then, and written with others within milliseconds."""
    if SETTLE.handlers:
        SETTLE.emit({"outcome": outcome, "payload": payload, "raw": raw, "queue": queue})


def push_back(queue: str, raw: bytes) -> Sequence[settle_script.Effect]:
    """The commands that return a job to the queue it was fetched from, where it is next in line."""
    return [("SADD", keys.QUEUES, queue), ("RPUSH", keys.queue(queue), raw)]


def is_success(failure: BaseException | None) -> bool:
    """True if the metrics count it as a success. As in Ruby, an iterable job that was interrupted or stopped is one."""
    return failure is None or isinstance(failure, Interrupted | Stopped)


def has_stopped(failure: BaseException, definition: JobDefinition | None) -> bool:
    """
    True if the job was asked to stop and has done so. It ends, and is reported, like a job that returned.

    This does not hold for a job that decides its own outcome: a Celery task has a result to write for whoever waits for
    it. Source: sidekiq-status 4.0.0, server_middleware.rb, which lets no `Stopped` through.
    """
    return isinstance(failure, Stopped) and (definition is None or definition.decide_outcome is None)


def settle_or_leave(settle: Callable[[], object], unit: UnitOfWork) -> None:
    """Settle the job. If Redis is unreachable while the process exits, leave it in flight to be recovered."""
    try:
        settle()
    except RedisError as error:
        log_left_behind(unit, error)


def log_left_behind(unit: UnitOfWork, error: RedisError) -> None:
    """Log that a job could not be settled, and what happens to it."""
    fate = "it will be recovered" if unit.owner is not None else "it was no longer in flight, so its outcome is lost"
    log.error("a job could not be settled before the process ended; %s: %s", fate, error)
