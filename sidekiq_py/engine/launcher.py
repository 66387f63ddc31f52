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
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sidekiq_py import program
from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.config import CapsuleConfig, Config
from sidekiq_py.engine.boot_checks import check_redis
from sidekiq_py.engine.callback_thread import CallbackThread
from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.fetch.basic import BasicFetcher
from sidekiq_py.engine.fetch.fetcher import Fetcher
from sidekiq_py.engine.fetch.reliable import ReliableFetcher
from sidekiq_py.engine.ownership import identity as identities
from sidekiq_py.engine.ownership.housekeeper import Housekeeper
from sidekiq_py.engine.ownership.lease_keeper import LeaseKeeper
from sidekiq_py.engine.ownership.owed_deaths import OwedDeath, OwedDeaths
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.engine.ownership.recovery import Recovery
from sidekiq_py.engine.reconfiguration import Reconfiguration
from sidekiq_py.engine.report.job_context import JobContext
from sidekiq_py.engine.report.job_logger import JobLogger
from sidekiq_py.engine.report.log_files import reopen_log_files
from sidekiq_py.engine.report.systemd import ServiceNotifier
from sidekiq_py.engine.run.attempt import HardLimitWatch, Surroundings
from sidekiq_py.engine.run.foreign_features import ForeignFeatures
from sidekiq_py.engine.run.interrupts import SoftLimits
from sidekiq_py.engine.run.manager import Manager
from sidekiq_py.engine.run.metrics import ExecutionMetrics
from sidekiq_py.engine.run.past_time_limit import settle_past_time_limit
from sidekiq_py.engine.run.processed_count import ProcessedCount
from sidekiq_py.engine.run.processor import Processor
from sidekiq_py.engine.run.thread_dump import thread_dump
from sidekiq_py.engine.run.work_state import WorkState
from sidekiq_py.engine.signals import USR1_DUMPS, SignalInbox
from sidekiq_py.engine.upkeep.declared_classes import Declared
from sidekiq_py.engine.upkeep.heartbeat import Heartbeat
from sidekiq_py.engine.upkeep.maintenance import MaintenanceThread
from sidekiq_py.engine.upkeep.poller import Poller
from sidekiq_py.engine.upkeep.shutdown_watchdog import ShutdownWatchdog
from sidekiq_py.errors import ConfigError, ExtensionError, RedisError, RedisReplyError, TerminatedError
from sidekiq_py.hooks import Hooks
from sidekiq_py.loaded_extensions import LoadedExtensions
from sidekiq_py.logs import counted, log_context
from sidekiq_py.middleware.chain import Chain, ServerMiddleware
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.redis_access.processes import extension_keys
from sidekiq_py.redis_access.reads import versions
from sidekiq_py.registry import Registry
from sidekiq_py.telemetry import RECOVER
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.payload import parse_job_or_empty
from sidekiq_py.wire.process_info import CapsuleFacts, ProcessFacts

if TYPE_CHECKING:
    from sidekiq_py.engine.run.event_loop import EventLoop

_log = logging.getLogger("sidekiq")

# How long a job that is ended by force is kept for whoever settles it.
_KEPT_SECONDS = 24 * 3600
# What a job is given to heed Shutdown. Source: Sidekiq 6.4 and later, manager.rb.
_GRACE_SECONDS = 3.0
# Two signals within this time ask for one stop.
_ONE_STOP_SECONDS = 1.0
_LEARN_EVERY_SECONDS = 60.0
# How often one turn of a loop may wait in vain for a Redis that hangs.
_TIMEOUTS_IN_A_TURN = 3
# For handlers of the program that are still to be called.
_HANDLERS_SECONDS = 3.0


