"""A worker in threads of a program that goes on beside it: it handles no signals and forks nothing."""

import logging
import signal
import warnings
from dataclasses import replace
from typing import Any

from sidekiq_celery._run import task_log
from sidekiq_celery._run.definition import TaskDefinition
from sidekiq_celery.concurrency import get_implementation
from sidekiq_celery.exceptions import CeleryWarning
from sidekiq_celery.worker import remote_control_host
from sidekiq_celery.worker.processes import be_process_of_tasks, make_launcher
from sidekiq_celery.worker.registering import register_tasks_of
from sidekiq_py.extension import JobDefinition
from sidekiq_py.worker import Config, Hooks, Launcher, Registry

# How long a worker waits at its start for a Redis that hangs.
_REMOTE_CONTROL_SECONDS = 5.0


class Embedding:
    """
    Keeps the tasks and hooks of *worker* apart from those of other workers in this process.

    Attributes:
        hooks: The worker's hooks.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._registry = Registry()
        self._logs_calls = True
        self.hooks = Hooks()

    def launch(self, config: Config) -> Launcher:
        """Start the worker's parts."""
        worker, hooks = self._worker, self.hooks
        if worker.pool_name == "solo":
            be_process_of_tasks(worker, hooks)
        self._registry.fall_back(self._of_a_later_task)
        launcher = make_launcher(worker, replace(config, embedded=True), registry=self._registry, hooks=hooks)
        # As in Celery, where it is found out once: a test that raises the level later reads its own lines alone.
        self._logs_calls = task_log.logger.isEnabledFor(logging.INFO)
        self._tell_tasks()
        remote_control = remote_control_host.beside(worker, launcher, hooks)
        worker.state.running_jobs = lambda: [job.unit.raw for job in launcher.state.snapshot()]
        launcher.start()
        if remote_control is not None:
            remote_control.start()
            # The program goes on once the worker has started, and may ask it something right away.
            remote_control.has_tried.wait(_REMOTE_CONTROL_SECONDS)
        return launcher

    def register_later_tasks(self) -> None:
        """Add tasks that were declared since the start. A payload that names such a task also triggers this."""
        register_tasks_of(self._worker, self._registry, Hooks())
        self._tell_tasks()

    def _tell_tasks(self) -> None:
        for definition in self._registry:
            if isinstance(definition, TaskDefinition):
                definition.plan.logs_calls = self._logs_calls

    def _of_a_later_task(self, class_name: str) -> JobDefinition | None:
        if class_name not in self._worker.app.tasks:
            return None
        self.register_later_tasks()
        return next(definition for definition in self._registry if definition.name == class_name)


def use_threads(worker: Any, text: str) -> None:
    """Let *worker* run tasks in threads, and warn with *text* if it was to have processes."""
    if worker.pool_name == "prefork":
        warnings.warn(CeleryWarning(text), stacklevel=3)
        worker.pool_name = "threads"
        worker.pool_cls = get_implementation("threads")
        worker.pool = worker.pool_cls(worker)


def run_embedded(worker: Any, config: Config) -> int:
    """Run tasks in threads of this process until the worker is asked to stop. Returns the exit code."""
    embedding = Embedding(worker)
    launcher = embedding.launch(config)

    def hurry() -> None:
        if worker.state.should_terminate:
            launcher.hurry()

    def stop_by(number: signal.Signals) -> None:
        launcher.signals.put("TERM")
        hurry()

    # The stop sets the deadline that `hurry` ends, so it looks once more whether it should hurry.
    embedding.hooks.on("shutdown")(hurry)
    worker.be_stopped_by(stop_by)
    worker.on_ready()
    while launcher.signals.next() != "TERM":
        pass
    launcher.quiet()
    worker.on_shutting_down("TERM")
    launcher.stop()
    worker.on_stopped()
    return 0
