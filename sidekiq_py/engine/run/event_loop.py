"""
`async def` jobs: one event loop per process, with a concurrency of its own.

Processors fetch and decode and hand the job over; the loop runs it and gathers its acknowledgement, which the flusher
hands in. Whatever would block the loop (settling a failure) is done by a thread of its own.
"""

import asyncio
import contextvars
import itertools
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from sidekiq_py import tid
from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.engine.background import background_thread
from sidekiq_py.engine.fetch.fetcher import Fetcher
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.run.attempt import AttemptEnd, Payload, Surroundings, is_success, settle_or_leave
from sidekiq_py.engine.run.forked import leave_if_forked
from sidekiq_py.errors import Shutdown, TerminatedError
from sidekiq_py.middleware.running import arun
from sidekiq_py.registry import JobDefinition

T = TypeVar("T")

_log = logging.getLogger("sidekiq")


class _Run:
    """One job on the loop."""

    __slots__ = (
        *("definition", "ending", "fetcher", "has_ended", "has_started", "is_performing", "payload", "result", "slot"),
        *("task", "unit"),
    )

    def __init__(
        self, unit: UnitOfWork, payload: Payload, definition: JobDefinition, ending: AttemptEnd, fetcher: Fetcher
    ) -> None:
        self.unit = unit
        self.payload = payload
        self.definition = definition
        self.ending = ending
        self.fetcher = fetcher
        self.slot = 0
        self.has_started = False
        # Its end has been handed in, or the job is somebody else's.
        self.has_ended = False
        self.is_performing = False
        self.task: asyncio.Task[None] | None = None
        self.result: Any = None


