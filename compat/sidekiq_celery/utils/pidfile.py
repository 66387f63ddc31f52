"""The file with the process id of a worker, a beat or a camera."""

import os
from collections.abc import Callable
from pathlib import Path

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
    if (other := _living(file)) not in (None, own):
        raise ImproperlyConfigured(f"{path} says that process {other} runs already; end it, or name another file")
    file.write_text(f"{own}\n", encoding="ascii")

    def remove() -> None:
        if _read(file) == own:
            file.unlink(missing_ok=True)

    return remove


def _read(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _living(file: Path) -> int | None:
    pid = _read(file)
    if pid is None:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return pid
