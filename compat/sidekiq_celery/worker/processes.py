"""
A worker's processes on the engine: either one that runs tasks itself, or a parent of children with one slot each.

TERM and INT stop the worker warmly: running tasks may finish. QUIT, or another TERM a second or more later, stops it
coldly: `Shutdown` is raised in running tasks, and their jobs are requeued. HUP stops it warmly and starts it again,
unless it belongs to a terminal. USR1 logs a stack trace of each thread.
"""

import logging
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from sidekiq_celery import signals
from sidekiq_celery._send.clients import client_of
from sidekiq_celery.concurrency import prefork
from sidekiq_celery.events.task_events import TaskEvents
from sidekiq_celery.platforms import isatty
from sidekiq_celery.utils.text import pluralize
from sidekiq_celery.worker import remote_control_host
from sidekiq_celery.worker.child_numbers import ChildNumbers, be_number
from sidekiq_celery.worker.queue_commands import serve_present_queues
from sidekiq_celery.worker.registering import register_tasks_of
from sidekiq_celery.worker.scaling import ThreadScaler, scaling_policy
from sidekiq_py.errors import SidekiqError
from sidekiq_py.probes.worker import answer_probes
from sidekiq_py.worker import (
    Config,
    Hooks,
    Launcher,
    Parent,
    Registry,
    Role,
    Supervisor,
    WorkerParts,
    end_process_pools,
    jobs_in_flight,
    run_child,
    run_worker,
    server_middleware,
    settle_memory,
)
from sidekiq_py.worker import hooks as program_hooks
from sidekiq_py.worker import registry as program_registry

logger = logging.getLogger("celery.worker")

# A process manager may send a signal to all processes at once, and the parent of a child passes it on. Together they
# mean one stop.
_ONE_STOP_SECONDS = 1.0


def make_launcher(
    worker: Any,
    config: Config,
    on_epoch: Callable[[str], None] = lambda owner: None,
    registry: Registry = program_registry,
    hooks: Hooks = program_hooks,
) -> Launcher:
    """Make the launcher that runs the tasks of *worker* in this process."""
    worker.events = TaskEvents(worker.app, worker.hostname, is_on=bool(worker.task_events))
    hooks.on("exit")(worker.events.close)
    register_tasks_of(worker, registry, hooks, has_hard_limits=config.is_single_slot_child)
    client = client_of(worker.app)
    return Launcher(WorkerParts(config, registry=registry, hooks=hooks, client=client, on_epoch=on_epoch))


def run_here(worker: Any, config: Config) -> int:
    """
    Run tasks in this process until asked to stop, and return the exit code.

    Does not return if a task ignored `Shutdown`.
    """
    if worker.pool_name == "solo":
        be_process_of_tasks(worker, program_hooks)
    program_hooks.on("exit")(worker.on_stopped)
    probes = None if worker.probe_port is None else answer_probes(worker.probe_port)
    launcher = make_launcher(worker, config)
    on_quit = _watch_quit(worker, launcher)
    if term_is_quit():
        launcher.signals.call_at("TERM", on_quit)
    if probes is not None:
        probes.launcher = launcher
    remote_control = remote_control_host.beside(worker, launcher)
    worker.thread_policy = scaling_policy(worker)
    worker.state.running_jobs = lambda: [job.unit.raw for job in launcher.state.snapshot()]

    def on_ready() -> None:
        if worker.thread_policy is not None:
            scaler = ThreadScaler(worker, launcher, worker.thread_policy)
            program_hooks.on("quiet")(scaler.stop)
            scaler.start()
        if remote_control is not None:
            remote_control.start()
        worker.on_ready()

    def on_stop(name: str) -> None:
        # A bootstep that stops the running tasks should not meet new ones.
        launcher.quiet()
        worker.on_shutting_down(name)

    settle_memory()
    return run_worker(launcher, on_ready=on_ready, on_stop=on_stop, runs_jobs_here=worker.pool_name == "solo")


def run_prefork(worker: Any, config: Config) -> int:
    """Keep children running until asked to stop, and return the exit code."""
    forks = number = 0
    numbers = ChildNumbers()

    def before_fork() -> None:
        nonlocal forks, number
        forks += 1
        number = numbers.give(child.pid for child in supervisor.children if child.is_staying)
        signals.worker_before_create_process.send(sender=worker)

    def be_child(parent: Parent) -> int:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        multiprocessing.current_process().name = f"ForkPoolWorker-{forks}"
        be_number(number, worker)
        be_process_of_tasks(worker, program_hooks)

        def make(on_epoch: Callable[[str], None]) -> Launcher:
            launcher = make_launcher(worker, config, on_epoch)
            _watch_quit(worker, launcher)
            serve_present_queues(worker.app, launcher)
            program_hooks.on("exit")(lambda: remote_control_host.send_counts(launcher, parent))
            if worker.max_tasks_per_child:
                _count_tasks(launcher, int(worker.max_tasks_per_child), lambda: parent.say("RENEW"))
            return launcher

        try:
            return run_child(parent, make, remote_control_host.in_child(worker, parent))
        except SidekiqError as error:
            logger.critical("a child cannot start: %s", error)
            return 1

    supervisor = Supervisor(
        config,
        config.processes or 1,
        be_child,
        worker.max_memory_per_child,
        before_fork=before_fork,
        on_ready=worker.on_ready,
        on_signal=_first_stop(worker.on_shutting_down),
        more_signals=("QUIT",),
        meanings={"TERM": "QUIT"} if term_is_quit() else None,
        sidecar=remote_control_host.role(worker, lambda: supervisor),
        second_sidecar=None if worker.beat is None else _beat_role(worker),
        scaling=scaling_policy(worker),
    )
    worker.be_stopped_by(lambda number: supervisor.ask_to_stop(number.name.removeprefix("SIG")))
    worker.state.running_jobs = lambda: _in_flight(worker.app, supervisor)
    code = supervisor.run()
    worker.on_stopped()
    return code


