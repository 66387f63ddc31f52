"""
Keeps one capsule's processors at work, and stops them by a deadline.

A processor's thread ends neither by a job's failure nor by any other error (`background.py`), so none has to be
replaced: it says what went wrong, sees to the job at hand, and begins anew.
"""

import threading
from collections.abc import Callable

from sidekiq_py.config import CapsuleConfig
from sidekiq_py.engine.fetch.fetcher import Fetcher
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.run.attempt import HardLimitWatch, Surroundings
from sidekiq_py.engine.run.interrupts import SoftLimits
from sidekiq_py.engine.run.processor import AsyncExecutor, BetweenJobs, Processor
from sidekiq_py.errors import Shutdown


class Manager:
    """The processors and the fetcher of one capsule."""

    def __init__(
        self,
        capsule: CapsuleConfig,
        fetcher: Fetcher,
        surroundings: Surroundings,
        limits: SoftLimits,
        loop: AsyncExecutor | None,
    ) -> None:
        self.name = capsule.name
        self.fetcher = fetcher
        self._surroundings, self._limits, self._loop = surroundings, limits, loop
        self._processors = [self._new_processor() for _ in range(capsule.concurrency)]
        self._concurrency = capsule.concurrency
        self._watch: HardLimitWatch | None = None
        self._quiet_once = threading.Lock()
        self._is_quiet = False

    def start(self) -> None:
        """Start the fetcher and all processors. Does not block."""
        self.fetcher.start()
        for processor in self._processors:
            processor.start()

    def start_for_here(self) -> None:
        """Instead of `start`: start the fetcher; a thread is about to call `run_here`. Does not block."""
        self.fetcher.start()
        for processor in self._processors:
            processor.keep_for_here()

    def run_here(self, between_jobs: BetweenJobs) -> None:
        """Run jobs in the calling thread until no more are taken; see `Processor.run_here`. One processor."""
        for processor in self._processors:
            processor.run_here(between_jobs)

    def quiet(self) -> None:
        """Take no more jobs; what has not started goes back. Idempotent."""
        with self._quiet_once:
            if not self._is_quiet:
                self._is_quiet = True
                self.fetcher.quiet()

    def _new_processor(self) -> Processor:
        return Processor(f"sidekiq.{self.name}/processor", self.fetcher, self._surroundings, self._limits, self._loop)

    def resize(self, concurrency: int) -> None:
        """Run so many jobs at once from now on; processors that are too many end, idle ones first."""
        with self._quiet_once:
            if self._is_quiet:
                return
            missing = concurrency - self._concurrency
            self._concurrency = concurrency
            started = [self._new_processor() for _ in range(missing)]
            for processor in started:
                if self._watch is not None:
                    processor.watch_hard_limits(self._watch)
                processor.start()
            self._processors = [processor for processor in self._processors if processor.is_alive] + started
            if missing < 0:
                self.fetcher.release(-missing)

    @property
    def is_idle(self) -> bool:
        """No processor is alive any more: quiet, and every job at its end."""
        return not any(processor.is_alive for processor in self._processors)

    def watch_hard_limits(self, watch: HardLimitWatch) -> None:
        """Tell *watch* of jobs with a hard limit."""
        self._watch = watch
        for processor in self._processors:
            processor.watch_hard_limits(watch)

    def processor_of(self, unit: UnitOfWork) -> Processor | None:
        """The processor that runs *unit*."""
        return next((processor for processor in self._processors if processor.running is unit), None)

    def send_signal(self, number: int, send: Callable[[int], None]) -> None:
        """Have a signal reach the job here that was to be ended from outside, and that another process has settled."""
        for processor in self._processors:
            processor.send_signal(number, send)

    def interrupt(self) -> None:
        """Raise Shutdown in every job that runs."""
        for processor in self._processors:
            processor.interrupt(Shutdown)
