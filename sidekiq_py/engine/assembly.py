"""Builds the parts of a worker process and connects them, without starting anything."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.client.detection import Detection
from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import now_seconds
from sidekiq_py.config import CapsuleConfig, Config
from sidekiq_py.engine.callback_thread import CallbackThread
from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.fetch.fetcher import Fetcher
from sidekiq_py.engine.fetch.reliable import ReliableFetcher
from sidekiq_py.engine.ownership import identity as identities
from sidekiq_py.engine.ownership.housekeeper import Housekeeper
from sidekiq_py.engine.ownership.lease_keeper import LeaseKeeper
from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.engine.ownership.pending_deaths import PendingDeaths
from sidekiq_py.engine.ownership.recovery import Recovery
from sidekiq_py.engine.ownership.reports import OwnershipReports
from sidekiq_py.engine.reconfiguration import Reconfiguration
from sidekiq_py.engine.report.job_context import JobContext
from sidekiq_py.engine.report.job_logger import JobLogger
from sidekiq_py.engine.run.attempt import Surroundings
from sidekiq_py.engine.run.foreign_features import ForeignFeatures
from sidekiq_py.engine.run.interrupts import SoftLimits
from sidekiq_py.engine.run.life_cycle import LifeCycle
from sidekiq_py.engine.run.manager import Manager
from sidekiq_py.engine.run.metrics import ExecutionMetrics
from sidekiq_py.engine.run.processed_count import ProcessedCount
from sidekiq_py.engine.run.running_jobs import RunningJobs
from sidekiq_py.engine.run.termination import Termination
from sidekiq_py.engine.run.work_state import WorkState
from sidekiq_py.engine.signals import USR1_DUMPS, SignalInbox
from sidekiq_py.engine.upkeep.declared_classes import Declared
from sidekiq_py.engine.upkeep.departure import Departure
from sidekiq_py.engine.upkeep.extension_start import ExtensionStart
from sidekiq_py.engine.upkeep.heartbeat import Heartbeat
from sidekiq_py.engine.upkeep.liveness import Liveness, Loop
from sidekiq_py.engine.upkeep.maintenance import MaintenanceThread
from sidekiq_py.engine.upkeep.poller import Poller
from sidekiq_py.engine.upkeep.promoter import Promoter
from sidekiq_py.engine.upkeep.queue_trends import NOTE_SIZES
from sidekiq_py.errors import ConfigError
from sidekiq_py.hooks import Hooks
from sidekiq_py.logs import log
from sidekiq_py.middleware.chain import Chain, ServerMiddleware
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.registry import Registry
from sidekiq_py.registry import registry as program_registry
from sidekiq_py.wire.dialect import Dialect, version_text
from sidekiq_py.wire.process_info import CapsuleFacts, ProcessFacts

if TYPE_CHECKING:
    from sidekiq_py.engine.run.event_loop import EventLoop


class WorkerParts:
    """
    The parts of a worker process. `Launcher` starts and stops them.

    Args:
        config: The process's configuration.
        registry: The jobs that the process can run; by default, as for the next three, the program's own.
        hooks: The event, error and death handlers.
        server_middleware: The middleware around every run.
        client: Pushes the jobs that other jobs enqueue, that come due, and that were interrupted.
        on_epoch: Called with the name of each owner that this process becomes, for a parent that watches it.

    Raises:
        ConfigError: A declared job needs something that this process does not offer.
    """

    def __init__(
        self,
        config: Config,
        *,
        registry: Registry = program_registry,
        hooks: Hooks = program.hooks,
        server_middleware: Chain[ServerMiddleware] = program.server_middleware,
        client: Client | None = None,
        on_epoch: Callable[[str], None] = lambda owner: None,
    ) -> None:
        _refuse_hard_limits(config, registry)
        self._client = sync_client.current() if client is None else client
        self._extensions = program.extensions
        self._extensions.load_installed()
        self._registry = registry
        self.config = config
        self.hooks = hooks
        self.identity = identities.new_identity()
        self.pool = Pool(config.redis)
        self.detection = self._client.detection
        self.life = LifeCycle()
        self.signals = SignalInbox(USR1_DUMPS if config.usr1_dumps_threads else None)
        self.state = WorkState()
        self.metrics = ExecutionMetrics()
        self.processed = ProcessedCount(self.pool)
        self.limits = SoftLimits()
        self.callbacks = CallbackThread()
        self._downtime = Downtime()
        self._dialect = _dialect(config, self.detection, self.life)
        program.iteration_limits = program.IterationLimits(
            config.max_iteration_runtime_seconds, config.shutdown_timeout_seconds
        )
        context = JobContext()
        self.job_logger = JobLogger(context, self.identity)
        self._own(on_epoch)
        self._run(server_middleware, context)
        self._keep_up()
        self._watch()

    def _own(self, on_epoch: Callable[[str], None]) -> None:
        """Build what owns jobs, and what recovers the jobs of owners that are gone."""
        config, pool = self.config, self.pool
        self._is_reliable = config.fetcher == "reliable"
        reports = OwnershipReports(self.callbacks, self.hooks)
        self.ownership = Ownership(self.identity, config.queue_names, config.lease_seconds, on_epoch, reports.warn)
        self._pending_deaths = PendingDeaths(pool, self.ownership, self.hooks, self._dialect, is_kept=self._is_reliable)
        self.lease = LeaseKeeper(
            pool, self.ownership, config.lease_beat_seconds, callbacks=self.callbacks, report=self.hooks.report
        )
        link = pool.new_link()
        recovery = Recovery(
            config,
            link,
            self.ownership,
            dialect=self._dialect,
            extensions=self._extensions,
            pending_deaths=self._pending_deaths,
            report=reports.report,
            on_dead_lettered=reports.dead_lettered,
            on_pending_death=reports.pending_death,
            on_recovered=reports.recovered,
        )
        self.housekeeper = Housekeeper(link, self.ownership, recovery, config.lease_beat_seconds, reports.report)

    def _run(self, server_middleware: Chain[ServerMiddleware], context: JobContext) -> None:
        """Build what fetches and runs jobs."""
        self.managers: list[Manager] = []
        self.surroundings = Surroundings(
            config=self.config,
            registry=self._registry,
            chain=server_middleware,
            hooks=self.hooks,
            pending_deaths=self._pending_deaths,
            state=self.state,
            metrics=self.metrics,
            context=context,
            identity=self.identity,
            dialect=self._dialect,
            repush=self._client.repush,
            foreign=ForeignFeatures(
                self.config,
                self.hooks,
                fetchers=lambda: [manager.fetcher for manager in self.managers],
                # `self.heartbeat` is created later.
                on_unserved=lambda queue: self.heartbeat.change(lambda facts: facts.without(queue)),
                is_stopping=lambda: self.life.is_quieting,
                takes_over=lambda key, payload: self._extensions.takes_over(key, payload, self.pool),
            ),
            extensions=self._extensions,
            is_stopping=lambda: self.life.is_quieting,
        )
        self.loop = _loop(self.surroundings, self.managers)
        for capsule in self.config.capsules:
            self.managers.append(Manager(capsule, self._fetcher(capsule), self.surroundings, self.limits, self.loop))
        self.jobs = RunningJobs(self.state, self.managers, self.loop)
        self.termination = Termination(self.surroundings, self.pool, self.managers, self.loop)

    def _fetcher(self, capsule: CapsuleConfig) -> Fetcher:
        room = self.loop.room if self.loop is not None else lambda: None
        if not self._is_reliable:
            from sidekiq_py.engine.fetch.basic import BasicFetcher  # few workers use it

            return BasicFetcher(capsule, self.pool, report=self.hooks.report, room=room)
        return ReliableFetcher(
            capsule,
            self.config,
            self.pool,
            self.ownership,
            report=self.hooks.report,
            room=room,
            on_notices=self._registry.on_notices,
            count=self.processed.add,
            downtime=self._downtime,
        )

    def _keep_up(self) -> None:
        """Build what tells other processes of this one, and what is done from time to time."""
        foreign = self.surroundings.foreign
        self.extension_start = ExtensionStart(self._extensions, foreign, self.pool, self.hooks)
        self._declared = Declared(self.pool, self.identity, self._registry)
        self.heartbeat = Heartbeat(
            _facts(self.config, self.identity, self._dialect(), has_loop=self.loop is not None),
            pool=self.pool,
            dialect=self._dialect,
            running=self.state.snapshot,
            is_quiet=lambda: self.life.is_quiet,
            hooks=self.hooks,
            on_signal=self._take_remote_signal,
            on_beat=self._after_beat,
            downtime=self._downtime,
        )
        promoter = Promoter(
            self.config.dead_limits,
            pool=self.pool,
            repush=self._client.repush,
            dialect=self._dialect,
            report=self.hooks.report,
            extensions=self._extensions,
        )
        self.poller = Poller(
            self.config,
            pool=self.pool,
            identity=self.identity,
            promoter=promoter,
            dialect=self._dialect,
            report=self.hooks.report,
        )
        chores = {"queues": (NOTE_SIZES,), **self._extensions.maintenance()}
        self.maintenance = [
            MaintenanceThread(name, tasks, self.pool, is_ours=lambda: self.poller.is_quick, report=self.hooks.report)
            for name, tasks in chores.items()
        ]

    def _watch(self) -> None:
        """Build what changes the other parts, judges whether they are alive, and takes leave for them."""
        managers = {manager.name: manager for manager in self.managers}
        self.reconfiguration = Reconfiguration(self.surroundings, self.pool, managers, self.loop, self.heartbeat)
        loops: dict[str, Loop] = {"lease": self.lease, "housekeeper": self.housekeeper, "heartbeat": self.heartbeat}
        fetching: dict[str, Loop] = {
            "poller": self.poller,
            **{f"fetch ({name})": manager.fetcher for name, manager in managers.items()},
        }
        self.liveness = Liveness(self.life, self.pool, self._downtime, loops, fetching, self.config.stall_seconds)
        ownership = self.ownership if self._is_reliable else None
        self.departure = Departure(self.pool, ownership, self.managers, self._flush_counts)

    def _flush_counts(self) -> None:
        self.processed.flush()
        self.metrics.flush(self.pool, now=now_seconds(), dialect=self._dialect())

    def _after_beat(self, was_known: bool) -> None:
        self._flush_counts()
        self._declared.keep(was_known=was_known)
        self.extension_start.after_beat()

    def _take_remote_signal(self, name: str) -> None:
        # The Web UI must not stop the program that embeds this worker.
        if self.config.embedded:
            log.info("ignoring %s, which was sent to an embedded worker", name)
        else:
            self.signals.put(name)


def _dialect(config: Config, detection: Detection, life: LifeCycle) -> Callable[[], Dialect]:
    """Return a function for the release to write for: the config's, or what is known of the running Ruby processes."""
    if (pinned := config.pinned_dialect()) is not None:
        return lambda: pinned

    def dialect() -> Dialect:
        now = now_seconds()
        # During a stop, the last known release is good enough and avoids waiting for a hanging Redis.
        if detection.valid_from <= now < detection.valid_until or life.is_stopping:
            return detection.last
        return detection.dialect(now)

    return dialect


