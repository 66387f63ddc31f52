"""
Places a worker's remote control and probes: in threads beside the tasks, or in a process beside the children.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from sidekiq_celery.utils.timer import Timer

# All processes know the commands and kinds, because they are forked after this import.
from sidekiq_celery.worker import control  # noqa: F401
from sidekiq_celery.worker.control_channel import OneProcess, OverPipes, Recipient, handle_message, text_of
from sidekiq_celery.worker.remote_control import RemoteControl
from sidekiq_py.extension import now_seconds
from sidekiq_py.probes import prefork
from sidekiq_py.probes.server import ProbeServer, check_port
from sidekiq_py.worker import Hooks, Launcher, Message, Parent, Role, Supervisor
from sidekiq_py.worker import hooks as program_hooks


def beside(worker: Any, launcher: Launcher, hooks: Hooks = program_hooks) -> RemoteControl | None:
    """
    In a worker with a single process: return remote control, which is to be started. An exit hook stops it.

    Returns None if it is disabled.
    """
    if not worker.app.conf.worker_enable_remote_control:
        return None
    remote_control = RemoteControl(worker, now_seconds())
    remote_control.processes = OneProcess(Recipient(worker, launcher=launcher))
    hooks.on("exit")(remote_control.stop)
    return remote_control


def role(worker: Any, supervisor: Callable[[], Supervisor]) -> Role | None:
    """In the parent of children: the sidecar's role. Returns None without probes and with remote control disabled."""
    if worker.probe_port is not None:
        check_port(worker.probe_port)
    if not worker.app.conf.worker_enable_remote_control:
        return None if worker.probe_port is None else prefork.role(worker.probe_port)
    started_at = now_seconds()
    probed = prefork.InParent()

    def handle(text: str) -> str:
        if prefork.is_probe(text):
            return probed.answer(text)
        return handle_message(Recipient(worker, supervisor=supervisor()), text)

    return Role(run=lambda parent: _serve_remote_control(worker, started_at, probed, parent), handle=handle)


def in_child(worker: Any, parent: Parent) -> Callable[[Launcher, str], str]:
    """Return the function with which a child handles messages."""
    answer_probe = None if worker.probe_port is None else prefork.in_child(parent)

    def handle(launcher: Launcher, text: str) -> str:
        if answer_probe is not None and prefork.is_probe(text):
            return answer_probe(launcher, text)
        return handle_message(Recipient(worker, launcher=launcher), text)

    return handle


def send_counts(launcher: Launcher, parent: Parent) -> None:
    """Tell remote control, in a child that is exiting, how many tasks the child has tried."""
    parent.say("SAY", text_of("gone", {"counts": launcher.metrics.attempts()}))


def be_sidecar(name: str, end: Callable[..., Any]) -> None:
    """Name this process, which runs beside the children, and let only the parent's TERM end it, by *end*."""
    # Leave the terminal's foreground group, so that Ctrl-C reaches only the parent.
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, end)
    multiprocessing.current_process().name = name


def _serve_remote_control(worker: Any, started_at: float, probed: prefork.InParent, parent: Parent) -> int:
    is_over = threading.Event()
    be_sidecar("RemoteControl", lambda *_: is_over.set())
    # The parent's, which bootsteps may have started before this process was forked, has no thread here.
    worker.timer = Timer()
    remote_control = RemoteControl(worker, started_at)
    pipes = remote_control.processes = OverPipes(parent, remote_control.recipient)
    if worker.probe_port is None:
        parent.listen(pipes.handle, on_end=is_over.set)
        remote_control.start()
        is_over.wait()
    else:
        probes = prefork.PreforkProbes(parent, os.getppid(), probed)
        server = ProbeServer(worker.probe_port, probes)

        def handle(message: Message) -> None:
            probes.handle_message(message)
            if message.word != "SAID" or not prefork.is_probe(message.details[1]):
                pipes.handle(message)

        parent.listen(handle, on_end=is_over.set)
        server.start()
        remote_control.start()
        while not is_over.wait(prefork.COLLECT_SECONDS):
            probes.collect()
    remote_control.stop()
    return 0
