"""The file that holds the process id of a worker, a beat or a camera."""

import errno
import fcntl
import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from sidekiq_celery.exceptions import ImproperlyConfigured

_MOST_LOCKED_SECONDS = 1.0
_LOCK_PAUSE_SECONDS = 0.01
# More than a process id has. Devices such as /dev/zero have no end.
_MOST_CHARACTERS = 64


def write_pidfile(path: str) -> Callable[[], None]:
    """
    Write this process's id to *path*. A file left by a process that has ended is replaced.

    Returns:
        A function that removes the file.

    Raises:
        ImproperlyConfigured: The file was written by a process that is still running.
    """
    file = Path(path)
    own = os.getpid()
    try:
        with _locked(file, os.O_CREAT) as opened:
            before = opened.read(_MOST_CHARACTERS)
            _refuse_living(path, before)
            opened.seek(0)
            opened.write(f"{own}\n")
            if before:
                # /dev/null, which some use to say that they want no file, cannot be truncated.
                opened.truncate()
    except PermissionError:
        if file.is_file():
            # The file of another user's process.
            _refuse_living(path, file.read_text(encoding="ascii", errors="replace"))
        raise
    except OSError as error:
        if error.filename is None:
            # A full disk, for example, does not say which file it was.
            error.filename = path
        raise

    def remove() -> None:
        try:
            with suppress(FileNotFoundError), _locked(file) as opened:
                if _number(opened.read(_MOST_CHARACTERS)) == own:
                    file.unlink()
        except PermissionError:
            # The program may have changed its user since.
            with suppress(OSError):
                if _number(file.read_text(encoding="ascii", errors="replace")) == own:
                    file.unlink()

    return remove


@contextmanager
def holding_pidfile(path: str | None) -> Iterator[None]:
    """Keep this process's id in *path* for the block; see `write_pidfile`. Without a path, do nothing."""
    remove = write_pidfile(path) if path else None
    try:
        yield
    finally:
        if remove is not None:
            remove()


def _refuse_living(path: str, text: str) -> None:
    pid = _number(text)
    if pid is not None and pid != os.getpid() and _lives(pid):
        raise ImproperlyConfigured(f"{path} says that process {pid} is already running; end it, or name another file")


@contextmanager
def _locked(file: Path, flags: int = 0) -> Iterator[TextIO]:
    """Open the file while no other process checks whose it is."""
    while True:
        with _opened(os.open(file, os.O_RDWR | flags, 0o644), file) as opened:
            _lock(opened)
            if _is_still(file, opened.fileno()):
                yield opened
                return


def _opened(fd: int, file: Path) -> TextIO:
    try:
        return open(fd, "r+", encoding="ascii", errors="replace")
    except io.UnsupportedOperation as error:
        # A pipe or a terminal; the error does not say which file it is about.
        raise OSError(errno.ESPIPE, "it is no plain file", str(file)) from error


def _lock(opened: TextIO) -> None:
    """
    Lock the file, but go on without a lock if another process holds it for long, as with `flock worker.pid
    sidekiq-celery worker …`, or if the file system has no locks. Starting processes only hold it for a moment.
    """
    end = time.monotonic() + _MOST_LOCKED_SECONDS
    while time.monotonic() < end:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_SECONDS)
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            return
        else:
            return


def _is_still(file: Path, fd: int) -> bool:
    """True if the file was not removed before it was locked."""
    try:
        return os.path.samestat(os.fstat(fd), file.stat())
    except FileNotFoundError:
        return False


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
