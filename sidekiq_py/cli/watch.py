"""
`sidekiq-py worker --watch`: the worker in a process of its own, started anew whenever the program's code changes.

Files are watched below the current directory and beside what -r and -C name. A change stops the worker as TERM does, so
that jobs end or go back; a program that fails to start is tried again at the next change.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import click

from sidekiq_py.errors import ConfigError

_SUFFIXES = (".py", ".yml", ".yaml", ".erb")
# What ends the watch and the worker. HUP is a terminal that was closed: it would kill the worker amid its jobs.
_ENDS = {signal.SIGTERM: signal.SIGTERM, signal.SIGINT: signal.SIGINT, signal.SIGHUP: signal.SIGTERM}
# Handed on to the worker as they come.
_PASSED_ON = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGUSR2)
_LOOK_MS = 200


def run(command: Sequence[str], paths: Sequence[Path]) -> int:
    """
    Watch until told to stop.

    Args:
        command: What starts a worker.
        paths: Files and folders to watch.

    Returns:
        The worker's last exit code.

    Raises:
        ConfigError: watchfiles is not installed.
    """
    try:
        # Part of the extra `watch`, which production has no use for.
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
            worker.tell(number)

    # nohup has HUP ignored, so that a program outlives its terminal.
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
            watch_filter=_IsCode(folders),
            stop_event=stopping,
            rust_timeout=_LOOK_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        ):
            if stopping.is_set():
                break
            if changes:
                worker.restart(_named(path for _, path in changes))
            elif worker.has_ended():
                worker.tell_end()
        return worker.wait()
    finally:
        worker.end(signal.SIGTERM)
        worker.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def _named(paths: Iterator[str]) -> str:
    """The first few files that have changed, as they are called from here."""
    names = sorted({os.path.relpath(path) for path in paths})
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


class _IsCode:
    """What a change of restarts the worker: not what programs write while they run."""

    _FOLDERS = frozenset({"__pycache__", ".git", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache"})

    def __init__(self, watched: Sequence[Path]) -> None:
        self._watched = watched

    def __call__(self, change: object, path: str) -> bool:
        """Whether the file is part of a program."""
        file = Path(path)
        # Only below what is watched: a whole program may live in a folder called `venv`.
        return file.suffix in _SUFFIXES and any(
            self._FOLDERS.isdisjoint(file.relative_to(folder).parts)
            for folder in self._watched
            if file.is_relative_to(folder)
        )


class _Worker:
    """The process that is started again and again."""

    def __init__(self, command: Sequence[str], ending: threading.Event) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = ending
        self._is_told = False

    def start(self) -> None:
        """Start it, in a group of its own: Ctrl-C reaches it once, by us. After `end` none is started."""
        if self._ending.is_set():
            return
        self._is_told = False
        self._process = subprocess.Popen(self._command, process_group=0)
        if self._ending.is_set():
            # The signal came while the process was being created, and reached nobody.
            self._process.terminate()

    def restart(self, why: str) -> None:
        """Stop it as TERM does, and start it again."""
        click.echo(f"{why} changed; starting the worker again.", err=True)
        self.tell(signal.SIGTERM)
        self.wait()
        self.start()

    def tell(self, number: int) -> None:
        """Send it a signal, if it lives."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def has_ended(self) -> bool:
        """Whether it has ended by itself, and nobody was told."""
        return self._process is not None and not self._is_told and self._process.poll() is not None

    def tell_end(self) -> None:
        """Say so, once."""
        self._is_told = True
        code = self._process.returncode if self._process is not None else None
        click.echo(f"The worker has ended (exit code {code}); it is started again at the next change.", err=True)

    def wait(self) -> int:
        """Wait for its end; its exit code."""
        return self._process.wait() if self._process is not None else 0

    def end(self, number: int) -> None:
        """Stop it with this signal, for good: a restart that waits for its jobs starts no other."""
        self._ending.set()
        self.tell(number)
