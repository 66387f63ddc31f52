"""
Starts the parts of a worker process, and stops them by a deadline.

1. `start`: boot checks, recovery of what dead processes left, heartbeat, managers, poller.
2. `quiet`: no more jobs are fetched, what has not started goes back.
3. `stop`: quiet, then busy jobs have until the deadline, then Shutdown is raised in them, then up to three seconds
   more; what is still left goes back to its queue as the very last step, and the process leaves. A Redis that hangs
   is not waited for beyond that.

Ruby puts busy jobs back first and then stops them, and so runs them twice at a time; here a job goes back when it has
ended, or when this process ends.
"""

import logging
import threading

from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.boot_checks import check_redis
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.run.processor import BetweenJobs
from sidekiq_py.engine.upkeep.shutdown_watchdog import ShutdownWatchdog
from sidekiq_py.redis_access.reads import versions

_log = logging.getLogger("sidekiq")

# For handlers of the program that are still to be called.
_HANDLERS_SECONDS = 3.0


class Launcher:
    """
    One worker process.

    Args:
        parts: What it is made of.

    Attributes:
        identity: Under which it is registered in Redis.
        signals: Those that it was sent, and has not handled.
        state: What runs.
        metrics: How often each class ran.
        reconfiguration: Changes what it serves, and how many jobs it runs at once.
        termination: Ends jobs from outside.
        liveness: Whether it turns and fetches.
    """

    def __init__(self, parts: WorkerParts) -> None:
        self.parts = parts
        self.config = parts.config
        self.identity = parts.identity
        self.signals = parts.signals
        self.state = parts.state
        self.metrics = parts.metrics
        self.reconfiguration = parts.reconfiguration
        self.termination = parts.termination
        self.liveness = parts.liveness
        self._stop_once = threading.Lock()

    def __repr__(self) -> str:
        return f"<Launcher {self.identity} busy={self.state.busy}>"

    @property
    def reserved(self) -> list[UnitOfWork]:
        """Jobs that were taken out of their queues and have not started."""
        return self.parts.jobs.reserved

    @property
    def is_quiet(self) -> bool:
        """No more jobs are fetched."""
        return self.parts.life.is_quieting

    def start(self, *, runs_jobs_here: bool = False) -> None:
        """
        Start everything. Does not block.

        Args:
            runs_jobs_here: The caller's thread is about to call `run_jobs_here`, and no other runs jobs.

        Raises:
            UnsupportedRedisError: This Redis is too old, or a Cluster.
            RedisError: It is out of reach.
        """
        parts = self.parts
        is_reliable = self.config.fetcher == "reliable"
        check_redis(parts.pool, keeps_in_flight=is_reliable)
        # Not before: it writes, and to a Redis that is too old nothing is written.
        parts.detection.look_by(lambda: versions.shared_infos(parts.pool))
        parts.extension_start.start(self.config)
        parts.hooks.fire("startup", reraise=True)
        if self.config.job_log:
            parts.job_logger.attach()
        if parts.loop is not None:
            parts.loop.start()
        if is_reliable:
            parts.lease.start()
            parts.housekeeper.start()
        parts.processed.start()
        parts.heartbeat.start()
        for manager in parts.managers:
            if runs_jobs_here:
                manager.start_for_here()
            else:
                manager.start()
        parts.poller.start()
        for chores in parts.maintenance:
            chores.start()
        parts.life.has_started = True

    def run_jobs_here(self, between_jobs: BetweenJobs) -> None:
        """Run jobs in the calling thread until no more are taken; see `Processor.run_here`."""
        for manager in self.parts.managers:
            manager.run_here(between_jobs)

    def quiet(self) -> None:
        """Fetch no more; give back what has not started. Idempotent."""
        parts = self.parts
        if not parts.life.begin_quiet():
            return
        _log.info("Fetching no more jobs")
        parts.poller.terminate()
        for manager in parts.managers:
            manager.quiet()
        # Only now: whoever reads it in Redis may rely on it that what is pushed from here on is not started.
        parts.life.is_quiet = True
        parts.heartbeat.beat_soon()
        parts.hooks.fire("quiet")

    def stop(self, *, timeout_seconds: float | None = None) -> list[str]:
        """
        Stop within the timeout and the grace that follows it.

        Args:
            timeout_seconds: Instead of the config's.

        Returns:
            The threads whose jobs did not heed Shutdown: they still run, and the process should end at once. These jobs
            stay in flight under the name of an owner that has left, and go back when others look after it.
        """
        parts = self.parts
        parts.jobs.set_deadline(self.config.shutdown_timeout_seconds if timeout_seconds is None else timeout_seconds)
        parts.life.is_stopping = True
        with ShutdownWatchdog(parts.pool, parts.jobs.may_be_left):
            self.quiet()
            with self._stop_once:
                return self._stop()

    def _stop(self) -> list[str]:
        parts = self.parts
        parts.hooks.fire("shutdown")
        parts.jobs.stop()
        parts.limits.close()
        for chores in parts.maintenance:
            chores.end()
        for chores in parts.maintenance:
            chores.join()
        parts.poller.stop()
        parts.processed.stop()
        parts.heartbeat.stop()
        parts.housekeeper.stop()
        left = parts.state.snapshot()
        for job in left:
            if job.unit.is_acknowledged_early:
                _log.warning("a job that runs at most once was cut off, and will not run again: %s", job.unit)
        parts.hooks.fire("exit")
        parts.callbacks.stop(_HANDLERS_SECONDS)
        parts.job_logger.detach()
        for manager in parts.managers:
            manager.fetcher.close()
        # Not earlier: what would not end still runs, and the program's exit handlers may take longer than a lease.
        parts.lease.stop()
        parts.departure.leave([job.unit for job in left])
        if parts.loop is not None and not left:
            parts.loop.close()
        return [job.tid for job in left]

    def ask_to_stop(self) -> None:
        """As if TERM had come; a stop that is under way goes on as it is. Safe in any thread."""
        if not self.parts.life.is_stopping:
            self.signals.put("TERM")

    def hurry(self) -> None:
        """A stop that is under way waits no longer for busy jobs."""
        self.parts.jobs.hurry()

    def declare_dead(self, owner: str) -> None:
        """An owner is known to be dead: bring its jobs back at once."""
        self.parts.housekeeper.declare_dead(owner)
