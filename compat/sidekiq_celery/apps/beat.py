"""Beat as a program: banner, logging, signals."""

import logging
import signal
from datetime import datetime
from typing import Any, ClassVar, NoReturn

from sidekiq_celery import beat, platforms
from sidekiq_celery._send.clients import client_of
from sidekiq_celery.utils.imports import qualname
from sidekiq_celery.utils.pidfile import holding_pidfile
from sidekiq_celery.utils.time import humanize_seconds
from sidekiq_py.extension import place

__all__ = ("Beat",)

logger = logging.getLogger("celery.beat")


class Beat:
    """
    Runs beat until a signal.

    Args:
        max_interval: The longest time in seconds between two checks of the schedule.
        app: The app whose periodic tasks are sent.
        pidfile: Holds the process's id while it runs.
        no_color: Do not color the log.
        loglevel: A name or a number.
        logfile: By default the error output.
        schedule: A file for the scheduler. It has no effect on the default one, which keeps its state in Redis.
        scheduler, scheduler_cls: A class or its name; by default the setting `beat_scheduler`.
        redirect_stdouts, redirect_stdouts_level: Send printed text to the log, at that level.
        quiet: Print no banner.
        remote_control, hostname: For `Service`.
    """

    Service: ClassVar[Any] = beat.Service
    app: Any = None
    is_error_logged = False
    """True once an error that ends beat is in the log, with its traceback."""

    def __init__(
        self,
        max_interval: float | None = None,
        app: Any = None,
        pidfile: str | None = None,
        no_color: bool | None = None,
        loglevel: str | int = "WARN",
        logfile: str | None = None,
        schedule: str | None = None,
        scheduler: Any = None,
        scheduler_cls: Any = None,
        redirect_stdouts: bool | None = None,
        redirect_stdouts_level: str | None = None,
        quiet: bool = False,
        remote_control: bool | None = None,
        hostname: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.app = app = app or self.app
        self.max_interval = max_interval
        self.pidfile = pidfile
        self.loglevel = loglevel
        self.logfile = logfile
        self.no_color = no_color
        self.redirect_stdouts = app.either("worker_redirect_stdouts", redirect_stdouts)
        self.redirect_stdouts_level = app.either("worker_redirect_stdouts_level", redirect_stdouts_level)
        self.schedule = schedule
        self.scheduler_cls = app.either("beat_scheduler", scheduler, scheduler_cls)
        self.quiet = quiet
        self.remote_control = remote_control
        self.hostname = hostname

    def run(self) -> None:
        """Run until a signal."""
        self.init_loader()
        self.start_scheduler()

    def init_loader(self) -> None:
        """Import the program's tasks."""
        self.app.loader.init_worker()
        self.app.finalize()

    def start_scheduler(self) -> None:
        """
        Run the schedule until a signal.

        Raises:
            ImproperlyConfigured: A running process has written the pidfile.
        """
        # First, because printed text goes to the log later.
        with holding_pidfile(self.pidfile):
            self._tick_until_a_signal()

    def _tick_until_a_signal(self) -> None:
        service = self.Service(
            app=self.app,
            max_interval=self.max_interval,
            scheduler_cls=self.scheduler_cls,
            schedule_filename=self.schedule,
            remote_control=self.remote_control,
            hostname=self.hostname,
        )
        if not self.quiet:
            print(self.startup_info(service), flush=True)
        self.setup_logging()
        if self.schedule and isinstance(service.get_scheduler(lazy=True), beat.PersistentScheduler):
            logger.warning("beat keeps its state in Redis: the file %s has no effect.", self.schedule)
        self.install_sync_handler(service)
        try:
            service.start()
        except Exception as error:
            logger.critical("beat raised exception %s: %r", type(error), error, exc_info=True)
            self.is_error_logged = True
            raise

    def setup_logging(self, colorize: bool | None = None) -> None:
        """Set up the log, and redirect printed text to it."""
        paints = not self.no_color if colorize is None and self.no_color is not None else colorize
        redirected = (self.redirect_stdouts, self.redirect_stdouts_level)
        self.app.log.setup(self.loglevel, self.logfile, *redirected, colorize=paints)

    def startup_info(self, service: Any) -> str:
        """The banner."""
        scheduler = service.get_scheduler(lazy=True)
        lines = (
            "sidekiq-celery beat is starting.",
            f"LocalTime -> {datetime.now().replace(microsecond=0)}",
            "Configuration ->",
            f"    . broker -> {place(client_of(self.app).pool.settings)}",
            f"    . scheduler -> {qualname(scheduler)}",
            scheduler.info,
            f"    . maxinterval -> {humanize_seconds(scheduler.max_interval)} ({scheduler.max_interval}s)",
            f"    . remote control -> {beat.beat_nodename(service.hostname)}" if service.remote_control else "",
        )
        return "\n".join(line for line in lines if line)

    def install_sync_handler(self, service: Any) -> None:
        """Let SIGTERM and SIGINT end beat. Schedulers save their state first."""

        def end(*_: Any) -> NoReturn:
            raise SystemExit

        platforms.signals.update({signal.SIGTERM: end, signal.SIGINT: end})
