"""Runs a worker in the main thread of a process: starts it, handles signals, and stops it."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.engine.report.log_files import reopen_log_files
from sidekiq_py.engine.report.systemd import ServiceNotifier
from sidekiq_py.engine.run.thread_dump import thread_dump
from sidekiq_py.engine.upkeep import open_files
from sidekiq_py.engine.upkeep.process_end import call_exit_handlers_while_jobs_run
from sidekiq_py.logs import SEVERAL_LINES, log

# Two signals within this time ask for one stop.
_ONE_STOP_SECONDS = 1.0
_LOOK_SECONDS = 0.1


def run_worker(
    launcher: Launcher,
    on_ready: Callable[[], None] = lambda: None,
    on_stop: Callable[[str], None] = lambda name: None,
    *,
    runs_jobs_here: bool = False,
) -> int:
    """
    Start the worker and handle signals until it is asked to stop. Returns the exit code, which is 1 if it stopped
    because it could open no more files, or because a job has closed all of them. Call it only from the main thread.

    Args:
        on_ready: Called once everything is running.
        on_stop: Called with the signal that stops the worker, `TERM` or `INT`.
        runs_jobs_here: Whether to run jobs in the main thread, one at a time. A child with one slot always does.

    If a job ignores Shutdown, it does not return: the process ends after the program's exit handlers.
    """
    signals = launcher.signals
    # As in Celery's pools prefork and solo. Signals interrupt system calls there, and code that needs the main thread
    # works.
    runs_jobs_here |= launcher.config.is_single_slot_child
    signals.watch(beside_jobs=runs_jobs_here)
    if not runs_jobs_here:
        _start(launcher)
        on_ready()
        return _serve(launcher, on_stop)
    _start(launcher, runs_jobs_here=True)
    on_ready()
    if signals.has("TERM", "INT", "TSTP"):
        # A child that is started in a stop, to settle the job of another one: this thread would fetch a job first.
        launcher.quiet()
    codes: list[int] = []
    serving = threading.Thread(
        target=lambda: codes.append(_serve_beside(launcher, on_stop)), name="sidekiq.signals", daemon=True
    )
    serving.start()
    launcher.run_jobs_here(signals.watch_again)
    serving.join()
    return codes[0]


def _start(launcher: Launcher, *, runs_jobs_here: bool = False) -> None:
    """Start the worker. A stop signal in the meantime waits for the hooks as long as it would for busy jobs."""
    is_prepared = threading.Event()

    def end_what_never_starts() -> None:
        while not launcher.signals.has("TERM", "INT"):
            if is_prepared.wait(_LOOK_SECONDS):
                return
        if not is_prepared.wait(launcher.config.shutdown_timeout_seconds):
            log.critical(
                "This worker was asked to stop before it had started; exiting now\n%s",
                thread_dump(launcher.state),
                extra=SEVERAL_LINES,
            )
            # Nothing was fetched. The main thread is stuck in a hook of the program or of an extension.
            os._exit(0)

    watching = threading.Thread(target=end_what_never_starts, name="sidekiq.start", daemon=True)
    watching.start()
    try:
        launcher.start(runs_jobs_here=runs_jobs_here, on_prepared=is_prepared.set)
    finally:
        is_prepared.set()
        # From here on another thread reads the signals.
        watching.join()
        launcher.signals.watch_again()


def _serve_beside(launcher: Launcher, on_stop: Callable[[str], None]) -> int:
    try:
        return _serve(launcher, on_stop)
    except BaseException:  # noqa: BLE001 — it ends the process in any case
        # No thread would handle signals any more. Exiting lets the supervisor of this process see a crash. Logging may
        # fail, too, and may be what failed.
        with suppress(BaseException):
            log.exception("Internal error while waiting for signals")
        os._exit(1)


def _serve(launcher: Launcher, on_stop: Callable[[str], None]) -> int:
    """Handle signals until asked to stop, then stop. Returns the exit code."""
    service = ServiceNotifier(os.environ, launcher.liveness.stalled_loops)
    service.ready()
    name = _stop_signal(launcher)
    if name is not None:
        try:
            on_stop(name)
        except Exception:  # noqa: BLE001 - the stop would not wait for running jobs
            log.exception("Internal error as the stop began; it goes on")
    service.stopping()
    seconds = launcher.config.shutdown_timeout_seconds
    if name is None:
        # A job whose end cannot be written keeps a stop waiting, and Celery's workers wait without a limit.
        seconds = min(seconds, open_files.PATIENCE_SECONDS)
    stubborn = _stop_while_handling_signals(launcher, seconds)
    log.info("Bye!")
    service.close()
    code = 1 if name is None else 0
    if stubborn:
        launcher.parts.departure.let_go_and_exit(code)
    return code


def _stop_signal(launcher: Launcher) -> str | None:
    """Handle signals. Returns the one that asks to stop, or None if the process has no use of its files any more."""
    files = open_files.OpenFiles()
    while (name := launcher.signals.next(open_files.LOOK_SECONDS)) not in ("TERM", "INT"):
        if name is not None:
            _handle_signal(launcher, name)
        elif files.are_used_up():
            log.critical(
                "This process could open no files for %g seconds (Too many open files). It stops with exit code 1 and "
                "has to be started again. A job leaks files or connections, or the limit is too low (ulimit -n)",
                open_files.PATIENCE_SECONDS,
            )
            return None
        elif launcher.signals.is_closed:
            # Connections that are opened now get the numbers of those that were closed, which are still in use.
            log.critical(
                "A job has closed all files of this process, including its connections. It stops with exit code 1 and "
                "has to be started again"
            )
            return None
    return name


def _handle_signal(launcher: Launcher, name: str) -> None:
    if name in ("TSTP", "USR1"):
        launcher.quiet()
    elif name == "TTIN":
        loop = launcher.parts.loop
        dump = thread_dump(launcher.state, () if loop is None else loop.tasks())
        log.warning("%s", dump, extra=SEVERAL_LINES)
    elif name == "USR2":
        reopen_log_files()
    else:
        log.info("No signal handler registered for %s, ignoring", name)


def _stop_while_handling_signals(launcher: Launcher, seconds: float) -> list[str]:
    """Stop in a thread of its own, so that a second TERM or INT can hurry it."""
    stubborn: list[str] = []

    def stop() -> None:
        # Nothing calls the exit handlers after this, because a process with such jobs ends abruptly.
        stubborn.extend(launcher.stop(timeout_seconds=seconds, on_jobs_left=call_exit_handlers_while_jobs_run))

    stopping = threading.Thread(target=stop, name="sidekiq.stop")
    log.info("Shutting down")
    try:
        stopping.start()
    except RuntimeError:
        # The system allows no more threads. Without this one, a second signal cannot hurry the stop.
        stop()
        return stubborn
    asked_at = monotonic()
    files, is_hurried = open_files.OpenFiles(), False
    while stopping.is_alive():
        name = launcher.signals.next(0.05)
        # A process manager may pass Ctrl-C on as TERM in addition to INT. Together they mean one stop.
        if name in ("TERM", "INT") and monotonic() - asked_at > _ONE_STOP_SECONDS:
            launcher.hurry()
        elif name == "TTIN":
            _handle_signal(launcher, name)
        elif not is_hurried and files.are_used_up():
            # Celery's workers would wait for that without a limit.
            log.critical(
                "This process can open no files, so it cannot write how jobs end. It stops without waiting for them"
            )
            launcher.hurry()
            is_hurried = True
    return stubborn
