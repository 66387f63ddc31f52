"""
One thread that takes a job, runs it and settles it, until there is nothing more to take.

*check the size → decode → turn away jobs with foreign features → find the declared job → middleware → perform →
settle.* An `async def` job is handed to the event loop, and the thread takes the next one.
"""

import math
import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sidekiq_py import tid
from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.copied_threads import forks
from sidekiq_py.engine.background import background_thread
from sidekiq_py.engine.fetch.fetcher import Fetcher
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.run.attempt import (
    AttemptEnd,
    HardLimitWatch,
    Payload,
    Surroundings,
    has_stopped,
    is_success,
    log_left_behind,
    settle_or_leave,
)
from sidekiq_py.engine.run.forked import end_fork
from sidekiq_py.engine.run.held_up import HeldUp
from sidekiq_py.engine.run.interrupts import INTERRUPTS, Guard, SoftLimits
from sidekiq_py.errors import (
    DeadLetteredError,
    ExtensionError,
    JobNotFoundError,
    PayloadError,
    RedisError,
    TerminatedError,
)
from sidekiq_py.extension import Drop, Extension, FetchedJob, Postpone
from sidekiq_py.logs import log
from sidekiq_py.middleware.chain import Chain, ServerMiddleware
from sidekiq_py.middleware.running import run
from sidekiq_py.registry import Admit, JobDefinition
from sidekiq_py.telemetry import JOB_START, JOB_STOP
from sidekiq_py.wire.json_writer import display_text
from sidekiq_py.wire.payload import parse_job

if TYPE_CHECKING:
    from sidekiq_py.engine.run.event_loop import EventLoop


_PAUSE_SECONDS = 1.0
_MOST_IN_A_ROW = 1000


class BetweenJobs(Protocol):
    """What the program's own thread does between two jobs; see `Processor.run_here`."""

    def __call__(self, lasted: float = math.inf) -> None:
        """
        Called after a job, before a wait, and at the end.

        Args:
            lasted: How long the job took, in seconds. Infinite if that is unknown, after every thousandth job, and
                before a wait.
        """


