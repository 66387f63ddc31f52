"""Ends running jobs from outside: because someone asked for it, or because their time is up."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.run.attempt import HardLimitWatch, Surroundings
from sidekiq_py.engine.run.manager import Manager
from sidekiq_py.engine.run.past_time_limit import settle_past_time_limit
from sidekiq_py.engine.run.processor import Processor
from sidekiq_py.errors import RedisError, TerminatedError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import in_flight

if TYPE_CHECKING:
    from sidekiq_py.engine.run.event_loop import EventLoop

# How long the bytes of a terminated job are kept for the process that settles it.
_KEPT_SECONDS = 24 * 3600


class Termination:
    """
    Ends the jobs of one process. Safe to call from any thread.

    Args:
        around: What the jobs share.
        pool: Connections to their Redis.
        managers: The managers of the jobs in threads.
        loop: The event loop that runs `async def` jobs, if any is declared.
    """

    def __init__(self, around: Surroundings, pool: Pool, managers: Sequence[Manager], loop: "EventLoop | None") -> None:
        self._around = around
        self._pool = pool
        self._managers = managers
        self._loop = loop
        self._is_single_slot_child = around.config.is_single_slot_child

    def watch_hard_limits(self, watch: HardLimitWatch) -> None:
        """Report jobs that have a hard limit to *watch*, which can have this process killed."""
        for manager in self._managers:
            manager.watch_hard_limits(watch)

    def settle_past_time_limit(self, owner: str, field: bytes, limit: str) -> bool | None:
        """
        Settle a sibling's job as failed: it ran past its *limit*, or was terminated (`terminated_by`).

        Returns:
            False if the job is not in flight; None if Redis is unreachable.
        """
        try:
            return settle_past_time_limit(self._around, self._pool, owner, field, limit)
        except RedisError as error:
            self._around.hooks.report(error, {"context": "A terminated job could not be settled"})
            return None

    def interrupt(self, unit: UnitOfWork, kind: type[BaseException]) -> bool:
        """
        Raise *kind*, one of `interrupts.INTERRUPTS`, in a job that runs in a thread of this process.

        Returns:
            False if the job does not run in a thread here.
        """
        processor = self._processor_of(unit)
        return processor is not None and processor.interrupt(kind, only=unit)

    def can_terminate(self, unit: UnitOfWork) -> bool:
        """True if a job that runs here can be ended: as a coroutine, or as the only job of a child process."""
        return self._is_single_slot_child or (self._loop is not None and self._loop.runs(unit))

    def terminate(self, unit: UnitOfWork, signal_number: int) -> bool:
        """
        End a job that runs here.

        A coroutine is cancelled. For a job in a thread, the parent has another process settle the job as failed with
        `TerminatedError`, and then has the signal delivered to it. The job may survive the signal, but SIGKILL ends
        its process.

        Returns:
            False if the job has ended, or cannot be ended because its thread runs beside others or has no parent.

        Raises:
            RedisError: The job runs at most once, and its bytes could not be kept for the process that settles it.
        """
        if self._loop is not None and self._loop.cancel(unit, TerminatedError(signal_number)):
            return True
        processor = self._processor_of(unit) if self._is_single_slot_child else None
        if processor is None:
            return False
        if unit.owner is None and not unit.kept_by:
            name = in_flight.new_kept_name()
            self._pool.batch(in_flight.kept_commands(name, unit.field, unit.raw, _KEPT_SECONDS))
            unit.kept_by = name
        return processor.terminate(unit, signal_number)

    def send_signal_to_job(self, number: int, send: Callable[[int], None]) -> None:
        """
        Deliver a signal to the job that `terminate` was called for, which another process has settled.

        Args:
            send: Sends a signal to the thread that runs the job.
        """
        for processor in self._processors():
            processor.send_signal(number, send)

    def _processors(self) -> Iterator[Processor]:
        return (processor for manager in self._managers for processor in manager.processors)

    def _processor_of(self, unit: UnitOfWork) -> Processor | None:
        return next((processor for processor in self._processors() if processor.running is unit), None)
