"""
Starts the parts of a worker process, and stops them by a deadline.

1. `start`: run the boot checks, then start the lease, recovery of dead processes' jobs, heartbeat, managers and poller.
2. `quiet`: fetch no more jobs and put back those that have not started.
3. `stop`: quiet, then give busy jobs time until the deadline, then raise Shutdown in them and wait up to three more
   seconds. Jobs that still run go back to their queues as the very last step, and the process exits. It does not wait
   longer than that for a hanging Redis.

Ruby puts busy jobs back first and then stops them, so it may run a job twice at the same time. Here a job goes back
when it has ended, or when this process ends.
"""

import threading
from collections.abc import Callable

from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.boot_checks import check_redis
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.run.processor import BetweenJobs
from sidekiq_py.engine.upkeep.shutdown_watchdog import ShutdownWatchdog
from sidekiq_py.logs import log
from sidekiq_py.redis_access.reads import versions

# How long a stop waits for the program's handlers that have not been called yet.
_HANDLERS_SECONDS = 3.0


class Launcher:
    """
    One worker process.

    Args:
        parts: The parts of the process.

    Attributes:
        identity: The process's identity in Redis.
        signals: The signals that were received and not handled yet.
        state: The running jobs.
        metrics: How often each class ran.
        reconfiguration: Changes the served queues, and how many jobs run at once.
        termination: Ends jobs from outside.
        liveness: Tells whether the process's loops run and whether it fetches.
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
        """The jobs that have left their queues and not started yet."""
        return self.parts.jobs.reserved

    @property
    def is_quiet(self) -> bool:
        """True once the process no longer fetches jobs."""
        return self.parts.life.is_quieting

    def start(self, *, runs_jobs_here: bool = False, on_prepared: Callable[[], None] = lambda: None) -> None:
        """
        Start everything. Does not block, unless a hook does.

        Args:
            runs_jobs_here: The calling thread will call `run_jobs_here`, and no other thread runs jobs.
            on_prepared: Called when the hooks of extensions and of the program have run, before anything is fetched.

        Raises:
            UnsupportedRedisError: The Redis server is too old, or a Cluster.
            RedisError: Redis is unreachable.
            RuntimeError: The system allows no more threads. Whatever had started is stopped again.
        """
        parts = self.parts
        is_reliable = self.config.fetcher == "reliable"
        check_redis(parts.pool, queues=self.config.queue_names, keeps_in_flight=is_reliable)
        # Only after the checks: it writes, and nothing may be written to a Redis that is too old.
        parts.detection.look_by(lambda: versions.shared_infos(parts.pool))
        parts.extension_start.start(self.config)
        parts.hooks.fire("startup", reraise=True)
        on_prepared()
        try:
            self._start_parts(runs_jobs_here=runs_jobs_here)
        except BaseException:
            # The parts that run already would take jobs, and nobody could stop them.
            self.stop(timeout_seconds=0)
            raise

    def _start_parts(self, *, runs_jobs_here: bool) -> None:
        parts = self.parts
        if self.config.job_log:
            parts.job_logger.attach()
        if parts.loop is not None:
            parts.loop.start()
        if self.config.fetcher == "reliable":
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
        """Run jobs in the calling thread until the process is quiet; see `Processor.run_here`."""
        for manager in self.parts.managers:
            manager.run_here(between_jobs)

    def quiet(self) -> None:
        """Stop fetching and put back the jobs that have not started. Idempotent."""
        parts = self.parts
        for manager in parts.managers:
            manager.fetcher.begin_quiet()
        # Only now, because it interrupts iterable jobs, and they would start here again.
        if not parts.life.begin_quiet():
            return
        log.info("Fetching no more jobs")
        parts.poller.terminate()
        for manager in parts.managers:
            manager.quiet()
        # Set only now: readers in Redis may rely on it that this process starts no job that is pushed from here on.
        parts.life.is_quiet = True
        parts.heartbeat.beat_soon()
        parts.hooks.fire("quiet")

    def stop(
        self, *, timeout_seconds: float | None = None, on_jobs_left: Callable[[], None] = lambda: None
    ) -> list[str]:
        """
        Stop within the timeout and the grace period that follows it.

        Args:
            timeout_seconds: Overrides the config's timeout.
            on_jobs_left: Called if jobs ignore Shutdown, while no other worker may take them yet.

        Returns:
            The ids of the threads whose jobs ignored Shutdown and still run. The process should end at once. These jobs
            stay in flight under a departed owner, and go back when another worker recovers them.
        """
        parts = self.parts
        parts.jobs.set_deadline(self.config.shutdown_timeout_seconds if timeout_seconds is None else timeout_seconds)
        parts.life.is_stopping = True
        with ShutdownWatchdog(parts.pool, parts.jobs.may_be_left, on_giving_up=parts.jobs.hurry):
            self.quiet()
            with self._stop_once:
                return self._stop(on_jobs_left)

    def _stop(self, on_jobs_left: Callable[[], None]) -> list[str]:
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
                log.warning("a job that runs at most once was cut off, and will not run again: %s", job.unit)
        parts.hooks.fire("exit")
        parts.callbacks.stop(_HANDLERS_SECONDS)
        parts.job_logger.detach()
        for manager in parts.managers:
            manager.fetcher.close()
        if left:
            on_jobs_left()
        # Not earlier: jobs that did not stop still run, and the program's exit handlers may take longer than a lease.
        parts.lease.stop()
        parts.departure.leave([job.unit for job in left])
        if parts.loop is not None and not left:
            parts.loop.close()
        return [job.tid for job in left]

    def ask_to_stop(self) -> None:
        """Act as if TERM had been received. A stop that has begun continues unchanged. Safe to call from any thread."""
        if not self.parts.life.is_stopping:
            self.signals.put("TERM")

    def hurry(self) -> None:
        """Make a stop that has begun wait no longer for busy jobs."""
        self.parts.jobs.hurry()

    def declare_dead(self, owner: str) -> None:
        """Recover the jobs of an owner that is known to be dead at once."""
        self.parts.housekeeper.declare_dead(owner)
