"""`WorkController`: a worker's options, and its life from start to stop."""

import logging
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from sidekiq_celery import bootsteps, signals
from sidekiq_celery.concurrency import PoolName, get_implementation, pool_name
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.platforms import EX_FAILURE, EX_OK
from sidekiq_celery.utils.log import mlevel
from sidekiq_celery.utils.nodenames import default_nodename, worker_direct
from sidekiq_celery.utils.pidfile import write_pidfile
from sidekiq_celery.utils.text import str_to_list
from sidekiq_celery.utils.time import rate
from sidekiq_celery.utils.timer import Hub, Timer
from sidekiq_celery.worker.active_requests import State
from sidekiq_celery.worker.components import Pool
from sidekiq_celery.worker.consumer import Consumer
from sidekiq_celery.worker.engine_config import engine_config
from sidekiq_celery.worker.pools import autoscale_range, cpu_budget, cpu_count, slots
from sidekiq_py.errors import SidekiqError

if TYPE_CHECKING:
    from sidekiq_celery.events.task_events import TaskEvents
    from sidekiq_py.worker import ScalingPolicy

__all__ = ("WorkController", "stop_steps")

logger = logging.getLogger("celery.worker")

_HEARTBEAT_SECONDS = 2.0

_WITHOUT_EFFECT = {
    "optimization": "-O: a free process takes the next task, as with -O fair",
    "prefetch_multiplier": "--prefetch-multiplier: nothing is prefetched",
    "disable_prefetch": "--disable-prefetch: nothing is prefetched",
    "pool_start_method": "--pool-start-method: children are forked",
    "without_gossip": "--without-gossip: there is no gossip",
    "without_mingle": "--without-mingle: there is no mingle",
    "statedb": "--statedb: revoked tasks are kept in Redis",
}
_WITHOUT_CHILDREN = {
    "max_tasks_per_child": "--max-tasks-per-child: only -P prefork has children that can be replaced",
    "max_memory_per_child": "--max-memory-per-child: only -P prefork has children that can be replaced",
}


