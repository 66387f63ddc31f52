"""Differences between operating systems."""

import os
import platform
import signal
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

__all__ = ("EX_FAILURE", "EX_OK", "EX_UNAVAILABLE", "EX_USAGE", "pyimplementation", "signal_name", "signals")

# Windows has only the first in `os`.
EX_OK = 0
EX_FAILURE = 1
EX_USAGE = 64
EX_UNAVAILABLE = 69
EX_CANTCREAT = 73

SYSTEM = platform.system()
IS_LINUX = SYSTEM == "Linux"
IS_macOS = SYSTEM == "Darwin"
IS_WINDOWS = SYSTEM == "Windows"


def pyimplementation() -> str:
    """The name of the running Python implementation."""
    return platform.python_implementation()


def isatty(fh: Any) -> bool:
    """Whether *fh* is a terminal."""
    try:
        return bool(fh.isatty())
    except AttributeError:
        return False


def signal_name(signum: int) -> str:
    """A signal's name without `SIG`, such as `TERM`."""
    return signal.Signals(signum).name.removeprefix("SIG")


def unique_id(owner: object, thread: int = 0) -> str:
    """An id for an object in this process, and for one of its threads."""
    import uuid

    return str(uuid.uuid3(uuid.NAMESPACE_OID, f"{uuid.getnode():x}-{os.getpid():x}-{thread:x}-{id(owner):x}"))


def close_open_fds(keep: Iterable[Any] | None = None) -> None:
    """Close all files of this process except those in *keep*. A worker never needs it: it does not detach itself."""
    kept = {one if isinstance(one, int) else one.fileno() for one in keep or ()}
    for number in map(int, os.listdir("/proc/self/fd" if IS_LINUX else "/dev/fd")):
        if number not in kept:
            with suppress(OSError):
                os.close(number)


class Signals:
    """Signal handlers, by names such as `TERM`."""

    ignored = signal.SIG_IGN
    default = signal.SIG_DFL

    def signum(self, name: str | int) -> int:
        """The number of a signal."""
        if isinstance(name, int):
            return name
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])

    def supported(self, name: str) -> bool:
        """Whether this platform has such a signal."""
        return (name if name.startswith("SIG") else f"SIG{name}") in signal.Signals.__members__

    def reset(self, *names: str) -> None:
        """Give signals their default handlers."""
        self.update((name, self.default) for name in names)

    def ignore(self, *names: str) -> None:
        """Ignore the signals."""
        self.update((name, self.ignored) for name in names)

    def __getitem__(self, name: str) -> Any:
        return signal.getsignal(self.signum(name))

    def __setitem__(self, name: str, handler: Any) -> None:
        # Handlers can only be set in the main thread.
        with suppress(AttributeError, ValueError, KeyError):
            signal.signal(self.signum(name), handler)

    def update(self, handlers: Any = (), **named: Any) -> None:
        """Set handlers by name."""
        for name, handler in {**dict(handlers), **named}.items():
            self[name] = handler


signals = Signals()