class EventLoop:
    """
    The loop of a process.

    Args:
        concurrency: How many jobs run on it at once.
        on_room: Called when a full loop has room again.
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
        self._is_told = False
        self._pid = 0
        self._is_closing = False
        self._count_success = surroundings.metrics.success_counter()
        self._runs: dict[UnitOfWork, _Run] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = background_thread("sidekiq.loop", self._serve)
        self._settling = ThreadPoolExecutor(max_workers=4, thread_name_prefix="sidekiq.settle")

    def __repr__(self) -> str:
        return f"<EventLoop running={self.running} of {self._concurrency}>"

    @property
    def running(self) -> int:
        """How many jobs are on the loop."""
        return self._concurrency - len(self._free_slots)

    def room(self) -> int | None:
        """How many more may start; None while there are none: nothing then says that the next ones are async."""
        free = len(self._free_slots)
        return None if free == self._concurrency else free

    def start(self) -> None:
        """Start the loop's thread."""
        self._thread.start()

    def submit(
        self, unit: UnitOfWork, payload: Payload, definition: JobDefinition, ending: AttemptEnd, fetcher: Fetcher
    ) -> bool:
        """Start a job; False: the loop is full."""
        run = _Run(unit, payload, definition, ending, fetcher)
        try:
            run.slot = self._free_slots.popleft()
        except IndexError:
            return False
        try:
            self._waiting.append(run)
            with self._lock:
                is_told, self._is_told = self._is_told, True
            if not is_told:
                self._loop.call_soon_threadsafe(self._start_waiting)
        except BaseException:
            # The next one tells the loop; if that has this job already, the job is the loop's.
            self._is_told = False
            if not self._take_back(run):
                return True
            self._free_slots.append(run.slot)
            raise
        return True

    def _take_back(self, run: _Run) -> bool:
        try:
            self._waiting.remove(run)
        except ValueError:
            return False
        return True

    def resize(self, concurrency: int) -> None:
        """Run so many at once from now on; of too many, none is stopped."""
        self._wanted = concurrency
        self._loop.call_soon_threadsafe(self._resize)

    def shut_down_jobs(self) -> None:
        """Cancel what runs; each goes back to its queue."""
        self._loop.call_soon_threadsafe(self._cancel_all)

    def runs(self, unit: UnitOfWork) -> bool:
        """The job runs here. From any thread."""
        return unit in self._runs

    def cancel(self, unit: UnitOfWork, error: Exception) -> bool:
        """Cancel one job, which ends as by *error*. False: it is not here. From any thread."""
        if unit not in self._runs:
            return False
        self._loop.call_soon_threadsafe(self._cancel, unit, error)
        return True

    def close(self) -> None:
        """Stop the loop. What still runs there is abandoned."""
        self._is_closing = True
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=1)
        self._settling.shutdown(wait=False)

    def task_lines(self) -> list[str]:
        """What runs, for a thread dump."""
        return [f"{run.definition.name} {run.task!r}" for run in list(self._runs.values())]

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._pid = os.getpid()
        while not self._is_closing:
            try:
                # A task of the program that ends by SystemExit ends this call, and so does a job that stops the loop:
                # the other jobs go on.
                self._loop.run_forever()
            except BaseException as error:  # noqa: BLE001 — without this thread no async job would ever run again
                self._around.hooks.report(error, {"context": "A task of the program ended the event loop; it goes on"})
        self._loop.close()

    def _start_waiting(self) -> None:
        with self._lock:
            self._is_told = False
        while True:
            try:
                run = self._waiting.popleft()
            except IndexError:
                return
            self._runs[run.unit] = run
            try:
                run.task = self._new_task(run)
            except BaseException as error:  # noqa: BLE001 — a task factory of the program must not cost the job
                self._around.hooks.report(error, {"context": "An async job could not be started"})
                self._finish(run)

    def _new_task(self, run: _Run) -> "asyncio.Task[None]":
        steps = self._run(run)
        try:
            task = self._loop.create_task(steps, name=f"sidekiq.job {run.definition.name}")
        except BaseException:
            steps.close()
            raise
        # Also where the task is cancelled before its first step, which then never comes.
        task.add_done_callback(lambda task: self._finish(run))
        return task

    def _finish(self, run: _Run) -> None:
        """The task is over: its slot is free, and a job that has not ended goes back."""
        try:
            if not run.has_ended:
                give_back = partial(run.fetcher.requeue, [run.unit])
                if not run.has_started:
                    give_back = partial(settle_or_leave, partial(run.ending.unstarted, run.unit), run.unit)
                self._settling.submit(give_back)
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
                # All are taken; whoever ends first gives one up.
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
        # Whose end is being written has ended.
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
            leave_if_forked(self._pid, failure)
            seconds = monotonic() - started
            if failure is None:
                self._count_success(run.payload, run.unit.queue, seconds, started)
                await self._acknowledge(run, seconds)
                run.has_ended = True
                around.tell_stopped(run.payload, run.unit.queue, seconds)
            else:
                around.metrics.record(run.payload, seconds, is_success(failure))
                # Before its end is written, as in a thread: the line `fail` stands before what is said of the error.
                around.tell_raised(run.payload, run.unit.queue, seconds, failure)
                await self._settle(run, failure, seconds)
                run.has_ended = True
        except asyncio.CancelledError:
            # Beside the job, which has not ended: it goes back.
            pass
        except BaseException as error:  # noqa: BLE001 — whatever goes wrong beside the job, it must come to an end
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
        future = self._loop.run_in_executor(self._settling, run.fetcher.acknowledge_early, run.unit)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # Whether the job is still ours is to be known before it goes back.
            if not await _to_its_end(future):
                return False
            raise

    async def _acknowledge(self, run: _Run, seconds: float) -> None:
        if run.definition.decide_outcome is not None or self._around.extensions.minds(run.payload):
            await self._settle_in_thread(
                lambda: run.ending.succeeded(run.unit, run.payload, run.definition, run.result, seconds, may_wait=True),
                run.unit,
            )
            return

        def acknowledge() -> None:
            # Never by this thread: 0 seconds says that the acknowledgement may wait for others.
            run.ending.acknowledge(run.unit, run.payload, 0.0)

        if run.unit.is_marked or run.unit.owner is None:
            # Their ends are scripts of their own. The latter have left Redis: with the basic fetcher, or early.
            await self._settle_in_thread(acknowledge, run.unit)
        else:
            acknowledge()

    async def _settle(self, run: _Run, failure: BaseException, seconds: float) -> None:
        await self._settle_in_thread(
            lambda: run.ending.failed(run.unit, run.payload, run.definition, failure, seconds), run.unit
        )

    async def _rescue(self, run: _Run, error: BaseException) -> None:
        """As in a thread: the job must not stay in flight for as long as this process lives."""
        try:
            await self._settle_in_thread(lambda: run.ending.rescued(run.unit, error), run.unit)
            run.has_ended = True
        except Exception as failure:  # noqa: BLE001 — then it goes back
            self._around.hooks.report(failure, {"context": "Internal error", "jobstr": run.unit.raw})

    async def _settle_in_thread(self, settle: Callable[[], None], unit: UnitOfWork) -> None:
        """What waits for Redis would stop all other jobs of the loop."""
        # A job's own decision (`decide_outcome`) may have left itself a note in the context in which it ran.
        run = contextvars.copy_context().run
        # The job has ended: who cancels its task meanwhile comes too late.
        await _to_its_end(self._loop.run_in_executor(self._settling, run, settle_or_leave, settle, unit))

    def _release(self, run: _Run) -> None:
        self._runs.pop(run.unit, None)
        was_full = not self._free_slots
        self._free_slots.append(run.slot)
        if self._concurrency > self._wanted:
            self._resize()
        elif was_full:
            self._on_room()


async def _to_its_end(future: "asyncio.Future[T]") -> T:
    """What *future* comes to, though the task that waits for it is cancelled meanwhile."""
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((future,))
    return future.result()
