"""
How one attempt at a job ends.

Threads and the event loop run jobs each in their own way; what comes before and after is the same for both: find the
declared job, then settle success, failure, interruption or shutdown.
"""

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sidekiq_py.clock import now_seconds
from sidekiq_py.config import Config
from sidekiq_py.engine.fetch.fetcher import Fetcher
from sidekiq_py.engine.fetch.settle import utc_day
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.report import job_events
from sidekiq_py.engine.report.job_context import JobContext
from sidekiq_py.engine.run import retry
from sidekiq_py.engine.run.foreign_features import ForeignFeatures
from sidekiq_py.engine.run.metrics import ExecutionMetrics
from sidekiq_py.engine.run.work_state import WorkState
from sidekiq_py.errors import JobTooLargeError, PayloadError, RedisError, SidekiqError
from sidekiq_py.hooks import Hooks
from sidekiq_py.jobs.iterable import Interrupted
from sidekiq_py.middleware.chain import Chain, ServerMiddleware
from sidekiq_py.outcome import Attempt, Outcome
from sidekiq_py.program import Outgoing
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.redis_access.job_path.failed_jobs import add_to_dead
from sidekiq_py.registry import JobDefinition, Registry
from sidekiq_py.telemetry import JOB_EXCEPTION, JOB_START, JOB_STOP, SETTLE
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect

_log = logging.getLogger("sidekiq")

_SHOWN_BYTES = 200

Payload = dict[str, Any]
Repush = Callable[[Payload], Outgoing | None]


class HardLimitWatch(Protocol):
    """Who kills this process when a job runs past its hard limit."""

    def begin(self, unit: UnitOfWork, seconds: float) -> None:
        """A job starts."""

    def end(self) -> None:
        """It ended, and is not settled yet."""

    def terminate(self, unit: UnitOfWork, signal_number: int) -> None:
        """The job that runs is to be ended from outside."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a capsule's jobs run in; made by the launcher, shared by all its processors."""

    config: Config
    registry: Registry
    chain: Chain[ServerMiddleware]
    hooks: Hooks
    state: WorkState
    metrics: ExecutionMetrics
    context: JobContext
    identity: str
    dialect: Callable[[], Dialect]
    repush: Repush
    extensions: ForeignFeatures
    is_stopping: Callable[[], bool]

    def enter(self, payload: Payload, queue: str) -> None:
        """A job is about to run in this thread or task."""
        self.context.enter(payload)
        if JOB_START.handlers:
            JOB_START.emit({"payload": payload, "queue": queue, "identity": self.identity})

    def tell_stopped(self, payload: Payload, queue: str, seconds: float) -> None:
        """It ended well, and its end has been handed in."""
        if JOB_STOP.handlers:
            JOB_STOP.emit({"payload": payload, "queue": queue, "identity": self.identity, "seconds": seconds})

    def tell_raised(self, payload: Payload, queue: str, seconds: float, error: BaseException) -> None:
        """It raised, or was cut off; what becomes of it is decided next."""
        if JOB_EXCEPTION.handlers:
            is_failure = not (is_success(error) or retry.is_caused_by_shutdown(error))
            job_events.raised(payload, queue, self.identity, seconds, error, is_failure=is_failure)

    def after_failure(
        self, raw: bytes, queue: str, error: BaseException, definition: JobDefinition | None, now: float
    ) -> Outcome:
        """What becomes of a job of this process, or of a sibling's, whose run has raised; see `retry.after_failure`."""
        return retry.after_failure(
            raw,
            queue=queue,
            error=error,
            definition=definition,
            config=self.config,
            dialect=self.dialect(),
            now=now,
            draw=random.random,
            report=self.hooks.report,
        )