def _loop(surroundings: Surroundings, managers: list[Manager]) -> "EventLoop | None":
    if not any(definition.is_async for definition in surroundings.registry):
        return None
    # Imported only when needed: asyncio takes more memory than all the rest of an idle worker.
    from sidekiq_py.engine.run.event_loop import EventLoop

    def wake_fetchers() -> None:
        for manager in managers:
            manager.fetcher.wake()

    return EventLoop(surroundings, surroundings.config.async_concurrency, wake_fetchers)


def _facts(config: Config, identity: str, dialect: Dialect, *, has_loop: bool) -> ProcessFacts:
    return ProcessFacts(
        hostname=identities.hostname(),
        started_at=now_seconds(),
        pid=os.getpid(),
        # It is often the name of a directory, which may have bytes that are not UTF-8 and could not be sent.
        tag=config.tag.encode(errors="replace").decode(),
        capsules=tuple(
            CapsuleFacts(capsule.name, capsule.concurrency, capsule.mode, capsule.weights)
            for capsule in config.capsules
        ),
        labels=config.labels,
        identity=identity,
        version=version_text(dialect.version),
        embedded=config.embedded,
        coroutines=config.async_concurrency if has_loop else 0,
    )


def _refuse_hard_limits(config: Config, registry: Registry) -> None:
    for definition in registry:
        if definition.hard_timeout_seconds is None:
            continue
        if definition.is_async:
            raise ConfigError(
                f"{definition.name} is an async def with a hard_timeout, which only a job in a thread can have; "
                "use timeout= instead, which cancels it"
            )
        if config.fetcher == "basic":
            raise ConfigError(
                f"{definition.name} has a hard_timeout, and the basic fetcher keeps no trace of a job in Redis by "
                "which it could be settled: use --fetcher reliable, or timeout= instead"
            )
        if not config.is_single_slot_child:
            raise ConfigError(
                f"{definition.name} has a hard_timeout, which needs a process of its own for each job: "
                "start the worker with --processes N -c 1, or use timeout= instead"
            )
