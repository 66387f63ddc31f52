"""Where a worker's steward runs: in a thread beside the tasks, or in a process beside the children."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

# Commands and kinds are known in all processes: they are forked after this import.
from sidekiq_celery.worker import control  # noqa: F401
from sidekiq_celery.worker.control_channel import OneProcess, OverPipes, Place, obey, text_of
from sidekiq_celery.worker.remote_control import Steward
from sidekiq_py.extension import now_seconds
from sidekiq_py.worker import Hooks, Launcher, Parent, Role, Supervisor
from sidekiq_py.worker import hooks as program_hooks

__all__ = ("beside", "in_child", "role", "tell_counts")


def beside(worker: Any, launcher: Launcher, hooks: Hooks = program_hooks) -> Callable[[], None]:
    """For a worker of one process; gives the function that starts the steward, which ends with the worker's *hooks*."""
    if not worker.app.conf.worker_enable_remote_control:
        return lambda: None
    steward = Steward(worker, now_seconds())
    here = Place(worker, launcher=launcher, tell_steward=steward.tell_here)
    steward.family = OneProcess(here, here)
    hooks.on("exit")(steward.stop)
    return steward.start


def role(worker: Any, family: Callable[[], Supervisor]) -> Role | None:
    """For the parent of children; None where remote control is switched off."""
    if not worker.app.conf.worker_enable_remote_control:
        return None
    started_at = now_seconds()
    return Role(
        run=lambda parent: _be_steward(worker, started_at, parent),
        obey=lambda text: obey(Place(worker, supervisor=family()), text),
    )


def in_child(worker: Any, parent: Parent) -> Callable[[Launcher, str], str]:
    """What a child does with messages."""

    def tell_steward(kind: str, **about: Any) -> None:
        parent.say("SAY", text_of(kind, about))

    def hear(launcher: Launcher, text: str) -> str:
        return obey(Place(worker, launcher=launcher, tell_steward=tell_steward), text)

    return hear


def tell_counts(launcher: Launcher, parent: Parent) -> None:
    """A child that ends tells the steward what it has done."""
    parent.say("SAY", text_of("gone", {"counts": launcher.metrics.attempts()}))


def _be_steward(worker: Any, started_at: float, parent: Parent) -> int:
    # Out of the terminal's foreground group: Ctrl-C reaches the parent alone.
    os.setpgid(0, 0)
    is_over = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    multiprocessing.current_process().name = "Steward"
    steward = Steward(worker, started_at)
    pipes = steward.family = OverPipes(parent, steward.place)
    parent.listen(pipes.hear, on_end=is_over.set)
    steward.start()
    is_over.wait()
    steward.stop()
    return 0
