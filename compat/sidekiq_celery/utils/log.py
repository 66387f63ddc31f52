"""Loggers as in Celery: those of the package are below `celery`, those of tasks below `celery.task`."""

import logging
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, ClassVar

from sidekiq_celery.utils.serialization import unrepresentable
from sidekiq_py.payloads import escaped_lines

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
"""Maps names to levels, and levels to names."""

# What a program prints or logs itself may be in color.
_OF_PROGRAMS = {"celery.task", "celery.redirected"}
RESERVED_LOGGER_NAMES = {"celery", "celery.task"}

_in_sighandler = False


def _quiet_logger(name: Any) -> logging.Logger:
    """Return a logger that does not complain about having no handler."""
    found = name if isinstance(name, logging.Logger) else logging.getLogger(name)
    if not found.handlers:
        found.addHandler(logging.NullHandler())
    return found


base_logger = logger = _quiet_logger("celery")


def logger_isa(l: logging.Logger, p: logging.Logger, max: int = 1000) -> bool:  # noqa: E741 - Celery's names
    """
    True if *l* is *p* or one of its descendants.

    Raises:
        RuntimeError: The logger is its own ancestor, or more than *max* levels deep.
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
    """Return a logger by name. If its parent is one of the program's loggers, it is moved below `celery`."""
    found = _quiet_logger(name)
    if logging.root not in (found, found.parent) and found is not base_logger:
        return _put_under(base_logger, found)
    return found


task_logger = get_logger("celery.task")
worker_logger = get_logger("celery.worker")


def get_task_logger(name: str) -> logging.Logger:
    """
    Return the logger for a task module. Its lines show the name and id of the running task.

    Raises:
        RuntimeError: The name is reserved for the package.
    """
    if name in RESERVED_LOGGER_NAMES:
        raise RuntimeError(f"Logger name {name!r} is reserved!")
    return _put_under(task_logger, get_logger(name))


def mlevel(level: Any) -> Any:
    """Return the number of a level. Numbers and None stay as they are."""
    return LOG_LEVELS[level.upper()] if level and not isinstance(level, int) else level


def set_in_sighandler(value: bool) -> None:
    """Set whether a signal handler is running. If so, printed text bypasses the log."""
    global _in_sighandler
    _in_sighandler = value


@contextmanager
def in_sighandler() -> Iterator[None]:
    """Mark the block as a signal handler."""
    set_in_sighandler(True)
    try:
        yield
    finally:
        set_in_sighandler(False)


def _painter(code: int) -> Any:
    return lambda text: f"\033[1;{code}m{text}\033[0m"


class ColorFormatter(logging.Formatter):
    """
    Colors lines by their level.

    Attributes:
        colors: Maps a level's name to the function that colors a line. Lines of other levels stay plain.
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
        """Format a record. If that fails, the line says so, and nothing is raised."""
        try:
            line = super().format(record)
        except Exception as error:  # noqa: BLE001 - a broken value must not cost the line
            return unrepresentable(record.msg, error)
        paint = self.colors.get(record.levelname)
        return str(paint(line)) if paint is not None and self.use_color else line

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without its traceback. What payloads name in our own messages sends nothing to a terminal."""
        if record.name.startswith("celery.") and record.name not in _OF_PROGRAMS:
            record.message = escaped_lines(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        """A traceback, in which an error may repeat what is in a payload."""
        return escaped_lines(super().formatException(ei))


class LoggingProxy:
    """
    A file that sends its lines to a logger. It replaces `sys.stdout` in a worker.

    Args:
        logger: The logger.
        loglevel: The level of the lines; by default the logger's own, or else ERROR.
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
            # The default method prints to sys.stderr, which may be this very object.
            handler.handleError = _print_error  # type: ignore[method-assign]

    def write(self, data: Any) -> int:
        """Log *data*. Returns the number of characters."""
        text = data.decode(errors="replace") if isinstance(data, bytes) else str(data)
        if _in_sighandler:
            print(text, file=sys.__stderr__)
            return len(text)
        line = text.rstrip("\n")
        if not line or self.closed or getattr(self._thread, "recurse_protection", False):
            # A handler that prints would call this method forever.
            return 0
        self._thread.recurse_protection = True
        try:
            self.logger.log(self.loglevel, "%s", line)
        finally:
            self._thread.recurse_protection = False
        return len(line)

    def writelines(self, sequence: Iterable[Any]) -> None:
        """Log each item."""
        for part in sequence:
            self.write(part)

    def flush(self) -> None:
        """Do nothing: lines are not buffered."""

    def close(self) -> None:
        """Stop logging."""
        self.closed = True

    def isatty(self) -> bool:
        """Always False: it is not a terminal."""
        return False

    def fileno(self) -> int:
        """The descriptor of the error output, for programs that a task starts with `stdout=sys.stdout`."""
        if sys.__stderr__ is None:
            raise OSError("this process has no error output")
        return sys.__stderr__.fileno()


def print_uncaught_errors_whole() -> None:
    """
    Write the traceback of an uncaught error in one piece, so that a `LoggingProxy` logs it as one message.

    Python writes it word by word, and the carets below a line one at a time. Hooks of the program stay as they are.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_uncaught
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _print_uncaught_in_thread


def _print_uncaught(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None, heading: str = ""
) -> None:
    print(heading + "".join(traceback.format_exception(kind, error, trace)), end="", file=sys.stderr)


def _print_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit:
        return
    name = threading.get_ident() if args.thread is None else args.thread.name
    _print_uncaught(args.exc_type, args.exc_value, args.exc_traceback, f"Exception in thread {name}:\n")


def _print_error(record: logging.LogRecord) -> None:
    # Perhaps nothing reads the error output any more.
    with suppress(OSError):
        traceback.print_exc(None, sys.__stderr__)


def get_multiprocessing_logger() -> logging.Logger:
    """Return the logger of `multiprocessing`."""
    from multiprocessing import get_logger as of_multiprocessing

    return of_multiprocessing()


def reset_multiprocessing_logger() -> None:
    """Let the logger of `multiprocessing` be set up again, if there is one."""
    loaded: Any = sys.modules.get("multiprocessing.util")
    if loaded is not None:
        loaded._logger = None


def current_process_index(base: int = 1) -> int | None:
    """Return the number that `multiprocessing` has for this process, or None."""
    loaded: Any = sys.modules.get("multiprocessing.process")
    index = None if loaded is None else getattr(loaded.current_process(), "index", None)
    return None if index is None else int(index) + base
