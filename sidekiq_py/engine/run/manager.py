"""
Runs one capsule's processors, resizes them, and shuts them down.

No job failure or other error ends a processor's thread (`background.py`), so none has to be replaced: the thread
reports the error, settles or returns its current job, and continues.
"""

import threading
from typing import TYPE_CHECKING

from sidekiq_py.config import CapsuleConfig
from sidekiq_py.engine.fetch.fetcher import Fetcher
from sidekiq_py.engine.run.attempt import HardLimitWatch, Surroundings
from sidekiq_py.engine.run.interrupts import SoftLimits
from sidekiq_py.engine.run.processor import BetweenJobs, Processor
from sidekiq_py.errors import Shutdown

if TYPE_CHECKING:
    from sidekiq_py.engine.run.event_loop import EventLoop


class Manager:
    """
    The processors and the fetcher of one capsule.

    Attributes:
        processors: The processors, including surplus ones that have not exited yet.
    """

    def __init__(
        self,
        capsule: CapsuleConfig,
        fetcher: Fetcher,
        surroundings: Surroundings,
        limits: SoftLimits,
        loop: "EventLoop | None",
    ) -> None:
        self.name = capsule.name
        self.fetcher = fetcher
        self._surroundings, self._limits, self._loop = surroundings, limits, loop
        self.processors = [self._new_processor() for _ in range(capsule.concurrency)]
        self._concurrency = capsule.concurrency
        self._watch: HardLimitWatch | None = None
        self._quiet_once = threading.Lock()
        self._is_quiet = False

    def start(self) -> None:
        """Start the fetcher and all processors. Does not block."""
        self.fetcher.start()
        for processor in self.processors:
            processor.start()

    def start_for_here(self) -> None:
        """Start only the fetcher, as a thread is about to call `run_here`. Used instead of `start`; does not block."""
        self.fetcher.start()
        for processor in self.processors:
            processor.keep_for_here()

    def run_here(self, between_jobs: BetweenJobs) -> None:
        """Run jobs in the calling thread until there are none left. For one processor; see `Processor.run_here`."""
        for processor in self.processors:
            processor.run_here(between_jobs)

    def quiet(self) -> None:
        """Take no more jobs. Fetched jobs that have not started go back. Idempotent."""
        with self._quiet_once:
            if not self._is_quiet:
                self._is_quiet = True
                self.fetcher.quiet()

    def _new_processor(self) -> Processor:
        return Processor(f"sidekiq.{self.name}/processor", self.fetcher, self._surroundings, self._limits, self._loop)

    def resize(self, concurrency: int) -> None:
        """
        Run this many jobs at once from now on. Surplus processors exit, idle ones first.

        Raises:
            RuntimeError: The system allows no more threads. As many more jobs run at once as have one.
        """
        with self._quiet_once:
            if self._is_quiet:
                return
            missing = concurrency - self._concurrency
            self.processors = [processor for processor in self.processors if processor.is_alive]
            for _ in range(missing):
                processor = self._new_processor()
                if self._watch is not None:
                    processor.watch_hard_limits(self._watch)
                processor.start()
                # One by one, because the system may allow no more threads.
                self.processors = [*self.processors, processor]
                self._concurrency += 1
            if missing < 0:
                self._concurrency = concurrency
                self.fetcher.release(-missing)

    @property
    def is_idle(self) -> bool:
        """True once no processor is alive: the capsule is quiet and every job has ended."""
        return not any(processor.is_alive for processor in self.processors)

    def watch_hard_limits(self, watch: HardLimitWatch) -> None:
        """Report jobs that have a hard limit to *watch*."""
        self._watch = watch
        for processor in self.processors:
            processor.watch_hard_limits(watch)

    def interrupt(self) -> None:
        """Raise Shutdown in every running job."""
        for processor in self.processors:
            processor.interrupt(Shutdown)
