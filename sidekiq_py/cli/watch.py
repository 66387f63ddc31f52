"""
`sidekiq-py worker --watch`: runs the worker in a child process and restarts it whenever the program's code changes.

It watches the files below the current directory and in the folders of the files that -r and -C name. A change stops the
worker as TERM does, so that its jobs finish or are requeued. If the program fails to start, the next change is another
try.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

import click

from sidekiq_py.errors import ConfigError

_SUFFIXES = (".py", ".yml", ".yaml", ".erb")
_NO_CODE = frozenset({"__pycache__", ".git", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache"})
# Signals that end the watch, and what the worker gets instead. HUP means that the terminal was closed; passed on as it
# is, it would kill the worker in the middle of its jobs.
_ENDS = {signal.SIGTERM: signal.SIGTERM, signal.SIGINT: signal.SIGINT, signal.SIGHUP: signal.SIGTERM}
# Signals that are passed on to the worker unchanged.
_PASSED_ON = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGUSR2)
_LOOK_MS = 200


def run(command: Sequence[str], paths: Sequence[Path]) -> int:
    """
    Watch until a signal ends it.

    Args:
        command: The command line that starts a worker.
        paths: Files and folders to watch.

    Returns:
        The worker's last exit code.

    Raises:
        ConfigError: watchfiles is not installed.
    """
    try:
        # watchfiles belongs to the extra `watch`, which production does not install.
        import watchfiles
    except ImportError as error:
        raise ConfigError(
            'worker --watch needs watchfiles, which is not installed: pip install "sidekiq-py[watch]"'
        ) from error
    stopping = threading.Event()
    worker = _Worker(command, stopping)

    def pass_on(number: int, frame: FrameType | None) -> None:
        if number in _ENDS:
            worker.end(_ENDS[signal.Signals(number)])
        else:
            worker.send_signal(number)

    # nohup sets HUP to be ignored, so that a program outlives its terminal; keep it so.
    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
    handled = {*_ENDS, *_PASSED_ON} - ignored
    before = {number: signal.signal(number, pass_on) for number in handled}
    folders = sorted({path if path.is_dir() else path.parent for path in paths})
    names = ", ".join(str(folder) for folder in folders)
    click.echo(f"Watching {names} for changes.", err=True)
    try:
        worker.start()
        for changes in watchfiles.watch(
            *folders,
            watch_filter=partial(_is_code, folders),
            stop_event=stopping,
            rust_timeout=_LOOK_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        ):
            if stopping.is_set():
                break
            if changes:
                worker.restart(_named(path for _, path in changes))
            else:
                worker.report_end()
        return worker.wait()
    finally:
        worker.end(signal.SIGTERM)
        worker.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def _named(paths: Iterator[str]) -> str:
    """The first few files that have changed, relative to the current directory."""
    names = sorted({os.path.relpath(path) for path in paths})
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _is_code(watched: Sequence[Path], _change: object, path: str) -> bool:
    """True for a file of a program, as opposed to files that programs write while they run."""
    file = Path(path)
    # Judge only the part below the watched folder: a whole program may live in a folder called `venv`.
    return file.suffix in _SUFFIXES and any(
        _NO_CODE.isdisjoint(file.relative_to(folder).parts) for folder in watched if file.is_relative_to(folder)
    )


class _Worker:
    """The worker process, which is restarted as often as necessary."""

    def __init__(self, command: Sequence[str], ending: threading.Event) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = ending
        self._is_end_reported = False

    def start(self) -> None:
        """
        Start the process, unless `end` was called.

        It has a process group of its own, so that Ctrl-C reaches it once, through us.
        """
        if self._ending.is_set():
            return
        self._is_end_reported = False
        self._process = subprocess.Popen(self._command, process_group=0)
        if self._ending.is_set():
            # The signal arrived while the process was being created, so the process did not get it.
            self._process.terminate()

    def restart(self, why: str) -> None:
        """Stop the process with TERM and start it again."""
        click.echo(f"{why} changed; restarting the worker.", err=True)
        self.send_signal(signal.SIGTERM)
        self.wait()
        self.start()

    def send_signal(self, number: int) -> None:
        """Send the process a signal, if it is running."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def report_end(self) -> None:
        """Report once that the process has exited by itself, if it has."""
        code = self._process.poll() if self._process is not None else None
        if code is not None and not self._is_end_reported:
            self._is_end_reported = True
            click.echo(f"The worker has exited (exit code {code}); it will restart at the next change.", err=True)

    def wait(self) -> int:
        """Wait for the process to exit; returns its exit code, 0 if it never started."""
        return self._process.wait() if self._process is not None else 0

    def end(self, number: int) -> None:
        """Stop the process for good with this signal. A restart in progress does not start another one."""
        self._ending.set()
        self.send_signal(number)
