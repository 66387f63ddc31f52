"""`app.log`: how a worker or any other program writes its log."""

import logging
import os
import sys
import warnings
from logging.handlers import WatchedFileHandler
from typing import Any

from sidekiq_celery import signals
from sidekiq_celery._state import get_current_task
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import CDeprecationWarning, CPendingDeprecationWarning
from sidekiq_celery.local import class_property
from sidekiq_celery.platforms import isatty
from sidekiq_celery.utils.log import ColorFormatter, LoggingProxy, get_logger, mlevel, print_uncaught_errors_whole
from sidekiq_celery.utils.nodenames import node_format
from sidekiq_py.payloads import escaped
from sidekiq_py.redaction import current

__all__ = ("Logging", "TaskFormatter")

_UNKNOWN = "???"


class _RedactingFormatter(ColorFormatter):
    """Hides the texts of the running task's errors if the redaction policy says so."""

    def formatException(self, ei: Any) -> str:
        """A traceback."""
        task = get_current_task()
        # None for a line that was logged with `exc_info=True` where no error is handled.
        if task is not None and ei[1] is not None:
            error = current().error(ei[1], {"class": task.name})
            ei = (type(error), error, ei[2])
        return super().formatException(ei)


class TaskFormatter(_RedactingFormatter):
    """Adds the name and id of the running task to log lines: `task_name` and `task_id`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as a line."""
        task = get_current_task()
        if task is not None and task.request:
            record.__dict__.update(task_id=escaped(str(task.request.id)), task_name=task.name)
        else:
            record.__dict__.setdefault("task_name", _UNKNOWN)
            record.__dict__.setdefault("task_id", _UNKNOWN)
        return super().format(record)