class WorkController:
    """
    A worker.

    Args:
        app: The app whose tasks it runs.
        hostname: Its node name, or a part of one.
        concurrency: How many tasks run at once; by default one per processor.
        loglevel, logfile: For its log.
        pool_cls: `prefork`, `threads`, `solo` or `asyncio`.
        queues, exclude_queues: Names, or a text with commas.
        include: Modules to import first.
        pidfile: Holds the process's id while it runs.
        time_limit, soft_time_limit: Seconds, for tasks that set no limits of their own.
        max_tasks_per_child, max_memory_per_child: A child is replaced after that many tasks, or above that many KiB.
        beat: Run beat beside the worker.
        schedule_filename, scheduler: For that beat.
        autoscale: The most and the least processes or threads; also as a text with a comma.
        probe_port: Answer `/live`, `/ready` and `/metrics` over HTTP on this port. Celery has no such option.
        task_events: Send task events to monitors.
        without_heartbeat: Send no events about the worker itself.
        heartbeat_interval: Seconds between the worker's heartbeats to monitors.
        ready_callback: Called with the worker's consumer once it fetches.

    Attributes:
        exitcode: The program's exit code, set once the worker has ended.
        concurrency: How many tasks run at once; it may change.
        thread_policy: The autoscale policy of a worker of threads, or None.
        events: Sends task events, in a process that runs tasks.
        steps: The program's bootsteps that start once the worker is running and stop with it.
        pool_cls: The class of `pool`; its module tells the kind.
        timer, hub, pool: For the bootsteps.
        use_eventloop, statedb, autoscaler: For bootsteps that ask whether there is one; there never is.
        state: Whether it stops, and the tasks that it runs.
        stop_by: Acts on a signal while the worker runs; None before that.
    """

    app: ClassVar[Any] = None
    blueprint: Any = None
    use_eventloop = False
    statedb: Any = None
    autoscaler: Any = None

    def __init__(self, app: App | None = None, hostname: str | None = None, **kwargs: Any) -> None:
        self.app: Any = app or type(self).app  # type: ignore[misc]
        self.hostname = default_nodename(hostname)
        self.exitcode: int | None = None
        self.state = State()
        self.stop_by: Callable[[signal.Signals], None] | None = None
        self.thread_policy: ScalingPolicy | None = None
        self.events: TaskEvents | None = None
        self.app.loader.init_worker()
        self.on_before_init(**kwargs)
        self.setup_defaults(**kwargs)
        self.on_after_init(**kwargs)
        self.setup_instance(**kwargs)

    def __repr__(self) -> str:
        return f"<Worker: {self.hostname} ({self.blueprint.human_state() if self.blueprint else 'INIT'})>"

    def __str__(self) -> str:
        return self.hostname

    def on_before_init(self, **kwargs: Any) -> None:
        """Called before options are read."""

    def on_after_init(self, **kwargs: Any) -> None:
        """Called after options are read."""

    def on_init_blueprint(self) -> None:
        """Called before anything is started; the place to set up logging."""

    def setup_defaults(
        self,
        concurrency: Any = None,
        loglevel: Any = "WARN",
        logfile: str | None = None,
        pool_cls: Any = None,
        pool: Any = None,
        time_limit: float | None = None,
        soft_time_limit: float | None = None,
        max_tasks_per_child: int | None = None,
        max_memory_per_child: int | None = None,
        task_events: bool | None = None,
        without_heartbeat: bool = False,
        heartbeat_interval: float | None = None,
        autoscale: Any = None,
        probe_port: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Read options, falling back to settings."""
        self.probe_port = probe_port
        either = self.app.either
        self.loglevel: Any = mlevel(loglevel)
        self.logfile = logfile
        self.pool_name = pool_name(either("worker_pool", pool_cls or pool))
        self.pool_cls = get_implementation(self.pool_name)
        self.time_limit = either("task_time_limit", time_limit)
        self.soft_time_limit = either("task_soft_time_limit", soft_time_limit)
        self.max_tasks_per_child = either("worker_max_tasks_per_child", max_tasks_per_child)
        self.max_memory_per_child = either("worker_max_memory_per_child", max_memory_per_child)
        self.task_events = either("worker_send_task_events", task_events)
        self.heartbeat_seconds = 0.0 if without_heartbeat else float(heartbeat_interval or _HEARTBEAT_SECONDS)
        self.autoscale = autoscale_range(self.pool_name, autoscale)
        wanted = self.autoscale[1] if self.autoscale else either("worker_concurrency", concurrency)
        self.concurrency = 1 if self.pool_name == "solo" else _number(wanted, self.pool_name)

    def setup_instance(
        self,
        queues: Any = None,
        exclude_queues: Any = None,
        include: Any = None,
        pidfile: str | None = None,
        ready_callback: Callable[[Any], Any] | None = None,
        beat: bool | None = None,
        schedule_filename: str | None = None,
        scheduler: Any = None,
        **kwargs: Any,
    ) -> None:
        """Choose queues, import modules, and set up logging."""
        self.pidfile = pidfile
        self.ready_callback = ready_callback or self.on_consumer_ready
        self.setup_queues(queues, exclude_queues)
        self.setup_includes(str_to_list(include))
        self.beat = _beat_beside(self, schedule_filename, scheduler) if beat else None
        # As in Celery, bootsteps are given all options, also those that are used here.
        kwargs.update(beat=beat, schedule_filename=schedule_filename, scheduler=scheduler)
        self._remove_pidfile: Callable[[], None] | None = None
        self._options = kwargs
        signals.worker_init.send(sender=self)
        self.on_init_blueprint()
        self.steps: list[Any] = []
        self.timer = Timer()
        self.hub = Hub(self.timer)
        self.pool = self.pool_cls(self)
        # The tasks' on_bound may add bootsteps.
        self.app.finalize()
        self.blueprint = bootsteps.Blueprint(self.app.steps["worker"], name="Worker")
        self.blueprint.apply(self, **kwargs)
        self.consumer = Consumer(self, **kwargs)

    def setup_queues(self, include: Any, exclude: Any = None) -> None:
        """
        Serve the queues in *include*, and not those in *exclude*.

        Raises:
            ImproperlyConfigured: A queue is not in `task_queues`, and missing queues may not be created.
        """
        queues = self.app.amqp.queues
        for names, choose, option in (
            (str_to_list(include), queues.select, "-Q"),
            (str_to_list(exclude), queues.deselect, "-X"),
        ):
            try:
                choose(names)
            except KeyError as error:
                raise ImproperlyConfigured(
                    f"{option} names the queue {error}, which task_queues does not have; add it there, or allow "
                    "task_create_missing_queues"
                ) from error
        if self.app.conf.worker_direct:
            queues.select_add(worker_direct(self.hostname))
        if not queues.consume_from:
            raise ImproperlyConfigured("there is no queue left to serve; name one with -Q")

    def setup_includes(self, includes: Any) -> None:
        """Import modules of tasks."""
        if includes:
            already = tuple(self.app.conf.include or ())
            self.app.conf.include = [*already, *(name for name in includes if name not in already)]
            for module in includes:
                self.app.loader.import_task_module(module)

    # ---- its life

    def start(self) -> None:
        """
        Run until a signal or `stop` ends the worker.

        Outside the main thread no signal reaches it, and tasks run in threads of this process, whatever the pool.

        Raises:
            ImproperlyConfigured: The broker is not Redis, beat's scheduler cannot be imported, a rate limit cannot be
                read, or another worker holds the pidfile.
        """
        from sidekiq_celery.worker.embedding import run_embedded, use_threads
        from sidekiq_celery.worker.processes import restart_on_hup, run_here, run_prefork
        from sidekiq_celery.worker.startup import wait_for_redis
        from sidekiq_py.worker import explaining_thread_limits

        is_embedded = threading.current_thread() is not threading.main_thread()
        if is_embedded:
            use_threads(
                self,
                "a worker that is started outside the main thread runs tasks in threads of this process, also with the "
                "pool 'prefork'; name 'threads' or 'solo'. Time limits that kill need a worker in the main thread",
            )
        chosen = slots(self.pool_name, self.concurrency)
        # Reject an unusable broker before anything else happens.
        engine_config(self.app, chosen)
        if self.beat is not None:
            # A beat that cannot start would be missed only later: the worker goes on without it.
            self.beat.service.scheduler_class()
        self._limit_tasks()
        if not self.app.conf.worker_disable_rate_limits:
            # Children would end one after the other, each with a traceback.
            check_rate_limits(self.app)
        self.on_start()
        # Receivers of `celeryd_after_setup` may have changed the queues.
        config = replace(engine_config(self.app, chosen), tag=self.hostname)
        if is_embedded:
            run, restart = run_embedded, _start_nothing
        else:
            run, restart = run_prefork if chosen.processes else run_here, restart_on_hup(self.stop)
            if self.state.should_stop:
                # `stop` was called before there was anything to stop.
                run = _run_nothing
        try:
            if not self.state.should_stop and not wait_for_redis(self, config):
                run = _run_nothing
            with explaining_thread_limits():
                if self.beat is not None and not chosen.processes and run is not _run_nothing:
                    self.beat.start()
                self.exitcode = run(self, config) or self.exitcode or 0
        except SidekiqError as error:
            logger.critical("the worker cannot start: %s", error)
            self.exitcode = 1
            self.on_stopped()
        restart()

    def stop(self, in_sighandler: bool = False, exitcode: int | None = None) -> None:
        """
        Stop as after TERM: running tasks may finish. `start` returns then; this method does not wait for that.

        Args:
            in_sighandler: Without effect, because the method may be called anywhere.
            exitcode: Becomes the worker's exit code.
        """
        if exitcode is not None:
            self.exitcode = exitcode
        self._stop_by(signal.SIGTERM)

    def terminate(self, in_sighandler: bool = False) -> None:
        """Stop as after QUIT: tasks that are running go back to their queues."""
        self._stop_by(signal.SIGQUIT)

    def be_stopped_by(self, act: Callable[[signal.Signals], None]) -> None:
        """Let `stop` and `terminate` call *act* from now on. It is called at once if one of them was called before."""
        self.stop_by = act
        if self.state.should_stop:
            act(signal.SIGQUIT if self.state.should_terminate else signal.SIGTERM)

    def _stop_by(self, number: signal.Signals) -> None:
        # First, because `be_stopped_by` looks at them once it has set `stop_by`.
        self.state.should_stop = True
        self.state.should_terminate |= number == signal.SIGQUIT
        if self.stop_by is not None:
            self.stop_by(number)

    def on_start(self) -> None:
        """Called before the first process starts."""
        if self.pidfile:
            self._remove_pidfile = write_pidfile(self.pidfile)

    def on_ready(self) -> None:
        """Called once all processes fetch. A bootstep that fails to start stops the worker."""
        if self.state.should_stop:
            return
        try:
            self.blueprint.start(self)
            self.consumer.blueprint.start(self.consumer)
        except Exception as error:  # noqa: BLE001 - logged there, with its traceback
            self.on_failed_step(error)
            return
        self.ready_callback(self.consumer)

    def on_failed_step(self, error: Exception) -> None:
        """Called when a bootstep raised *error* while starting."""
        logger.critical("Unrecoverable error: a bootstep failed to start: %r", error, exc_info=error)
        self.stop(exitcode=1)

    def on_consumer_ready(self, consumer: Any) -> None:
        """The default `ready_callback`, for subclasses: called once the worker fetches."""

    def on_shutting_down(self, name: str) -> None:
        """Called when a signal asks the worker to stop."""
        self.state.should_stop = True
        self.state.should_terminate |= name == "QUIT"
        name, how = ("QUIT", "Cold") if self.state.should_terminate else (name, "Warm")
        # As in Celery, where only TERM counts as a success. A cold stop nevertheless ends with 0 there.
        code = EX_OK if name == "TERM" else EX_FAILURE
        if name == "INT":
            self.exitcode = code
        signals.worker_shutting_down.send(sender=self.hostname, sig=f"SIG{name}", how=how, exitcode=code)
        logger.info("%s shutdown: %s", how, self.hostname)
        stop_steps(self)

    def on_stopped(self) -> None:
        """Called when nothing is running any more."""
        self.consumer.blueprint.stop(self.consumer)
        self.blueprint.stop(self, terminate=self.state.should_terminate)
        self.timer.stop()
        self.consumer.blueprint.send_all(self.consumer, "shutdown", propagate=False)
        self.consumer.close_connection()
        if self.beat is not None and self.beat.is_alive():
            self.beat.stop()
        self.app.loader.shutdown_worker()
        signals.worker_shutdown.send(sender=self)
        if self._remove_pidfile is not None:
            self._remove_pidfile()

    def options_without_effect(self) -> list[str]:
        """The given options that have no effect here, each with the reason."""
        given = self._options
        texts = [text for name, text in _WITHOUT_EFFECT.items() if given.get(name) not in (None, False, "default")]
        if self.pool_name != "prefork":
            texts += [text for name, text in _WITHOUT_CHILDREN.items() if getattr(self, name)]
        if given.get("autoscale") and self.autoscale is None:
            texts.append(f"--autoscale: -P {self.pool_name} neither grows nor shrinks by itself")
        return texts

    def _limit_tasks(self) -> None:
        """Apply the worker's limits to tasks that set none."""
        conf = self.app.conf
        defaults = {
            "time_limit": (conf.task_time_limit, self.time_limit),
            "soft_time_limit": (conf.task_soft_time_limit, self.soft_time_limit),
        }
        for task in self.app.tasks.values():
            for name, (by_setting, wanted) in defaults.items():
                if getattr(task, name) in (None, by_setting):
                    setattr(task, name, wanted)


def check_rate_limits(app: App) -> None:
    """
    Check that the rate limits of the settings and of all tasks can be read.

    Raises:
        ImproperlyConfigured: One of them cannot.
    """
    limits = {"task_default_rate_limit": app.conf.task_default_rate_limit}
    limits |= {f"the rate_limit of {task.name}": task.rate_limit for task in app.tasks.values()}
    for name, limit in limits.items():
        try:
            rate(limit)
        except (KeyError, ValueError) as error:
            raise ImproperlyConfigured(
                f"{name} is {limit!r}; write it as in '10/s', '100/m' or '5/h', or give a number of tasks per second"
            ) from error


def stop_steps(worker: WorkController) -> None:
    """Stop the bootsteps that Celery stops before it waits for running tasks."""
    worker.blueprint.close(worker)
    worker.consumer.blueprint.stop(worker.consumer)
    worker.blueprint.stop_dependents(worker, Pool, terminate=worker.state.should_terminate)


def _run_nothing(worker: WorkController, config: Any) -> int:
    worker.on_stopped()
    return 0


def _start_nothing() -> None:
    """Take the place of the function that starts a worker again after HUP."""


def _number(concurrency: Any, pool: PoolName) -> int:
    """
    Return how many tasks run at once. With `auto`, a container's quota counts, but only for processes, as in Celery.

    Raises:
        ImproperlyConfigured: *concurrency* is neither a number nor `auto`.
    """
    if not concurrency:
        return cpu_count()
    if str(concurrency).strip().lower() == "auto":
        return cpu_budget() if pool == "prefork" else cpu_count()
    try:
        number = int(concurrency)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise ImproperlyConfigured(
            f"concurrency is {concurrency!r}; it must be a whole number of at least 1, or 'auto'"
        )
    return number


def _beat_beside(worker: WorkController, schedule_filename: str | None, scheduler: Any) -> Any:
    from sidekiq_celery.beat import EmbeddedService

    return EmbeddedService(
        worker.app,
        schedule_filename=schedule_filename,
        scheduler_cls=worker.app.either("beat_scheduler", scheduler),
        thread=worker.pool_name != "prefork",
    )