class Launcher:
    """
    One worker process.

    Args:
        config: What it was told.
        registry: The jobs it can run.
        hooks: Its event, error and death handlers.
        server_middleware: Wraps every run.
        client: Pushes what jobs enqueue, what is due and what was interrupted.
        extensions: Their hooks; by default the program's.
        on_epoch: Told the name of each owner that this process becomes; for a parent that watches it.

    Raises:
        ConfigError: A declared job needs what this process cannot give.
    """

    def __init__(
        self,
        config: Config,
        *,
        registry: Registry,
        hooks: Hooks,
        server_middleware: Chain[ServerMiddleware],
        client: Client,
        extensions: LoadedExtensions | None = None,
        on_epoch: Callable[[str], None] = lambda owner: None,
    ) -> None:
        _refuse_hard_limits(config, registry)
        self.config = config
        self.identity = identities.new_identity()
        self._hooks = hooks
        self._registry = registry
        self._client = client
        self._extensions = program.extensions if extensions is None else extensions
        self._extensions.load_installed()
        self._pool = Pool(config.redis)
        client.detection.look_by(lambda: versions.shared_infos(self._pool))
        self._state = WorkState()
        self._limits = SoftLimits()
        self._context = JobContext()
        self._job_logger = JobLogger(self._context, self.identity)
        self._aside = CallbackThread()
        self._downtime = Downtime()
        self.signals = SignalInbox(USR1_DUMPS if config.usr1_dumps_threads else None)
        self._runs_jobs_here = False
        self._is_stopping = False
        self._is_quiet = False
        self._is_leaving = False
        self._has_started = False
        self._stop_once = threading.Lock()
        self._left: list[UnitOfWork] = []
        self._quiet_once = threading.Lock()
        self._deadline = 0.0
        self._learn_at = 0.0
        self._pinned = config.pinned_dialect()
        queues = list(dict.fromkeys(name for capsule in config.capsules for name in capsule.queue_names))
        self._ownership = Ownership(self.identity, queues, config.lease_seconds, on_epoch, self._warn_aside)
        self._owed = OwedDeaths(self._pool, self._ownership, hooks, self.dialect, is_kept=config.fetcher == "reliable")
        self._metrics = ExecutionMetrics()
        self._processed = ProcessedCount(self._pool)
        self._surroundings = self._make_surroundings(server_middleware)
        self._loop = self._make_loop()
        self._managers = [self._manager(capsule) for capsule in config.capsules]
        self._poller = Poller(
            config,
            pool=self._pool,
            identity=self.identity,
            repush=client.repush,
            dialect=self.dialect,
            report=hooks.report,
            extensions=self._extensions,
        )
        self._maintenance = MaintenanceThread(
            [task for extension in self._extensions for task in extension.maintain()],
            self._pool,
            is_ours=lambda: self._poller.is_quick,
            report=hooks.report,
        )
        self._lease = LeaseKeeper(
            self._pool, self._ownership, config.lease_beat_seconds, aside=self._aside, report=hooks.report
        )
        self._housekeeper = self._make_housekeeper()
        self._heartbeat = self._make_heartbeat()
        self.shape = Reconfiguration(
            config,
            managers={manager.name: manager for manager in self._managers},
            loop=self._loop,
            foreign=self._surroundings.foreign,
            heartbeat=self._heartbeat,
            pool=self._pool,
            state=self._state,
        )
        self._declared = Declared(self._pool, self.identity, registry)

    def __repr__(self) -> str:
        return f"<Launcher {self.identity} busy={self._state.busy}>"

    def dialect(self) -> Dialect:
        """The release to write for: pinned by the config, or what is known of the Ruby processes alive."""
        if self._pinned is not None:
            return self._pinned
        # While it leaves, what was known last is good enough, and costs no wait for a Redis that hangs.
        return self._client.detection.last if self._is_leaving else self._client.detection.dialect(now_seconds())

    @property
    def state(self) -> WorkState:
        """What runs."""
        return self._state

    @property
    def reserved(self) -> list[UnitOfWork]:
        """Jobs that were taken out of their queues and have not started."""
        return [unit for manager in self._managers for unit in manager.fetcher.reserved]

    @property
    def metrics(self) -> ExecutionMetrics:
        """How often each class ran."""
        return self._metrics

    @property
    def is_quiet(self) -> bool:
        """No more jobs are fetched."""
        return self._is_stopping

    def run(
        self, on_ready: Callable[[], None] = lambda: None, on_stop: Callable[[str], None] = lambda name: None
    ) -> int:
        """
        Start, and obey signals until told to stop; the exit code. Only in the main thread.

        Args:
            on_ready: Called once everything runs.
            on_stop: Told of the signal, `TERM` or `INT`, by which it stops.

        Does not return where a job did not heed Shutdown: the process ends at once.
        """
        if not self.config.is_single_slot_child:
            self.signals.watch()
            self.start()
            on_ready()
            self._serve(on_stop)
            return 0
        # Jobs run in the main thread, as in Celery's prefork: there a signal interrupts a system call, and code that
        # needs this thread works.
        self.signals.watch_beside_jobs()
        self._runs_jobs_here = True
        self.start()
        on_ready()
        serving = threading.Thread(target=self._serve_beside, args=(on_stop,), name="sidekiq.signals", daemon=True)
        serving.start()
        for manager in self._managers:
            manager.run_here(self.signals.watch_again)
        serving.join()
        return 0

    def _serve_beside(self, on_stop: Callable[[str], None]) -> None:
        try:
            self._serve(on_stop)
        except BaseException:  # noqa: BLE001 — it ends the process in any case
            # Nobody would heed a signal any more; whoever keeps this process sees a crash.
            _log.exception("Internal error while signals were awaited")
            os._exit(1)

    def _serve(self, on_stop: Callable[[str], None]) -> None:
        """Obey signals until told to stop, and stop."""
        service = ServiceNotifier(os.environ)
        service.ready()
        while (name := self.signals.next()) not in ("TERM", "INT"):
            self._obey(name)
        on_stop(name)
        service.stopping()
        stubborn = self._stop_heeding_signals()
        _log.info("Bye!")
        service.close()
        if stubborn:
            self._let_go_and_exit(0)

    def start(self) -> None:
        """
        Start everything. Does not block.

        Raises:
            UnsupportedRedisError: This Redis is too old, or a Cluster.
            RedisError: It is out of reach.
        """
        check_redis(self._pool, keeps_in_flight=self.config.fetcher == "reliable")
        self._learn_of_extensions()
        self._start_extensions()
        self._hooks.fire("startup", reraise=True)
        if self.config.job_log:
            self._job_logger.attach()
        if self._loop is not None:
            self._loop.start()
        if self.config.fetcher == "reliable":
            self._lease.start()
            self._housekeeper.start()
        self._processed.start()
        self._heartbeat.start()
        for manager in self._managers:
            if self._runs_jobs_here:
                manager.start_for_here()
            else:
                manager.start()
        self._poller.start()
        self._maintenance.start()
        self._has_started = True

    def stalled_loops(self) -> list[str]:
        """
        Those of this process's own loops that have not turned for too long; none while it leaves. Asks nobody.

        How long a job runs is not looked at. The loops that run code of the program's are, too: without the heartbeat
        the process vanishes from the Web UI, without the poller due jobs may wait.
        """
        if self._is_leaving:
            return []
        loops = {
            "lease": self._lease.pulse,
            "housekeeper": self._housekeeper.pulse,
            "heartbeat": self._heartbeat.pulse,
            "poller": self._poller.pulse,
        }
        # A Redis that hangs holds a loop up for so long.
        patience = self.config.stall_seconds + _TIMEOUTS_IN_A_TURN * self._pool.settings.socket_timeout_seconds
        if self._is_stopping:
            # It ends when the process takes no more jobs.
            del loops["poller"]
        return [name for name, pulse in loops.items() if pulse.overdue_seconds > patience]

    def why_not_fetching(self) -> str | None:
        """Why this process takes no jobs now, or None. Asks nobody."""
        if not self._has_started:
            return "starting"
        if self._is_stopping:
            return "it takes no more jobs"
        return "Redis is out of reach, or refuses what a worker needs" if self._downtime.is_on else None

    def ping(self, *, within_seconds: float) -> None:
        """
        Ask Redis for a sign of life.

        Raises:
            RedisError: It gives none.
        """
        link = self._pool.new_link(timeout_seconds=within_seconds)
        try:
            link.command("PING")
        finally:
            link.close()

    def quiet(self) -> None:
        """Fetch no more; give back what has not started. Idempotent."""
        with self._quiet_once:
            if self._is_stopping:
                return
            self._is_stopping = True
        _log.info("Fetching no more jobs")
        self._poller.terminate()
        for manager in self._managers:
            manager.quiet()
        # Only now: whoever reads it in Redis may rely on it that what is pushed from here on is not started.
        self._is_quiet = True
        self._heartbeat.beat_soon()
        self._hooks.fire("quiet")

    def stop(self, *, timeout_seconds: float | None = None) -> list[str]:
        """
        Stop within the timeout and the grace that follows it.

        Args:
            timeout_seconds: Instead of the config's.

        Returns:
            The threads whose jobs did not heed Shutdown: they still run, and the process should end at once. These jobs
            stay in flight under the name of an owner that has left, and go back when others look after it.
        """
        seconds = self.config.shutdown_timeout_seconds if timeout_seconds is None else timeout_seconds
        self._deadline = monotonic() + seconds
        self._is_leaving = True
        with ShutdownWatchdog(self._pool, self._may_leave_without_redis):
            return self._stop()

    def _stop(self) -> list[str]:
        self.quiet()
        with self._stop_once:
            self._hooks.fire("shutdown")
            if not self._wait_until_idle(lambda: self._deadline):
                self._cut_off()
            self._limits.close()
            self._maintenance.stop()
            self._poller.stop()
            self._processed.stop()
            self._heartbeat.stop()
            self._housekeeper.stop()
            left = self._state.snapshot()
            self._left = [job.unit for job in left]
            for unit in self._left:
                if unit.is_acknowledged_early:
                    _log.warning("a job that runs at most once was cut off, and will not run again: %s", unit)
            self._hooks.fire("exit")
            self._aside.stop(_HANDLERS_SECONDS)
            self._job_logger.detach()
            for manager in self._managers:
                manager.fetcher.close()
            # Not earlier: what would not end still runs, and the program's exit handlers may take longer than a lease.
            self._lease.stop()
            self._leave()
            if self._loop is not None and not left:
                self._loop.close()
            return [job.tid for job in left]

    def ask_to_stop(self) -> None:
        """As if TERM had come; a stop that is under way goes on as it is. Safe in any thread."""
        if not self._is_leaving:
            self.signals.put("TERM")

    def hurry(self) -> None:
        """A stop that is under way waits no longer for busy jobs."""
        self._deadline = 0.0

    def bury(self, owner: str) -> None:
        """An owner is known to be dead: bring its jobs back at once."""
        self._housekeeper.bury(owner)

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
            return settle_past_time_limit(self._surroundings, self._pool, owner, field, limit)
        except RedisError as error:
            self._hooks.report(error, {"context": "a job that is ended by force could not be settled"})
            return None

    def interrupt(self, unit: UnitOfWork, kind: type[BaseException]) -> bool:
        """Raise *kind*, one of `interrupts.INTERRUPTS`, in a job that runs in a thread here. False: there is none."""
        processor = self._processor_of(unit)
        return processor is not None and processor.interrupt(kind, only=unit)

    def _processor_of(self, unit: UnitOfWork) -> Processor | None:
        return next((found for manager in self._managers if (found := manager.processor_of(unit))), None)

    def can_terminate(self, unit: UnitOfWork) -> bool:
        """A job that runs here can be ended: it is a coroutine, or it is alone in this process and a parent watches."""
        return self.config.is_single_slot_child or (self._loop is not None and self._loop.runs(unit))

    def terminate(self, unit: UnitOfWork, signal_number: int) -> bool:
        """
        End a job that runs here: a coroutine is cancelled; else the parent has another process settle the job as ended
        by `TerminatedError`, and then has the signal reach it. It may survive that; SIGKILL ends its process.

        Returns:
            False if it has ended, or cannot be ended: it runs in a thread, beside others or without a parent.

        Raises:
            RedisError: It runs at most once, and could not be kept aside for whoever settles it.
        """
        if self._loop is not None and self._loop.cancel(unit, TerminatedError(signal_number)):
            return True
        if not self.config.is_single_slot_child:
            return False
        processor = self._processor_of(unit)
        if processor is None:
            return False
        if unit.owner is None and not unit.kept_by:
            name = in_flight.kept_name(os.urandom(12).hex())
            commands = in_flight.kept_commands(name, unit.field, unit.raw, _KEPT_SECONDS)
            self._pool.batch(commands)
            unit.kept_by = name
        return processor.condemn(unit, signal_number)

    def send_signal_to_job(self, number: int) -> None:
        """The job that `terminate` was called for has been settled by another process: have the signal reach it."""
        for manager in self._managers:
            manager.send_signal(number, self.signals.send_to_job)

    def _obey(self, name: str | None) -> None:
        if name in ("TSTP", "USR1"):
            self.quiet()
        elif name == "TTIN":
            _log.warning("%s", thread_dump(self._state, self._loop.task_lines() if self._loop else ()))
        elif name == "USR2":
            reopen_log_files()
        else:
            _log.info("No signal handler registered for %s, ignoring", name)

    def _stop_heeding_signals(self) -> list[str]:
        """Stop in a thread of its own, so that a second TERM or INT can hurry it."""
        stubborn: list[str] = []
        stopping = threading.Thread(target=lambda: stubborn.extend(self.stop()), name="sidekiq.stop")
        _log.info("Shutting down")
        stopping.start()
        asked_at = monotonic()
        while stopping.is_alive():
            name = self.signals.next(0.05)
            # A process manager that passes Ctrl-C on as TERM means one stop.
            if name in ("TERM", "INT") and monotonic() - asked_at > _ONE_STOP_SECONDS:
                self.hurry()
            elif name == "TTIN":
                self._obey(name)
        return stubborn

    def _make_surroundings(self, server_middleware: Chain[ServerMiddleware]) -> Surroundings:
        return Surroundings(
            config=self.config,
            registry=self._registry,
            chain=server_middleware,
            hooks=self._hooks,
            owed=self._owed,
            state=self._state,
            metrics=self._metrics,
            context=self._context,
            identity=self.identity,
            dialect=self.dialect,
            repush=self._client.repush,
            foreign=ForeignFeatures(
                self.config,
                self._hooks,
                fetchers=lambda: [manager.fetcher for manager in self._managers],
                on_unserved=self._show_no_more,
                is_stopping=lambda: self._is_stopping,
            ),
            extensions=self._extensions,
            is_stopping=lambda: self._is_stopping,
        )

    def _make_housekeeper(self) -> Housekeeper:
        link = self._pool.new_link()
        recovery = Recovery(
            self.config,
            link,
            self._ownership,
            dialect=self.dialect,
            extensions=self._extensions,
            owed=self._owed,
            on_dead_lettered=self._announce_dead_lettered,
            on_owed_death=lambda *death: self._aside.call(lambda: self._owed.announce(*death)),
            on_recovered=self._tell_recovered,
        )
        return Housekeeper(
            link, self._ownership, recovery, self.config.lease_beat_seconds, self._report_on_callback_thread
        )

    def _make_heartbeat(self) -> Heartbeat:
        return Heartbeat(
            self._facts(),
            pool=self._pool,
            dialect=self.dialect,
            running=self._state.snapshot,
            is_quiet=lambda: self._is_quiet,
            hooks=self._hooks,
            on_signal=self._take_remote_signal,
            on_beat=self._after_beat,
            downtime=self._downtime,
        )

    def _make_loop(self) -> "EventLoop | None":
        if not any(definition.is_async for definition in self._registry):
            return None
        # Only now: asyncio weighs more than all the rest of an idle worker.
        from sidekiq_py.engine.run.event_loop import EventLoop

        return EventLoop(self._surroundings, self.config.async_concurrency, self._wake_fetchers)

    def _manager(self, capsule: CapsuleConfig) -> Manager:
        return Manager(capsule, self._fetcher(capsule), self._surroundings, self._limits, self._loop)

    def _fetcher(self, capsule: CapsuleConfig) -> Fetcher:
        room = self._loop.room if self._loop is not None else lambda: None
        if self.config.fetcher == "basic":
            return BasicFetcher(capsule, self._pool, report=self._hooks.report, room=room)
        return ReliableFetcher(
            capsule,
            self.config,
            self._pool,
            self._ownership,
            report=self._hooks.report,
            room=room,
            on_notices=self._registry.on_notices,
            count=self._processed.add,
            downtime=self._downtime,
        )

    def _wake_fetchers(self) -> None:
        for manager in self._managers:
            manager.fetcher.wake()

    def _facts(self) -> ProcessFacts:
        config = self.config
        return ProcessFacts(
            hostname=identities.hostname(),
            started_at=now_seconds(),
            pid=os.getpid(),
            tag=config.tag,
            capsules=tuple(
                CapsuleFacts(capsule.name, capsule.concurrency, capsule.mode, capsule.weights)
                for capsule in config.capsules
            ),
            labels=config.labels,
            identity=self.identity,
            version=".".join(map(str, self.dialect().version)),
            embedded=config.embedded,
            coroutines=0 if self._loop is None else config.async_concurrency,
        )

    def _take_remote_signal(self, name: str) -> None:
        # Somebody else's program must not be stopped from a web page.
        if self.config.embedded:
            _log.info("%s was sent to an embedded process and is ignored", name)
        else:
            self.signals.put(name)

    def _show_no_more(self, queue: str) -> None:
        self._heartbeat.leave_out(queue)

    def _after_beat(self) -> None:
        self._flush_metrics()
        self._declared.keep()
        if monotonic() >= self._learn_at:
            self._learn_of_extensions()

    def _start_extensions(self) -> None:
        """What Redis refuses one of them, as where it is full, stops no worker: it is there to empty it."""
        for extension in self._extensions:
            try:
                extension.start(self._pool, self.config)
            except RedisReplyError as error:
                self._hooks.report(ExtensionError(extension.name, "start", error), {"context": "Extension"})

    def _learn_of_extensions(self) -> None:
        """Tell others which payload keys the extensions here own, and hear of theirs."""
        self._learn_at = monotonic() + _LEARN_EVERY_SECONDS
        owned = {key: text for extension in self._extensions for key, text in extension.payload_keys.items()}
        own = {key: text for key, text in owned.items() if text}
        try:
            announced = extension_keys.exchange(self._pool, own)
        except RedisReplyError as error:
            # A user with few rights, or a Redis that is full: other processes' extensions are watched for later.
            _log.debug("the payload keys of extensions are not exchanged now: %s", error)
            return
        self._surroundings.foreign.learn(announced, own.keys())

    def _flush_metrics(self) -> None:
        self._processed.flush()
        self._metrics.flush(self._pool, now=now_seconds(), dialect=self.dialect())

    def _report_on_callback_thread(self, error: BaseException, context: dict[str, Any]) -> None:
        self._aside.call(lambda: self._hooks.report(error, context))

    def _warn_aside(self, text: str) -> None:
        self._aside.call(lambda: _log.warning("%s", text))

    def _tell_recovered(self, owner: str, count: int, dead: int) -> None:
        if RECOVER.handlers:
            self._aside.call(lambda: RECOVER.emit({"owner": owner, "count": count, "dead": dead}))

    def _announce_dead_lettered(self, raw: bytes, error: BaseException, owed: OwedDeath) -> None:
        payload = parse_job_or_empty(raw)
        about: dict[str, Any] = {"context": "Poison pill", "jobstr": raw}
        if payload:
            about["job"] = payload

        def announce() -> None:
            with log_context(payload):
                self._hooks.report(error, about)
                if payload:
                    self._owed.announce(owed, payload, error)

        self._aside.call(announce)

    def _wait_until_idle(self, deadline: Callable[[], float]) -> bool:
        pause = threading.Event()
        while self._is_busy:
            if monotonic() >= deadline():
                return False
            pause.wait(0.02)
        return True

    @property
    def _is_busy(self) -> bool:
        # A job that was handed to the loop runs a moment later.
        is_loop_busy = self._loop is not None and self._loop.running > 0
        return is_loop_busy or self._state.busy > 0 or not all(manager.is_idle for manager in self._managers)

    def _may_leave_without_redis(self) -> bool:
        is_running = self._state.busy > 0 or (self._loop is not None and self._loop.running > 0)
        return not is_running or monotonic() >= self._deadline + _GRACE_SECONDS

    def _cut_off(self) -> None:
        if self._state.busy:
            _log.info("The time for jobs to finish is up: raising Shutdown in %s", counted(self._state.busy, "job"))
        for manager in self._managers:
            manager.interrupt()
        if self._loop is not None:
            self._loop.shut_down_jobs()
        end = monotonic() + _GRACE_SECONDS
        if not self._wait_until_idle(lambda: end) and self._state.busy:
            count = counted(self._state.busy, "job")
            _log.warning("Shutdown was not heeded by %s; what it did not stop goes back to its queue", count)

    def _leave(self) -> None:
        """Strike this process off; whatever it still holds goes back, but for what still runs here."""
        try:
            self._flush_metrics()
            if self.config.fetcher == "reliable":
                self._pool.run(lambda link: self._ownership.leave(link, now_seconds(), but=self._left))
            elif self._left:
                self._managers[0].fetcher.requeue(self._left)
        except RedisError as error:
            _log.warning("Redis is out of reach; whoever finds this process dead brings its jobs back: %s", error)
        self._pool.close()

    def _let_go_and_exit(self, code: int) -> None:
        """
        The very last step: its threads end, and what still runs goes back to its queue.

        Somebody else may start these jobs as soon as Redis has read the command, so it is to read it when all threads
        have ended; if the command is lost, whoever looks after this owner brings them back.
        """
        link = self._pool.new_link()
        try:
            link.connect()
            logging.shutdown()
            # Where the kernel keeps nothing back, other threads are to get no turn between the command and the exit.
            sys.setswitchinterval(1e-6)
            if self.config.fetcher == "reliable":
                self._ownership.let_go(link, self._left)
        finally:
            os._exit(code)


def _refuse_hard_limits(config: Config, registry: Registry) -> None:
    for definition in registry:
        if definition.hard_timeout_seconds is not None and definition.is_async:
            raise ConfigError(
                f"{definition.name} is an async def with a hard_timeout, which only a job in a thread can have; "
                "use timeout= instead, which cancels it"
            )
        if definition.hard_timeout_seconds is not None and config.fetcher == "basic":
            raise ConfigError(
                f"{definition.name} has a hard_timeout, and the basic fetcher keeps no trace of a job in Redis by "
                "which it could be settled: use --fetcher reliable, or timeout= instead"
            )
        if definition.hard_timeout_seconds is not None and not config.is_single_slot_child:
            raise ConfigError(
                f"{definition.name} has a hard_timeout, which needs a process of its own for each job: "
                "start the worker with --processes N -c 1, or use timeout= instead"
            )
