"""Builds the parts of a worker process and connects them, without starting anything."""

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from sidekiq_py import program
from sidekiq_py.client import sync_client
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
from sidekiq_py.engine.upkeep.queue_trends import NOTE_SIZES
from sidekiq_py.errors import ConfigError
from sidekiq_py.hooks import Hooks
from sidekiq_py.loaded_extensions import LoadedExtensions
from sidekiq_py.middleware.chain import Chain, ServerMiddleware
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.registry import Registry
from sidekiq_py.registry import registry as program_registry
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.process_info import CapsuleFacts, ProcessFacts

if TYPE_CHECKING:
    from sidekiq_py.engine.run.event_loop import EventLoop

_log = logging.getLogger("sidekiq")


class WorkerParts:
    """
    The parts of a worker process. `Launcher` starts and stops them.

    Args:
        config: The process's configuration.
        registry: The jobs that the process can run; by default, as for the next four, the program's own.
        hooks: The event, error and death handlers.
        server_middleware: The middleware around every run.
        client: Pushes the jobs that other jobs enqueue, that come due, and that were interrupted.
        extensions: The extensions to use.
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
        extensions: LoadedExtensions = program.extensions,
        on_epoch: Callable[[str], None] = lambda owner: None,
    ) -> None:
        _refuse_hard_limits(config, registry)
        client = sync_client.current() if client is None else client
        extensions.load_installed()
        is_reliable = config.fetcher == "reliable"
        self.config = config
        self.identity = identity = identities.new_identity()
        self.hooks = hooks
        self.pool = pool = Pool(config.redis)
        self.detection = client.detection
        self.life = life = LifeCycle()
        self.signals = signals = SignalInbox(USR1_DUMPS if config.usr1_dumps_threads else None)
        self.state = state = WorkState()
        self.metrics = metrics = ExecutionMetrics()
        self.processed = processed = ProcessedCount(pool)
        self.limits = SoftLimits()
        self.callbacks = CallbackThread()
        downtime = Downtime()
        context = JobContext()
        self.job_logger = JobLogger(context, identity)
        reports = OwnershipReports(self.callbacks, hooks)
        dialect = _dialect(config, client, life)
        queues = list(dict.fromkeys(name for capsule in config.capsules for name in capsule.queue_names))
        self.ownership = ownership = Ownership(identity, queues, config.lease_seconds, on_epoch, reports.warn)
        pending_deaths = PendingDeaths(pool, ownership, hooks, dialect, is_kept=is_reliable)
        self.managers: list[Manager] = []
        self.surroundings = Surroundings(
            config=config,
            registry=registry,
            chain=server_middleware,
            hooks=hooks,
            pending_deaths=pending_deaths,
            state=state,
            metrics=metrics,
            context=context,
            identity=identity,
            dialect=dialect,
            repush=client.repush,
            foreign=ForeignFeatures(
                config,
                hooks,
                fetchers=lambda: [manager.fetcher for manager in self.managers],
                # `self.heartbeat` is created below.
                on_unserved=lambda queue: self.heartbeat.leave_out(queue),  # noqa: PLW0108
                is_stopping=lambda: life.is_quieting,
                takes_over=lambda key, payload: extensions.takes_over(key, payload, pool),
            ),
            extensions=extensions,
            is_stopping=lambda: life.is_quieting,
        )
        self.loop = loop = _loop(self.surroundings, self.managers)

        def fetcher(capsule: CapsuleConfig) -> Fetcher:
            room = loop.room if loop is not None else lambda: None
            if not is_reliable:
                from sidekiq_py.engine.fetch.basic import BasicFetcher  # few workers use it

                return BasicFetcher(capsule, pool, report=hooks.report, room=room)
            return ReliableFetcher(
                capsule,
                config,
                pool,
                ownership,
                report=hooks.report,
                room=room,
                on_notices=registry.on_notices,
                count=processed.add,
                downtime=downtime,
            )

        for capsule in config.capsules:
            self.managers.append(Manager(capsule, fetcher(capsule), self.surroundings, self.limits, loop))
        self.jobs = RunningJobs(state, self.managers, loop)
        self.termination = Termination(self.surroundings, pool, self.managers, loop)
        self.extension_start = ExtensionStart(extensions, self.surroundings.foreign, pool, hooks)
        declared = Declared(pool, identity, registry)

        def flush_counts() -> None:
            processed.flush()
            metrics.flush(pool, now=now_seconds(), dialect=dialect())

        def after_beat(was_known: bool) -> None:
            flush_counts()
            declared.keep(was_known=was_known)
            self.extension_start.exchange_keys()

        def take_remote_signal(name: str) -> None:
            # The Web UI must not stop the program that embeds this worker.
            if config.embedded:
                _log.info("ignoring %s, which was sent to an embedded worker", name)
            else:
                signals.put(name)

        self.heartbeat = Heartbeat(
            _facts(config, identity, dialect(), has_loop=loop is not None),
            pool=pool,
            dialect=dialect,
            running=state.snapshot,
            is_quiet=lambda: life.is_quiet,
            hooks=hooks,
            on_signal=take_remote_signal,
            on_beat=after_beat,
            downtime=downtime,
        )
        self.poller = poller = Poller(
            config,
            pool=pool,
            identity=identity,
            repush=client.repush,
            dialect=dialect,
            report=hooks.report,
            extensions=extensions,
        )
        chores = {"queues": (NOTE_SIZES,), **{extension.name: extension.maintain() for extension in extensions}}
        self.maintenance = [
            MaintenanceThread(name, tasks, pool, is_ours=lambda: poller.is_quick, report=hooks.report)
            for name, tasks in chores.items()
        ]
        self.lease = LeaseKeeper(
            pool, ownership, config.lease_beat_seconds, callbacks=self.callbacks, report=hooks.report
        )
        link = pool.new_link()
        recovery = Recovery(
            config,
            link,
            ownership,
            dialect=dialect,
            extensions=extensions,
            pending_deaths=pending_deaths,
            report=reports.report,
            on_dead_lettered=reports.dead_lettered,
            on_pending_death=reports.pending_death,
            on_recovered=reports.recovered,
        )
        self.housekeeper = Housekeeper(link, ownership, recovery, config.lease_beat_seconds, reports.report)
        self.reconfiguration = Reconfiguration(
            config,
            managers={manager.name: manager for manager in self.managers},
            loop=loop,
            foreign=self.surroundings.foreign,
            heartbeat=self.heartbeat,
            pool=pool,
            state=state,
        )
        loops: dict[str, Loop] = {"lease": self.lease, "housekeeper": self.housekeeper, "heartbeat": self.heartbeat}
        fetching: dict[str, Loop] = {f"fetch ({manager.name})": manager.fetcher for manager in self.managers}
        self.liveness = Liveness(life, pool, downtime, loops, {"poller": poller, **fetching}, config.stall_seconds)
        self.departure = Departure(pool, ownership if is_reliable else None, self.managers, flush_counts)


def _dialect(config: Config, client: Client, life: LifeCycle) -> Callable[[], Dialect]:
    """Return a function for the release to write for: the config's, or what is known of the running Ruby processes."""
    if (pinned := config.pinned_dialect()) is not None:
        return lambda: pinned

    detection = client.detection

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
        tag=config.tag,
        capsules=tuple(
            CapsuleFacts(capsule.name, capsule.concurrency, capsule.mode, capsule.weights)
            for capsule in config.capsules
        ),
        labels=config.labels,
        identity=identity,
        version=".".join(map(str, dialect.version)),
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
