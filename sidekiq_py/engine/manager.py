"""
Keeps one capsule's processors at work, and stops them by a deadline.

A processor's thread never ends by a job's failure, so none has to be replaced.
"""

import threading

from sidekiq_py.config import CapsuleConfig
from sidekiq_py.engine.attempt import HardLimitWatch, Surroundings
from sidekiq_py.engine.fetcher import Fetcher
from sidekiq_py.engine.interrupts import SoftLimits
from sidekiq_py.engine.processor import AsyncExecutor, Processor
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
        self.fetcher = fetcher
        self._processors = [
            Processor(f"sidekiq.{capsule.name}/processor", fetcher, surroundings, limits, loop)
            for _ in range(capsule.concurrency)
        ]
        self._quiet_once = threading.Lock()
        self._is_quiet = False

    def start(self) -> None:
        """Start the fetcher and all processors. Does not block."""
        self.fetcher.start()
        for processor in self._processors:
            processor.start()

    def quiet(self) -> None:
        """Take no more jobs; what has not started goes back. Idempotent."""
        with self._quiet_once:
            if not self._is_quiet:
                self._is_quiet = True
                self.fetcher.quiet()

    @property
    def is_idle(self) -> bool:
        """No processor is alive any more: quiet, and every job at its end."""
        return not any(processor.is_alive for processor in self._processors)

    def watch_hard_limits(self, watch: HardLimitWatch) -> None:
        """Tell *watch* of jobs with a hard limit."""
        for processor in self._processors:
            processor.watch_hard_limits(watch)

    def interrupt(self) -> None:
        """Raise Shutdown in every job that runs."""
        for processor in self._processors:
            processor.interrupt(Shutdown)
