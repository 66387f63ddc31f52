"""The file with the process id of a worker, a beat or a camera."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from sidekiq_celery.exceptions import ImproperlyConfigured

__all__ = ("write_pidfile",)


def write_pidfile(path: str) -> Callable[[], None]:
    """
    Write this process's id to *path*; one that a process which is gone has left is replaced.

    Returns:
        Takes the file away again.

    Raises:
        ImproperlyConfigured: A process that runs has written it.
    """
    file = Path(path)
    own = os.getpid()
    with _locked(file) as opened:
        before = opened.read()
        other = _number(before)
        if other is not None and other != own and _lives(other):
            raise ImproperlyConfigured(f"{path} says that process {other} runs already; end it, or name another file")
        opened.seek(0)
        opened.write(f"{own}\n")
        if before:
            # /dev/null, by which some say that they want no file, has no end to move.
            opened.truncate()

    def remove() -> None:
        if file.exists():
            with _locked(file) as opened:
                if _number(opened.read()) == own:
                    file.unlink()

    return remove


@contextmanager
def _locked(file: Path) -> Iterator[TextIO]:
    """The file, while no other process looks at it to decide whose it is."""
    while True:
        with open(os.open(file, os.O_RDWR | os.O_CREAT, 0o644), "r+", encoding="ascii", errors="replace") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            if file.exists() and os.path.samestat(os.fstat(opened.fileno()), file.stat()):
                yield opened
                return
            # It was taken away meanwhile.


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