class Logging:
    """
    Sets up logging, once per process.

    If a program connects to `signals.setup_logging`, it sets up logging on its own, and nothing is done here.

    Args:
        app: The app whose settings apply.
    """

    _setup = False

    def __init__(self, app: App) -> None:
        self.app = app
        self.loglevel = logging.WARNING
        self.format = app.conf.worker_log_format
        self.datefmt = app.conf.worker_log_datefmt
        self.task_format = app.conf.worker_task_log_format
        self.task_datefmt = app.conf.worker_task_log_datefmt
        self.colorize = app.conf.worker_log_color

    @classmethod
    def _get_already_setup(cls) -> bool:
        return cls._setup

    @classmethod
    def _set_already_setup(cls, was_setup: bool) -> None:
        cls._setup = was_setup

    already_setup = class_property(_get_already_setup, _set_already_setup)
    """True once logging has been set up in this process."""

    def setup(
        self,
        loglevel: Any = None,
        logfile: Any = None,
        redirect_stdouts: bool = False,
        redirect_level: Any = "WARNING",
        colorize: bool | None = None,
        hostname: str | None = None,
    ) -> Any:
        """
        Set up logging and warnings.

        Args:
            logfile: A path, or a stream; by default standard error.
            redirect_stdouts: Send printed text to the log, unless the program sets up logging itself.
            hostname: The node name, for `%n` and similar in the path.

        Returns:
            The return values of the receivers of `setup_logging`; None if logging was already set up.
        """
        level = mlevel(loglevel)
        handled = self.setup_logging_subsystem(level, logfile, colorize=colorize, hostname=hostname)
        if not handled and redirect_stdouts:
            self.redirect_stdouts(redirect_level)
        os.environ.update(CELERY_LOG_LEVEL=str(level) if level else "", CELERY_LOG_FILE=str(logfile) if logfile else "")
        warnings.filterwarnings("always", category=CDeprecationWarning)
        warnings.filterwarnings("always", category=CPendingDeprecationWarning)
        logging.captureWarnings(True)
        return handled

    def setup_logging_subsystem(
        self,
        loglevel: Any = None,
        logfile: Any = None,
        format: str | None = None,
        colorize: bool | None = None,
        hostname: str | None = None,
        datefmt: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Set up the root logger and the task logger. Takes the arguments of `setup`, but leaves warnings alone."""
        if self.already_setup:
            return None
        target = node_format(logfile, hostname) if isinstance(logfile, str) and hostname else logfile
        Logging._setup = True
        level = mlevel(loglevel or self.loglevel)
        line_format = format or self.format
        paints = self.supports_color(colorize, target)
        about = {"loglevel": level, "logfile": target, "format": line_format, "colorize": paints}
        receivers = signals.setup_logging.send(sender=None, **about)
        for _, response in receivers:
            if isinstance(response, Exception):
                Logging._setup = False
                raise response
        # A dictConfig without "disable_existing_loggers": False disables it, and so the engine's warnings and errors.
        logging.getLogger("sidekiq").disabled = False
        if receivers:
            return receivers
        root = logging.getLogger()
        if self.app.conf.worker_hijack_root_logger:
            for owned in (root, *map(get_logger, ("celery", "celery.task", "celery.redirected"))):
                owned.handlers = []
        shown_date = self.datefmt if datefmt is None else datefmt
        self._configure_logger(root, target, level, line_format, paints, datefmt=shown_date, **kwargs)
        signals.after_setup_logger.send(sender=None, logger=root, **about)
        self.setup_task_loggers(level, target, colorize=paints)
        return receivers

    def _configure_logger(
        self, logger: Any, logfile: Any, loglevel: Any, format: str | None, colorize: bool | None, **kwargs: Any
    ) -> None:
        if logger is not None:
            self.setup_handlers(logger, logfile, format, colorize, **kwargs)
            if loglevel:
                logger.setLevel(loglevel)

    def setup_task_loggers(
        self,
        loglevel: Any = None,
        logfile: Any = None,
        format: str | None = None,
        colorize: bool | None = None,
        propagate: bool = False,
        datefmt: str | None = None,
        **kwargs: Any,
    ) -> logging.Logger:
        """
        Set up the task logger.

        Args:
            propagate: Also pass its lines to the root logger's handlers.
        """
        level = mlevel(loglevel or self.loglevel)
        line_format = format or self.task_format
        paints = self.supports_color(colorize, logfile)
        shown_date = self.task_datefmt if datefmt is None else datefmt
        logger = self.setup_handlers(
            get_logger("celery.task"), logfile, line_format, paints, TaskFormatter, datefmt=shown_date, **kwargs
        )
        logger.setLevel(level)
        logger.propagate = propagate
        signals.after_setup_task_logger.send(
            sender=None, logger=logger, loglevel=level, logfile=logfile, format=line_format, colorize=paints
        )
        return logger

    def redirect_stdouts(self, loglevel: Any = None, name: str = "celery.redirected") -> None:
        """Send printed text to the log."""
        self.redirect_stdouts_to_logger(get_logger(name), loglevel=loglevel)
        os.environ.update(CELERY_LOG_REDIRECT="1", CELERY_LOG_REDIRECT_LEVEL=str(loglevel or ""))

    def redirect_stdouts_to_logger(
        self, logger: logging.Logger, loglevel: Any = None, stdout: bool = True, stderr: bool = True
    ) -> LoggingProxy:
        """Send printed text to *logger*. Returns the object that replaces the streams."""
        proxy: Any = LoggingProxy(logger, loglevel)
        if stdout:
            sys.stdout = proxy
        if stderr:
            sys.stderr = proxy
            print_uncaught_errors_whole()
        return proxy  # type: ignore[no-any-return]

    def supports_color(self, colorize: bool | None = None, logfile: Any = None) -> bool | None:
        """True if lines are colored: on a terminal, unless a setting says otherwise."""
        wanted = self.colorize if colorize is None else colorize
        if wanted or wanted is None:
            return logfile is None and isatty(sys.stderr)
        return wanted

    def setup_handlers(
        self,
        logger: logging.Logger,
        logfile: Any,
        format: str | None,
        colorize: bool | None,
        formatter: Any = _RedactingFormatter,
        datefmt: str | None = None,
        **kwargs: Any,
    ) -> logging.Logger:
        """Give *logger* a handler unless it has one."""
        if not self._is_configured(logger):
            handler = self._detect_handler(logfile)
            handler.setFormatter(formatter(format, datefmt=datefmt, use_color=colorize))
            logger.addHandler(handler)
        return logger

    def _detect_handler(self, logfile: Any = None) -> logging.Handler:
        target: Any = sys.__stderr__ if logfile is None else logfile
        if target is None:
            # A process that was started with a closed standard error has none.
            return logging.NullHandler()
        if hasattr(target, "write"):
            return logging.StreamHandler(target)
        return WatchedFileHandler(target, encoding="utf-8")

    def _is_configured(self, logger: logging.Logger) -> bool:
        has_handler = any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers)
        return has_handler and not getattr(logger, "_rudimentary_setup", False)

    def get_default_logger(self, name: str = "celery", **kwargs: Any) -> logging.Logger:
        """The package's logger."""
        return get_logger(name)
