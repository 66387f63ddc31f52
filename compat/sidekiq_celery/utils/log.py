"""Loggers as Celery arranges them: all of the package under `celery`, those of tasks under `celery.task`."""

import logging
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from sidekiq_celery.utils.serialization import unrepresentable

__all__ = (
    "LOG_LEVELS",
    "ColorFormatter",
    "LoggingProxy",
    "base_logger",
    "get_logger",
    "get_multiprocessing_logger",
    "get_task_logger",
    "in_sighandler",
    "mlevel",
    "reset_multiprocessing_logger",
    "set_in_sighandler",
)

LOG_LEVELS: dict[Any, Any] = {**logging.getLevelNamesMapping(), **logging._levelToName}
"""Names to levels, and levels to names."""
LOG_LEVELS["FATAL"], LOG_LEVELS[logging.FATAL] = logging.FATAL, "FATAL"

RESERVED_LOGGER_NAMES = {"celery", "celery.task"}

_in_sighandler = False


def _quiet_logger(name: Any) -> logging.Logger:
    """A logger that says nothing of having no handler."""
    found = name if isinstance(name, logging.Logger) else logging.getLogger(name)
    if not found.handlers:
        found.addHandler(logging.NullHandler())
    return found


base_logger = logger = _quiet_logger("celery")


def logger_isa(l: logging.Logger, p: logging.Logger, max: int = 1000) -> bool:  # noqa: E741 - Celery's names
    """
    Whether *l* is *p*, or stands under it.

    Raises:
        RuntimeError: It stands under itself, or more than *max* deep.
    """
    above: logging.Logger | None = l
    seen: set[logging.Logger] = set()
    while above is not None and len(seen) < max:
        if above is p:
            return True
        if above in seen:
            raise RuntimeError(f"Logger {l.name!r} parents recursive")
        seen.add(above)
        above = above.parent
    if above is not None:
        raise RuntimeError(f"Logger hierarchy exceeds {max}")
    return False


def _put_under(parent: logging.Logger, one: logging.Logger) -> logging.Logger:
    if not logger_isa(one, parent):
        one.parent = parent
    return one


def get_logger(name: Any) -> logging.Logger:
    """A logger by name; one that has a parent of the program's stands under `celery` beside it."""
    found = _quiet_logger(name)
    if logging.root not in (found, found.parent) and found is not base_logger:
        return _put_under(base_logger, found)
    return found


task_logger = get_logger("celery.task")
worker_logger = get_logger("celery.worker")


def get_task_logger(name: str) -> logging.Logger:
    """
    The logger of a module of tasks: its lines show the name and the id of the task that runs.

    Raises:
        RuntimeError: The name is one of the package's own.
    """
    if name in RESERVED_LOGGER_NAMES:
        raise RuntimeError(f"Logger name {name!r} is reserved!")
    return _put_under(task_logger, get_logger(name))


def mlevel(level: Any) -> Any:
    """The number of a level; numbers and None are as they are."""
    return LOG_LEVELS[level.upper()] if level and not isinstance(level, int) else level


def set_in_sighandler(value: bool) -> None:
    """Say whether a handler of a signal runs: what is printed then goes past the log."""
    global _in_sighandler
    _in_sighandler = value


@contextmanager
def in_sighandler() -> Iterator[None]:
    """Around a handler of a signal."""
    set_in_sighandler(True)
    try:
        yield
    finally:
        set_in_sighandler(False)


def _painter(code: int) -> Any:
    return lambda text: f"\033[1;{code}m{text}\033[0m"


class ColorFormatter(logging.Formatter):
    """
    Lines that are coloured by their level.

    Attributes:
        colors: Level's name to what paints a line; other levels are not painted.
    """

    colors: ClassVar[dict[str, Any]] = {
        "DEBUG": _painter(34),
        "WARNING": _painter(33),
        "ERROR": _painter(31),
        "CRITICAL": _painter(35),
    }

    def __init__(self, fmt: str | None = None, use_color: bool | None = True, datefmt: str | None = None) -> None:
        super().__init__(fmt, datefmt)
        self.use_color = use_color

    def format(self, record: logging.LogRecord) -> str:
        """The line; one that cannot be made says so instead of raising."""
        try:
            line = super().format(record)
        except Exception as error:  # noqa: BLE001 - a value that cannot be shown must not cost the line
            return unrepresentable(record.msg, error)
        paint = self.colors.get(record.levelname)
        return str(paint(line)) if paint is not None and self.use_color else line


class LoggingProxy:
    """
    A file whose lines go to a logger; what `sys.stdout` becomes in a worker.

    Args:
        logger: Where they go.
        loglevel: As what; else the logger's own level, else as errors.
    """

    mode = "w"
    name: str | None = None
    closed = False
    loglevel: int = logging.ERROR
    encoding = "utf-8"
    _thread = threading.local()

    def __init__(self, logger: logging.Logger, loglevel: Any = None) -> None:
        self.logger = logger
        self.loglevel = mlevel(loglevel or logger.level or self.loglevel)
        for handler in logger.handlers:
            # The usual one prints to sys.stderr, which may be this very object.
            handler.handleError = _print_error  # type: ignore[method-assign]

    def write(self, data: Any) -> int:
        """Log *data*; returns how many characters were."""
        text = data.decode(errors="replace") if isinstance(data, bytes) else str(data)
        if _in_sighandler:
            print(text, file=sys.__stderr__)
            return len(text)
        line = text.rstrip("\n")
        if not line or self.closed or getattr(self._thread, "recurse_protection", False):
            # A handler that prints would come back here for ever.
            return 0
        self._thread.recurse_protection = True
        try:
            self.logger.log(self.loglevel, "%s", line)
        finally:
            self._thread.recurse_protection = False
        return len(line)

    def writelines(self, sequence: Iterable[Any]) -> None:
        """Log each of them."""
        for part in sequence:
            self.write(part)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Log no more."""
        self.closed = True

    def isatty(self) -> bool:
        """It is no terminal."""
        return False


def _print_error(record: logging.LogRecord) -> None:
    try:
        traceback.print_exc(None, sys.__stderr__)
    except OSError:
        # Nobody reads it any more.
        pass


def get_multiprocessing_logger() -> logging.Logger:
    """The logger of `multiprocessing`."""
    from multiprocessing import get_logger as of_multiprocessing

    return of_multiprocessing()


def reset_multiprocessing_logger() -> None:
    """Have that logger set up anew, where there is one."""
    loaded: Any = sys.modules.get("multiprocessing.util")
    if loaded is not None:
        loaded._logger = None


def current_process_index(base: int = 1) -> int | None:
    """The number of this process among those that `multiprocessing` has numbered; None without one."""
    loaded: Any = sys.modules.get("multiprocessing.process")
    index = None if loaded is None else getattr(loaded.current_process(), "index", None)
    return None if index is None else int(index) + base
