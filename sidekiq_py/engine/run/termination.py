"""Ends jobs that run, from outside: by the command of somebody, or as their time is up."""

import os
from collections.abc import Callable, Sequence
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

# How long a job that is ended by force is kept for whoever settles it.
_KEPT_SECONDS = 24 * 3600


class Termination:
    """
    For the jobs of one process. Safe in any thread.

    Args:
        around: What runs share.
        pool: To their Redis.
        managers: Of the jobs in threads.
        loop: Where `async def` jobs run, if any is declared.
    """

    def __init__(self, around: Surroundings, pool: Pool, managers: Sequence[Manager], loop: "EventLoop | None") -> None:
        self._around = around
        self._pool = pool
        self._managers = managers
        self._loop = loop
        self._is_single_slot_child = around.config.is_single_slot_child

    def watch_hard_limits(self, watch: HardLimitWatch) -> None:
        """Tell *watch*, which can kill this process, of jobs with a hard limit."""
        for manager in self._managers:
            manager.watch_hard_limits(watch)

    def settle_past_time_limit(self, owner: str, field: bytes, limit: str) -> bool | None:
        """
        A sibling's job ran past its *limit*, or was ended by force (`terminated_by`): settle it as failed. False: it
        had ended; None: Redis is away.
        """
        try:
            return settle_past_time_limit(self._around, self._pool, owner, field, limit)
        except RedisError as error:
            self._around.hooks.report(error, {"context": "a job that is ended by force could not be settled"})
            return None

    def interrupt(self, unit: UnitOfWork, kind: type[BaseException]) -> bool:
        """Raise *kind*, one of `interrupts.INTERRUPTS`, in a job that runs in a thread here. False: there is none."""
        processor = self._processor_of(unit)
        return processor is not None and processor.interrupt(kind, only=unit)

    def can_terminate(self, unit: UnitOfWork) -> bool:
        """A job that runs here can be ended: it is a coroutine, or it is alone in this process and a parent watches."""
        return self._is_single_slot_child or (self._loop is not None and self._loop.runs(unit))

    def terminate(self, unit: UnitOfWork, signal_number: int) -> bool:
        """
        End a job that runs here: a coroutine is cancelled; else the parent has another process settle the job as ended
        by `TerminatedError`, and then has the signal reach it. It may survive that; SIGKILL ends its process.

        Returns:
            False if it has ended, or cannot be ended: it runs in a thread, beside others or without a parent.

        Raises:
            RedisError: It runs at most once, and its bytes could not be kept for whoever settles it.
        """
        if self._loop is not None and self._loop.cancel(unit, TerminatedError(signal_number)):
            return True
        processor = self._processor_of(unit) if self._is_single_slot_child else None
        if processor is None:
            return False
        if unit.owner is None and not unit.kept_by:
            name = in_flight.kept_name(os.urandom(12).hex())
            self._pool.batch(in_flight.kept_commands(name, unit.field, unit.raw, _KEPT_SECONDS))
            unit.kept_by = name
        return processor.terminate(unit, signal_number)

    def send_signal_to_job(self, number: int, send: Callable[[int], None]) -> None:
        """
        The job that `terminate` was called for has been settled by another process: have the signal reach it.

        Args:
            send: Sends a signal to the thread that runs the job.
        """
        for manager in self._managers:
            manager.send_signal(number, send)

    def _processor_of(self, unit: UnitOfWork) -> Processor | None:
        return next((found for manager in self._managers if (found := manager.processor_of(unit))), None)