class AttemptEnd:
    """Settles the attempts of one capsule."""

    def __init__(self, surroundings: Surroundings, fetcher: Fetcher) -> None:
        self._around = surroundings
        self._fetcher = fetcher

    def unusable(self, unit: UnitOfWork, error: PayloadError) -> None:
        """The bytes are no job: keep them raw in `dead`."""
        self._fail(unit, {}, None, error)

    def buried(self, unit: UnitOfWork, payload: Payload, error: SidekiqError) -> None:
        """The job is not to be run: keep it in `dead` as it is."""
        now = now_seconds()
        self._carry_out(
            unit, payload, error, retry.dead_letter_untouched(unit.raw, payload, self._around.config, now), now
        )

    def too_large(self, unit: UnitOfWork) -> None:
        """It has more bytes than are taken here: keep them in `dead`, unread."""
        around = self._around
        now = now_seconds()
        text = f"the job has {len(unit.raw):,} bytes, and max_job_bytes is {around.config.max_job_bytes:,}"
        effects: Sequence[in_flight.Effect] = ()
        if around.registry.on_too_large is not None:
            text, effects = around.registry.on_too_large(unit.raw)
        context = {"context": "A job is kept in dead, unread", "jobstr": unit.raw[:_SHOWN_BYTES]}
        around.hooks.report(JobTooLargeError(text), context)
        outcome = retry.dead_letter_untouched(unit.raw, {}, around.config, now)
        outcome = outcome._replace(announce_death=False, vital=(*effects, *outcome.vital))
        self._carry_out(unit, {}, None, outcome, now)

    def failed(
        self, unit: UnitOfWork, payload: Payload, definition: JobDefinition | None, error: BaseException
    ) -> None:
        """
        The attempt raised.

        Raises:
            RedisError: Redis is out of reach and the process leaves; the job stays in flight and will be recovered.
        """
        if isinstance(error, Interrupted):
            self._interrupted(unit, payload, definition)
        else:
            self._fail(unit, payload, definition, error)

    def succeeded(
        self, unit: UnitOfWork, payload: Payload, definition: JobDefinition, result: Any, seconds: float
    ) -> None:
        """
        The attempt returned, and its definition may want more written than that the job is done.

        Raises:
            RedisError: As `failed`.
        """
        assert definition.conclude is not None
        around = self._around
        now = now_seconds()
        attempt = Attempt(unit.raw, payload, unit.queue, result, None, around.config, around.dialect(), now)
        try:
            outcome = definition.conclude(attempt)
        except Exception as error:  # noqa: BLE001 — a job whose end cannot be decided has not ended
            self._fail(unit, payload, None, error)
            return
        if outcome is None:
            self.acknowledge(unit, payload, seconds)
        elif outcome.kind == "done" and outcome.afterwards is None:
            # Like any success it may wait a moment for others, as nobody waits for word of it.
            counters: Sequence[in_flight.Effect] = in_flight.count_commands(utc_day(now), failed=False)
            if outcome.trims:
                counters = [*outcome.trims, *counters]
            self._fetcher.finish(unit, outcome.vital, counters, seconds, outcome.question)
            if SETTLE.handlers:
                job_events.settled("done", payload, unit.raw, unit.queue)
        else:
            self._carry_out(unit, payload, None, outcome, now)

    def acknowledge(self, unit: UnitOfWork, payload: Payload, seconds: float) -> None:
        """The attempt succeeded, and that is all there is to write."""
        self._fetcher.acknowledge(unit, seconds)
        if SETTLE.handlers:
            job_events.settled("done", payload, unit.raw, unit.queue)

    def rescued(self, unit: UnitOfWork, error: BaseException) -> None:
        """Something went wrong beside the job, so it has failed. Where not even this can be written, it is dead."""
        try:
            settle_or_leave(lambda: self.failed(unit, {}, None, error), unit)
        except Exception as failure:  # noqa: BLE001 — whatever it is, the job must not stay in flight for good
            context = {"context": "A job's end cannot be written; it is kept in dead", "jobstr": unit.raw}
            self._around.hooks.report(failure, context)
            now = now_seconds()
            end = [add_to_dead(unit.raw, now)], in_flight.count_commands(utc_day(now), failed=True)
            settle_or_leave(lambda: self._fetcher.settle(unit, *end), unit)

    def unstarted(self, unit: UnitOfWork) -> None:
        """The job was taken, and has not started: back to its queue."""
        if unit.is_acknowledged_early:
            self._fetcher.settle(unit, _push_back(unit), ())
        else:
            self._fetcher.requeue([unit])

    def _fail(self, unit: UnitOfWork, payload: Payload, definition: JobDefinition | None, error: BaseException) -> None:
        around = self._around
        now = now_seconds()
        outcome = around.after_failure(unit.raw, unit.queue, error, definition, now)
        self._carry_out(unit, payload, error, outcome, now)

    def _carry_out(
        self, unit: UnitOfWork, payload: Payload, error: BaseException | None, outcome: Outcome, now: float
    ) -> None:
        """Settle the job as *outcome* says, and tell the handlers of the *error*."""
        if outcome.kind == "requeue":
            self._requeue(unit, error, outcome.vital)
            if SETTLE.handlers:
                job_events.settled("requeue", payload, unit.raw, unit.queue)
            return
        around = self._around
        has_failed = outcome.kind != "done"
        counters = in_flight.count_commands(utc_day(now), failed=has_failed)
        was_ours = self._fetcher.settle(unit, outcome.vital, [*outcome.trims, *counters])
        if not was_ours:
            _log.info("a job ended that was given to somebody else meanwhile; nothing was written: %s", unit)
            return
        if SETTLE.handlers:
            job_events.settled(outcome.kind, payload, unit.raw, unit.queue)
        if payload and has_failed and error is not None:
            # What is no job at all has been reported as such on the way here.
            tell = around.hooks.tell if outcome.is_logged else around.hooks.report
            tell(error, {"context": "Job raised exception", "job": payload, "jobstr": unit.raw})
        if outcome.announce_death and error is not None:
            around.hooks.announce_death(outcome.payload, error)
        if outcome.afterwards is not None:
            try:
                outcome.afterwards()
            except RedisError as failure:
                _log.warning("a job has ended, and what was to follow its end was not done: %s", failure)

    def _requeue(self, unit: UnitOfWork, error: BaseException | None, other: tuple[in_flight.Effect, ...]) -> None:
        """
        Back to its queue, or *other*, what the job itself has in its place.

        One that runs at most once goes back only where it wants that itself, not by a stop.
        """
        if other:
            self._fetcher.settle(unit, other, ())
        elif unit.is_acknowledged_early and not (error is not None and retry.is_caused_by_shutdown(error)):
            self._fetcher.settle(unit, _push_back(unit), ())
        else:
            self._fetcher.requeue([unit])

    def _interrupted(self, unit: UnitOfWork, payload: Payload, definition: JobDefinition | None) -> None:
        """An iterable job has saved where it is: back to its queue, in the same step that ends this attempt."""
        try:
            again = self._around.repush(payload)
        except Exception as error:  # noqa: BLE001 — a client middleware that raises must not keep the job in flight
            self._fail(unit, payload, definition, error)
            return
        vital: list[tuple[Any, ...]] = []
        if again is not None:
            vital = [("SADD", keys.QUEUES, again.queue), ("LPUSH", keys.queue(again.queue), again.payload)]
            if again.score is not None:
                vital = [("ZADD", keys.SCHEDULE, again.score, again.payload)]
        # Counted as processed and failed, as in Ruby, where the interruption passes the counters as an exception.
        self._fetcher.settle(unit, vital, in_flight.count_commands(utc_day(now_seconds()), failed=True))
        if SETTLE.handlers:
            job_events.settled("interrupted", payload, unit.raw, unit.queue)


def _push_back(unit: UnitOfWork) -> list[in_flight.Effect]:
    return [("SADD", keys.QUEUES, unit.queue), ("RPUSH", keys.queue(unit.queue), unit.raw)]


def is_success(failure: BaseException | None) -> bool:
    """For the metrics: an interrupted iterable job has done its part, as in Ruby."""
    return failure is None or isinstance(failure, Interrupted)


def settle_or_leave(settle: Callable[[], object], unit: UnitOfWork) -> None:
    """Settle; where Redis is out of reach and the process leaves, the job is left in flight, to be recovered."""
    try:
        settle()
    except RedisError as error:
        fate = "it will be recovered" if unit.owner is not None else "it was in flight nowhere, so its end is lost"
        _log.error("a job could not be settled before the process ended; %s: %s", fate, error)