class Processor:
    """
    One of a capsule's job threads.

    Args:
        name: The thread's name.
    """

    def __init__(
        self,
        name: str,
        fetcher: Fetcher,
        surroundings: Surroundings,
        limits: SoftLimits,
        loop: "EventLoop | None",
    ) -> None:
        self._fetcher = fetcher
        self._around = surroundings
        self._identity = surroundings.identity
        self._limits = limits
        self._loop = loop
        self._ending = AttemptEnd(surroundings, fetcher)
        self._most_bytes = surroundings.config.max_job_bytes or sys.maxsize
        self._foreign = surroundings.foreign
        self._extensions = surroundings.extensions
        self._held_up = HeldUp()
        self._count_success = surroundings.metrics.success_counter()
        self._guard: Guard | None = None
        self._watch: HardLimitWatch | None = None
        self._tid = ""
        self._forks = 0
        # The return value of the last job that returned.
        self._result: Any = None
        # True if another process has settled the last job, which was sent a signal to end it.
        self._is_settled = False
        # The current job. Whatever goes wrong, this thread settles it or puts it back.
        self._unit: UnitOfWork | None = None
        # The last job whose end was queued or written. An error after that does not make the job fail.
        self._ended: UnitOfWork | None = None
        self._thread = background_thread(name, self._run)
        self._is_here = False
        self._between_jobs: BetweenJobs | None = None
        # How long the last job took in this thread; infinite until that is known.
        self._lasted = 0.0

    def start(self) -> None:
        """Start the thread. Does not block."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """True while the thread runs, and while `run_here` is about to run or runs."""
        return self._is_here or self._thread.is_alive()

    def keep_for_here(self) -> None:
        """Mark the processor as alive, because a thread is about to call `run_here`. Call this instead of `start`."""
        self._is_here = True

    def run_here(self, between_jobs: BetweenJobs) -> None:
        """
        Run jobs in the calling thread until there is nothing more to take.

        Args:
            between_jobs: Called after each job, before each wait, and at the end.
        """
        self._between_jobs = between_jobs
        try:
            self._run()
        finally:
            self._is_here = False

    @property
    def running(self) -> UnitOfWork | None:
        """The job that it runs now, or None."""
        entry = self._around.state.running.get(self._tid)
        return entry[0] if entry else None

    def watch_hard_limits(self, watch: HardLimitWatch) -> None:
        """Report jobs that have a hard limit to *watch*."""
        self._watch = watch

    def interrupt(self, kind: type[BaseException], only: UnitOfWork | None = None) -> bool:
        """
        Raise *kind* in the running job, if there is one.

        Args:
            only: Do nothing unless this job is the running one.

        Returns:
            False if nothing was raised.
        """
        unit = only or self.running
        return unit is not None and self._guard is not None and self._guard.interrupt(unit, kind)

    def terminate(self, unit: UnitOfWork, signal_number: int) -> bool:
        """
        Have another process settle *unit* as ended from outside, and then call `send_signal` here.

        Returns:
            False if the job has ended, or if no parent process watches this one.
        """
        guard, watch = self._guard, self._watch
        if guard is None or watch is None:
            return False
        return guard.terminate(unit, lambda: watch.terminate(unit, signal_number))

    def send_signal(self, number: int, send: Callable[[int], None]) -> None:
        """Deliver the signal to the terminated job, which another process has settled."""
        if self._guard is not None:
            self._guard.send_signal(number, send)

    def _run(self) -> None:
        self._guard = self._guard or Guard()
        self._tid = tid.current()
        self._forks = len(forks)
        while True:
            self._give_back()
            try:
                self._work()
                return
            except BaseException as error:  # noqa: BLE001 — the thread goes on with the next job
                self._report(error, {"context": "Internal error while fetching"})
                threading.Event().wait(_PAUSE_SECONDS)

    def _work(self) -> None:
        take, between_jobs, taken = self._fetcher.take, self._between_jobs, 0
        while (unit := take(between_jobs)) is not None:
            # Inlined: a call for each check took 4 % of a no-op job.
            if len(forks) != self._forks:
                end_fork(None)
            self._unit = unit
            self._lasted = math.inf
            try:
                # What a job leaves in context variables, such as a tenant or a bound logger, is not for the next one.
                copy_context().run(self._process, unit)
            except BaseException as error:  # noqa: BLE001 — no error may end the thread
                self._rescue(unit, error)
            finally:
                self._around.state.running.pop(self._tid, None)
            self._unit = None
            if between_jobs is not None:
                # Now, because the next fetch may take seconds, and what the job left behind must not receive signals.
                taken += 1
                between_jobs(self._lasted if taken % _MOST_IN_A_ROW else math.inf)
        if between_jobs is not None:
            between_jobs()

    def _give_back(self) -> None:
        """Put back the job that this thread had when it failed, unless the job's end was queued or written."""
        unit = self._unit
        if self._guard is not None:
            self._guard.performing = None
        if unit is not None and unit is not self._ended:
            self._fetcher.requeue([unit])
        self._unit = None

    def _rescue(self, unit: UnitOfWork, error: BaseException) -> None:
        """Settle the job after an error outside its code: it must not stay in flight for the life of this process."""
        self._report(error, {"context": "Internal error", "jobstr": unit.raw})
        if self._ended is not unit:
            self._ending.rescued(unit, error)

    def _settle(self, unit: UnitOfWork, settle: Callable[[], object]) -> None:
        settle_or_leave(settle, unit)
        self._ended = unit

    def _report(self, error: BaseException, context: dict[str, Any]) -> None:
        try:
            self._around.hooks.report(error, context)
        except BaseException:  # noqa: BLE001 — a handler that calls sys.exit() must not end the thread
            log.exception("an error handler failed")

    def _process(self, unit: UnitOfWork) -> None:
        started = monotonic()
        if len(unit.raw) > self._most_bytes:
            self._settle(unit, lambda: self._ending.too_large(unit))
            return
        try:
            payload = parse_job(unit.raw)
        except PayloadError as error:
            self._settle(unit, partial(self._ending.unusable, unit, error))
            return
        if not self._foreign.watched.isdisjoint(payload) and self._is_turned_away(unit, payload):
            return
        # Looked up once per job: doing it in four places cost a no-op job 10 % of its time.
        handled_by: Sequence[Extension] = ()
        if not self._extensions.keys.isdisjoint(payload):
            handled_by = self._extensions.handlers_of(payload)
            if not self._extensions.may_hold_up(payload, handled_by):
                self._held_up.forget(payload)
            elif self._is_held_up(unit, payload):
                return
        definition = self._around.registry.find_for(payload)
        if definition is None:
            self._not_found(unit, payload, started)
            return
        if definition.admit is not None and self._is_rescheduled(unit, payload, definition.admit):
            return
        if definition.is_async and self._loop is not None:
            self._fetcher.note_async(unit.queue)
            self._lasted = 0.0
            if not self._loop.submit(unit, payload, definition, self._ending, self._fetcher):
                self._fetcher.requeue([unit])
            return
        try:
            self._run_here(unit, payload, definition, started, handled_by)
        finally:
            if self._extensions.handled_runs:
                self._extensions.forget_run(payload)

    def _is_turned_away(self, unit: UnitOfWork, payload: Payload) -> bool:
        """Settle or put back a job that must not run here, without counting it. Returns False if the job may run."""
        try:
            decision = self._foreign.decide(unit, payload)
        except RedisError:
            # Decided again on the next fetch.
            self._fetcher.requeue([unit])
            return True
        if decision is None:
            return False
        policy, error = decision
        if policy == "bury":
            self._settle(unit, lambda: self._ending.dead_lettered(unit, payload, error))
        else:
            self._foreign.refuse(unit, payload, error, self._fetcher)
        return True

    def _is_held_up(self, unit: UnitOfWork, payload: Payload) -> bool:
        """Settle a job that an extension does not let start, without counting it. Returns False if it may start."""
        around = self._around
        now = now_seconds()
        try:
            decision = self._extensions.admission(FetchedJob(payload, unit.raw, unit.queue, now, around.dialect()))
        except ExtensionError as error:
            at = now + self._held_up.pause_seconds(payload)
            around.hooks.report(error, {"context": "The job waits and is tried again", "job": payload})
            decision = Postpone(at, str(error))
        if decision is None:
            self._held_up.forget(payload)
            return False
        if isinstance(decision, Postpone):
            self._held_up.note(payload, decision.reason)
            self._settle(unit, partial(self._ending.postponed, unit, decision.at))
        elif isinstance(decision, Drop):
            self._settle(unit, partial(self._ending.invalidated, unit, payload, decision.reason))
        else:
            refusal = DeadLetteredError(decision.reason)
            self._settle(unit, partial(self._ending.dead_lettered, unit, payload, refusal))
        return True

    def _is_rescheduled(self, unit: UnitOfWork, payload: Payload, admit: Admit) -> bool:
        """Move a job that must start later to `schedule`, without counting it. Returns False if it may start now."""
        try:
            later = admit(payload, self._around.dialect())
        except RedisError:
            # Decided again on the next fetch.
            self._fetcher.requeue([unit])
            return True
        if later is None:
            return False
        # Before the job is written: once it is, another process may start it.
        self._extensions.forget_start(payload)
        member, score = later
        self._ending.postponed(unit, score, member)
        return True

    def _not_found(self, unit: UnitOfWork, payload: Payload, started: float) -> None:
        """Fail a job that is not declared. As in Ruby, it starts and fails like any other."""
        wrapped = payload.get("wrapped")
        missing = JobNotFoundError(display_text(wrapped or payload["class"]), is_active_job=bool(wrapped))
        around = self._around
        around.enter(payload, unit.queue)
        around.emit_raised(payload, unit.queue, monotonic() - started, missing)
        self._settle(unit, lambda: self._ending.failed(unit, payload, None, missing))
        around.context.leave()

    def _run_here(
        self,
        unit: UnitOfWork,
        payload: Payload,
        definition: JobDefinition,
        started: float,
        handled_by: Sequence[Extension],
    ) -> None:
        watch = self._watch if definition.hard_timeout_seconds is not None else None
        if definition.is_acknowledged_early:
            limit = definition.hard_timeout_seconds if watch is not None else None
            if not self._fetcher.acknowledge_early(unit, hard_limit_seconds=limit):
                return
        around = self._around
        running = around.state.running
        running[self._tid] = (unit, started)
        # Inlined from `enter` and `emit_stopped`: with a handler, each extra call cost 2 % of a no-op job.
        around.context.enter(payload)
        if JOB_START.handlers:
            JOB_START.emit({"payload": payload, "queue": unit.queue, "identity": self._identity})
        if watch is not None:
            watch.begin(unit, definition.hard_timeout_seconds or 0.0)
        chain = around.chain_for(payload) if handled_by else around.chain
        failure = self._perform(unit, payload, definition, chain)
        if watch is not None:
            watch.end()
        seconds = self._lasted = monotonic() - started
        if failure is None:
            result, self._result = self._result, None
            # A job can also make an extension handle its run while it runs.
            is_handled = bool(handled_by) or (bool(self._extensions.handled_runs) and self._extensions.handles(payload))
            try:
                if definition.decide_outcome is None and not is_handled:
                    self._ending.acknowledge(unit, payload, seconds)
                elif definition.decide_outcome is not None or not self._ending.tallied(
                    unit, payload, handled_by, seconds
                ):
                    self._ending.succeeded(unit, payload, definition, result, seconds, is_handled=is_handled)
            except RedisError as error:
                log_left_behind(unit, error)
            self._ended = unit
            if JOB_STOP.handlers:
                JOB_STOP.emit({"payload": payload, "queue": unit.queue, "identity": self._identity, "seconds": seconds})
            self._count_success(payload, unit.queue, seconds, started)
        else:
            ends_as_done = has_stopped(failure, definition)
            if not ends_as_done:
                around.emit_raised(payload, unit.queue, seconds, failure)
            if self._is_settled:
                self._settle(unit, lambda: self._fetcher.settle(unit, (), ()))
            else:
                self._settle(unit, lambda: self._ending.failed(unit, payload, definition, failure, seconds))
            if ends_as_done:
                around.emit_stopped(payload, unit.queue, seconds)
                self._count_success(payload, unit.queue, seconds, started)
            else:
                around.metrics.record(payload, seconds, is_success(failure))
        around.context.leave()
        del running[self._tid]

    def _perform(
        self, unit: UnitOfWork, payload: Payload, definition: JobDefinition, chain: Chain[ServerMiddleware]
    ) -> BaseException | None:
        """Run the job and return what it raised, or None. Interrupts can arrive only in here."""
        guard = self._guard
        assert guard is not None
        failure: BaseException | None = None
        is_done = False
        try:
            self._is_settled = False
            guard.performing = unit
            deadline = None
            if definition.timeout_seconds is not None:
                report = partial(definition.report_timeout, payload)
                self._limits.watch(guard, unit, definition.timeout_seconds, definition.timeout_error, report)
                deadline = now_seconds() + definition.timeout_seconds
            try:
                self._result = run(definition, payload, unit.queue, chain, self._around.is_stopping, deadline)
                is_done = True
            except BaseException as error:  # noqa: BLE001 — SystemExit and Shutdown end the job, not the thread
                failure = error
            guard.performing = None
        except INTERRUPTS as error:
            # The interrupt arrived just before or after the job's own code. A job that is done stays done.
            guard.performing = None
            if not is_done and failure is None:
                failure = error
        # From Python 3.13 on, the exception can be raised one check later than the bytecode at which the job lost the
        # interpreter lock to the interrupter. If the job ends in between, that is at the start of the next function.
        while True:
            try:
                if len(forks) != self._forks:
                    end_fork(failure)
                if guard.is_requested:
                    guard.absorb()
                break
            except INTERRUPTS:
                continue
        if guard.terminated is not None:
            failure = self._after_terminated(guard, failure)
        return failure

    def _after_terminated(self, guard: Guard, failure: BaseException | None) -> BaseException | None:
        """Clean up after a job that was terminated from outside, and return the error that it failed with."""
        signal_number, is_terminated = guard.pardon()
        watch = self._watch
        assert watch is not None
        watch.end()
        if is_terminated:
            # The process goes, as Celery's does by SystemExit: the exception may have been raised anywhere.
            self._fetcher.quiet()
            watch.replace()
        self._is_settled = signal_number is not None
        return failure if signal_number is None else TerminatedError(signal_number)
