"""
The event loop that runs `async def` jobs: one per process, with its own concurrency.

Processors fetch and decode a job and hand it to the loop. The loop runs it and queues its acknowledgement, which the
flusher sends. Work that would block the loop, such as settling a failure, runs in separate threads.
"""

import asyncio
import contextvars
import itertools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from traceback import StackSummary
from typing import Any, TypeVar

from sidekiq_py import tid
from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.copied_threads import forks
from sidekiq_py.engine.background import background_thread
from sidekiq_py.engine.fetch.fetcher import Fetcher
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.run.attempt import AttemptEnd, Payload, Surroundings, has_stopped, is_success, settle_or_leave
from sidekiq_py.engine.run.forked import end_fork
from sidekiq_py.engine.run.thread_dump import awaited_stack
from sidekiq_py.errors import Shutdown, TerminatedError
from sidekiq_py.middleware.mixed_chain import fulfil
from sidekiq_py.middleware.running import arun
from sidekiq_py.registry import JobDefinition

T = TypeVar("T")

# Settling in a hundred threads at once takes twice the CPU time that it takes in four.
_SETTLING_THREADS = 4
# An end that has waited this long for one of these threads gets another thread: all of them are waiting for something,
# such as an error handler that talks to a slow service. With handlers that took 0.2 s, some jobs were acknowledged 6 s
# after their end.
_MOST_WAITING_SECONDS = 0.2
_AFTER_FAILED_START_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class _Run:
    """One job on the loop."""

    unit: UnitOfWork
    payload: Payload
    definition: JobDefinition
    ending: AttemptEnd
    fetcher: Fetcher
    slot: int = 0
    has_started: bool = False
    # Its end has been queued or written, or another process owns the job.
    has_ended: bool = False
    is_performing: bool = False
    task: asyncio.Task[None] | None = None
    # Puts the job back. Kept here because the loop itself holds no tasks.
    return_task: asyncio.Task[None] | None = None
    result: Any = None