def _beat_role(worker: Any) -> Role:
    return Role(run=lambda parent: _run_beat(worker, parent), handle=lambda text: "", name="beat")


def _run_beat(worker: Any, parent: Parent) -> int:
    def end(*_: Any) -> NoReturn:
        raise SystemExit

    remote_control_host.be_sidecar("Beat", end)
    worker.app.set_default()
    worker.app.set_current()
    parent.listen(lambda message: None, on_end=worker.beat.service.stop)
    try:
        worker.beat.service.start(embedded_process=True)
    except Exception as error:
        # The parent starts another beat.
        logger.critical("beat raised exception %s: %r", type(error), error, exc_info=True)
        return 1
    return 0


def restart_on_hup(stop: Callable[[], None]) -> Callable[[], None]:
    """
    Let HUP stop this worker warmly, by *stop*.

    Returns:
        A function to call once the worker has stopped. If HUP stopped it, the function starts the same command in this
        process's place and does not return.
    """
    was_asked = threading.Event()

    def stop_for_restart(*_: Any) -> None:
        was_asked.set()
        stop()

    def restart() -> None:
        if was_asked.is_set():
            end_process_pools()
            logging.shutdown()
            os.execv(sys.executable, sys.orig_argv)

    # Closing a terminal also sends HUP.
    if not isatty(sys.__stdout__):
        signal.signal(signal.SIGHUP, stop_for_restart)
    return restart


def be_process_of_tasks(worker: Any, hooks: Any) -> None:
    """Tell the program that this process runs tasks, and later that it ends."""
    # Looked up when they are called, because tools replace them.
    prefork.process_initializer(worker.app, worker.hostname)
    hooks.on("exit")(lambda: prefork.process_destructor(os.getpid(), 0))


def _in_flight(app: Any, supervisor: Supervisor) -> list[bytes]:
    owners = [child.owners[-1] for child in supervisor.children if child.owners]
    return [raw for owner in owners for _, raw in jobs_in_flight(client_of(app).pool, owner)]


def _first_stop(report: Callable[[str], None]) -> Callable[[str], None]:
    reported: list[str] = []

    def on_signal(name: str) -> None:
        if name in ("TERM", "INT", "QUIT") and not reported:
            reported.append(name)
            report(name)

    return on_signal


def _watch_quit(worker: Any, launcher: Launcher) -> Callable[[], None]:
    """
    Let `worker.stop` stop *launcher*, and QUIT coldly, after `worker_soft_shutdown_timeout`, in which running tasks may
    still finish; another QUIT ends that. Returns what QUIT does.
    """
    soft_seconds = float(worker.app.conf.worker_soft_shutdown_timeout or 0.0)
    is_stopping = threading.Event()
    first_quit_at = math.inf

    def hurry() -> None:
        if not soft_seconds:
            launcher.hurry()
            return
        timer = threading.Timer(soft_seconds, launcher.hurry)
        timer.daemon = True
        timer.start()

    def on_quit() -> None:
        nonlocal first_quit_at
        worker.state.should_terminate = True
        now = time.monotonic()
        is_repeated = now - first_quit_at > _ONE_STOP_SECONDS
        first_quit_at = min(first_quit_at, now)
        if is_stopping.is_set():
            (launcher.hurry if is_repeated else hurry)()
        else:
            launcher.signals.put("TERM")

    def at_shutdown() -> None:
        is_stopping.set()
        if worker.state.should_terminate:
            hurry()

    def stop_by(number: signal.Signals) -> None:
        if number == signal.SIGQUIT:
            on_quit()
        else:
            launcher.signals.put("TERM")

    program_hooks.on("shutdown")(at_shutdown)
    launcher.signals.call_at("QUIT", on_quit)
    worker.be_stopped_by(stop_by)
    return on_quit


def term_is_quit() -> bool:
    """Whether TERM stops this worker coldly, as it does Celery's. Source: Celery 5.7.0, `celery.apps.worker`."""
    return os.environ.get("REMAP_SIGTERM") == "SIGQUIT"


def _count_tasks(launcher: Launcher, most: int, ask_to_be_replaced: Callable[[], None]) -> None:
    """Have the process replaced once it has run *most* tasks."""
    lock = threading.Lock()
    left = most

    def count(job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        nonlocal left
        try:
            return call_next()
        finally:
            with lock:
                left -= 1
                is_last = left == 0
            if is_last:
                logger.info("this process has run %d %s and is replaced", most, pluralize(most, "task"))
                launcher.quiet()
                ask_to_be_replaced()

    server_middleware.prepend(count)