class EventLoop:
    """
    The event loop of a process.

    Args:
        concurrency: How many jobs run on it at once.
        on_room: Called when a full loop has a free slot again.
    """

    def __init__(self, surroundings: Surroundings, concurrency: int, on_room: Callable[[], None]) -> None:
        self._around = surroundings
        self._concurrency = concurrency
        self._wanted = concurrency
        self._slots = itertools.count(concurrency + 1)
        self._on_room = on_room
        self._lock = threading.Lock()
        self._free_slots = deque(range(1, concurrency + 1))
        self._waiting: deque[_Run] = deque()
        self._is_woken = False
        self._forks = 0
        self._is_closing = False
        self._count_success = surroundings.metrics.success_counter()
        self._runs: dict[UnitOfWork, _Run] = {}
        # Made by `start`: a worker that cannot start would leave it open.
        self._loop: asyncio.AbstractEventLoop
        self._thread = background_thread("sidekiq.loop", self._serve)
        self._settling = ThreadPoolExecutor(_SETTLING_THREADS, thread_name_prefix="sidekiq.settle")

    @property
    def running(self) -> int:
        """The number of jobs on the loop."""
        return self._concurrency - len(self._free_slots)

    def room(self) -> int | None:
        """How many more jobs may start. None while the loop is idle: then the next jobs need not be async ones."""
        free = len(self._free_slots)
        return None if free == self._concurrency else free

    def start(self) -> None:
        """Start the loop's thread, and the first of those that settle; see `_queue`."""
        self._settling.submit(lambda: None)
        self._loop = asyncio.new_event_loop()
        self._loop.call_soon(self._resize)
        self._thread.start()

    def submit(
        self, unit: UnitOfWork, payload: Payload, definition: JobDefinition, ending: AttemptEnd, fetcher: Fetcher
    ) -> bool:
        """Start a job. Returns False if the loop is full."""
        run = _Run(unit, payload, definition, ending, fetcher)
        try:
            run.slot = self._free_slots.popleft()
        except IndexError:
            return False
        try:
            self._waiting.append(run)
            with self._lock:
                is_woken, self._is_woken = self._is_woken, True
            if not is_woken:
                self._loop.call_soon_threadsafe(self._start_waiting)
        except BaseException:
            # The next job wakes the loop. If the loop has taken this job already, it keeps it.
            self._is_woken = False
            try:
                self._waiting.remove(run)
            except ValueError:
                return True
            self._free_slots.append(run.slot)
            raise
        return True

    def resize(self, concurrency: int) -> None:
        """Run this many jobs at once from now on. Jobs above the new limit are not stopped."""
        self._wanted = concurrency
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._resize)

    def shut_down_jobs(self) -> None:
        """Cancel all running jobs; each goes back to its queue."""
        self._loop.call_soon_threadsafe(self._cancel_all)

    def runs(self, unit: UnitOfWork) -> bool:
        """True if the job runs on this loop. Safe to call from any thread."""
        return unit in self._runs

    def cancel(self, unit: UnitOfWork, error: Exception) -> bool:
        """
        Cancel one job, which then ends as if it had raised *error*. Safe to call from any thread.

        Returns:
            False if the job is not on this loop.
        """
        if unit not in self._runs:
            return False
        self._loop.call_soon_threadsafe(self._cancel, unit, error)
        return True

    def close(self) -> None:
        """Stop the loop. Jobs that still run on it are abandoned."""
        self._is_closing = True
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=1)
        self._settling.shutdown(wait=False)

    def tasks(self) -> list[tuple[str, StackSummary]]:
        """One line for each running job, and where it waits, for a thread dump."""
        return [(f"{run.definition.name} {run.task!r}", awaited_stack(run.task)) for run in list(self._runs.values())]

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._forks = len(forks)
        while not self._is_closing:
            try:
                # This call ends when a task of the program raises SystemExit, or when a job stops the loop. The other
                # jobs must go on.
                self._loop.run_forever()
            except BaseException as error:  # noqa: BLE001 — without this thread no async job would ever run again
                self._around.hooks.report(error, {"context": "A task stopped the event loop; the loop restarts"})
        self._loop.close()

    def _start_waiting(self) -> None:
        with self._lock:
            self._is_woken = False
        while True:
            try:
                run = self._waiting.popleft()
            except IndexError:
                return
            self._runs[run.unit] = run
            try:
                run.task = self._new_task(run)
            except BaseException as error:  # noqa: BLE001 — the program's task factory must not lose the job
                self._around.hooks.report(error, {"context": "An async job could not be started"})
                # If it returned at once, it would be fetched and fail again, hundreds of times a second.
                self._loop.call_later(_AFTER_FAILED_START_SECONDS, self._finish, run)

    def _new_task(self, run: _Run) -> "asyncio.Task[None]":
        steps = self._run(run)
        try:
            task = self._loop.create_task(steps, name=f"sidekiq.job {run.definition.name}")
        except BaseException:
            steps.close()
            raise
        # The callback also covers a task that is cancelled before its first step and so never enters `_run`.
        task.add_done_callback(lambda task: self._finish(run))
        return task

    def _finish(self, run: _Run) -> None:
        """Free the slot of a finished task. If its job has not ended, return the job to the queue first."""
        if run.has_ended:
            self._release(run)
        else:
            # Not with `create_task`: the program's task factory must not lose the job.
            run.return_task = asyncio.Task(self._give_back(run), loop=self._loop)
            # If the program cancels it before its first step, as one does that cancels all tasks, it never ran.
            run.return_task.add_done_callback(lambda task: self._finish(run) if task.cancelled() else None)

    async def _give_back(self, run: _Run) -> None:
        give_back = partial(run.fetcher.requeue, [run.unit])
        if not run.has_started:
            give_back = partial(settle_or_leave, partial(run.ending.unstarted, run.unit), run.unit)
        try:
            await self._in_thread(give_back)
        finally:
            self._release(run)

    def _resize(self) -> None:
        was_full = not self._free_slots
        while self._concurrency < self._wanted:
            self._concurrency += 1
            self._free_slots.append(next(self._slots))
        while self._concurrency > self._wanted:
            try:
                self._free_slots.pop()
            except IndexError:
                # All slots are taken: the next job that ends gives up its slot.
                return
            self._concurrency -= 1
        if was_full and self._free_slots:
            self._on_room()

    def _cancel_all(self) -> None:
        self._start_waiting()
        for run in list(self._runs.values()):
            if run.task is not None:
                run.task.cancel(Shutdown())

    def _cancel(self, unit: UnitOfWork, error: Exception) -> None:
        run = self._runs.get(unit)
        # A job that is no longer performing has ended, even if its end is still being written.
        if run is not None and run.task is not None and run.is_performing:
            run.task.cancel(error)

    async def _run(self, run: _Run) -> None:
        around = self._around
        name = ""
        try:
            name = tid.take_slot(run.slot)
            started = monotonic()
            around.state.running[name] = (run.unit, started)
            if run.definition.is_acknowledged_early and not await self._acknowledged_early(run):
                run.has_ended = True
                return
            run.has_started = True
            failure = await self._perform(run)
            if len(forks) != self._forks:
                end_fork(failure)
            seconds = monotonic() - started
            if failure is None:
                self._count_success(run.payload, run.unit.queue, seconds, started)
                await self._acknowledge(run, seconds)
                run.has_ended = True
                around.emit_stopped(run.payload, run.unit.queue, seconds)
            elif has_stopped(failure, run.definition):
                self._count_success(run.payload, run.unit.queue, seconds, started)
                await self._settle(run, failure, seconds)
                run.has_ended = True
                around.emit_stopped(run.payload, run.unit.queue, seconds)
            else:
                around.metrics.record(run.payload, seconds, is_success(failure))
                # Before the end is written, as in a thread, so that the log line `fail` precedes the error report.
                around.emit_raised(run.payload, run.unit.queue, seconds, failure)
                await self._settle(run, failure, seconds)
                run.has_ended = True
        except asyncio.CancelledError:
            # The cancellation came outside the job's own code: the job has not ended and goes back.
            pass
        except BaseException as error:  # noqa: BLE001 — whatever goes wrong outside the job, it must come to an end
            around.hooks.report(error, {"context": "Internal error", "jobstr": run.unit.raw})
            if not run.has_ended:
                await self._rescue(run, error)
        finally:
            around.context.leave()
            around.extensions.forget_run(run.payload)
            around.state.running.pop(name, None)

    async def _perform(self, run: _Run) -> BaseException | None:
        limit = run.definition.timeout_seconds
        around = self._around
        deadline = None if limit is None else now_seconds() + limit
        scope = asyncio.timeout(limit)
        try:
            around.enter(run.payload, run.unit.queue)
            run.is_performing = True
            async with scope:
                run.result = await arun(
                    run.definition,
                    run.payload,
                    run.unit.queue,
                    around.chain_for(run.payload),
                    around.is_stopping,
                    deadline,
                )
        except TimeoutError as error:
            if scope.expired():
                return run.definition.timeout_error(f"the job ran longer than its timeout of {limit} s")
            return error
        except asyncio.CancelledError as error:
            reason = next((reason for reason in error.args if isinstance(reason, Shutdown | TerminatedError)), None)
            if reason is None and around.is_stopping():
                return Shutdown()
            return error if reason is None else reason
        except BaseException as error:  # noqa: BLE001 — a SystemExit ends the job, not the loop
            return error
        finally:
            run.is_performing = False
        return None

    async def _acknowledged_early(self, run: _Run) -> bool:
        is_ours = await self._in_thread(partial(run.fetcher.acknowledge_early, run.unit))
        # A job that was cancelled meanwhile goes back, but only if it is still ours.
        if is_ours and run.task is not None and run.task.cancelling():
            raise asyncio.CancelledError
        return is_ours

    async def _acknowledge(self, run: _Run, seconds: float) -> None:
        unit, payload, definition = run.unit, run.payload, run.definition
        is_handled = self._around.extensions.handles(payload)
        if definition.decide_outcome is not None or is_handled:
            await self._settle_in_thread(
                lambda: run.ending.succeeded(
                    unit, payload, definition, run.result, seconds, is_handled=is_handled, may_wait=True
                ),
                unit,
            )
            return
        # 0 seconds lets the acknowledgement wait for others, so this thread never sends it.
        acknowledge = partial(run.ending.acknowledge, unit, payload, 0.0)
        if unit.is_marked or unit.owner is None:
            # These jobs need a script of their own to settle. Those without an owner have left Redis already: with the
            # basic fetcher, or because they were acknowledged early.
            await self._settle_in_thread(acknowledge, unit)
        else:
            acknowledge()

    async def _settle(self, run: _Run, failure: BaseException, seconds: float) -> None:
        await self._settle_in_thread(
            lambda: run.ending.failed(run.unit, run.payload, run.definition, failure, seconds), run.unit
        )

    async def _rescue(self, run: _Run, error: BaseException) -> None:
        """Settle the job as failed, as a thread does: it must not stay in flight for the life of this process."""
        try:
            await self._settle_in_thread(lambda: run.ending.rescued(run.unit, error), run.unit)
            run.has_ended = True
        except Exception as failure:  # noqa: BLE001 — the job then goes back
            self._around.hooks.report(failure, {"context": "Internal error", "jobstr": run.unit.raw})

    async def _settle_in_thread(self, settle: Callable[[], None], unit: UnitOfWork) -> None:
        """Settle in another thread: waiting for Redis here would block every other job on the loop."""
        # `decide_outcome` may read context variables that the job set while it ran.
        run = contextvars.copy_context().run
        # The job has ended, so a cancellation of its task comes too late.
        await self._in_thread(partial(run, settle_or_leave, settle, unit))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Call in another thread and return the result, even if the task is cancelled meanwhile."""
        queued = self._queue(call)
        future = asyncio.wrap_future(queued)
        with suppress(asyncio.CancelledError):
            await asyncio.wait((future,), timeout=_MOST_WAITING_SECONDS)
        if queued.cancel():
            # It had not begun.
            queued = Future()
            try:
                # A thread for this call alone. No pool takes calls once the program's main thread has ended, although
                # others may keep the program, and this worker in it, alive.
                threading.Thread(target=fulfil, args=(call, queued), name="sidekiq.settle-late", daemon=True).start()
            except RuntimeError:
                # The system allows no more threads.
                queued = self._queue(call)
            future = asyncio.wrap_future(queued)
        return await _to_its_end(future)

    def _queue(self, call: Callable[[], T]) -> "Future[T]":
        """Queue a call for one of the settling threads, which makes it once."""
        future: Future[T] = Future()
        # If the system allows no more threads, this queues the call and raises. The first thread makes the call then.
        # After the end of the program's main thread, it raises without queueing it.
        with suppress(RuntimeError):
            self._settling.submit(fulfil, call, future)
        return future

    def _release(self, run: _Run) -> None:
        self._runs.pop(run.unit, None)
        was_full = not self._free_slots
        self._free_slots.append(run.slot)
        if self._concurrency > self._wanted:
            self._resize()
        elif was_full:
            self._on_room()


async def _to_its_end(future: "asyncio.Future[T]") -> T:
    """Wait for *future* and return its result, even if the waiting task is cancelled meanwhile."""
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((future,))
    return future.result()
