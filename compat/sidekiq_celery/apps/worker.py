"""The worker as a program: its log, its banner."""

import logging
import platform
import sys
from contextlib import suppress
from typing import Any

from sidekiq_celery import signals
from sidekiq_celery._send.clients import client_of
from sidekiq_celery._version import VERSION_BANNER
from sidekiq_celery.worker import WorkController
from sidekiq_py.extension import place

__all__ = ("Worker",)

logger = logging.getLogger("celery.worker")


class Worker(WorkController):
    """
    A worker that a command line starts. It has these options in addition to those of `WorkController`:

    Args:
        quiet: Print no banner.
        no_color: Do not color the log.
        purge: Empty its queues first.
        redirect_stdouts, redirect_stdouts_level: Send what tasks print to the log, at that level.
    """

    def on_before_init(self, quiet: bool = False, **kwargs: Any) -> None:
        self.quiet = quiet
        # Receivers may change the settings of particular workers.
        signals.celeryd_init.send(sender=self.hostname, instance=self, conf=self.app.conf, options=kwargs)

    def on_after_init(
        self,
        purge: bool = False,
        no_color: bool | None = None,
        redirect_stdouts: bool | None = None,
        redirect_stdouts_level: Any = None,
        **kwargs: Any,
    ) -> None:
        self.purge = purge
        self.no_color = no_color
        self.redirect_stdouts = self.app.either("worker_redirect_stdouts", redirect_stdouts)
        self.redirect_stdouts_level = self.app.either("worker_redirect_stdouts_level", redirect_stdouts_level)

    def on_init_blueprint(self) -> None:
        self._custom_logging = self.setup_logging()

    def setup_logging(self, colorize: bool | None = None) -> Any:
        """Set up the log. Returns the return values of the receivers of `setup_logging`."""
        paints = colorize if colorize is not None or not self.no_color else False
        return self.app.log.setup(self.loglevel, self.logfile, colorize=paints, hostname=self.hostname)

    def on_start(self) -> None:
        super().on_start()
        signals.celeryd_after_setup.send(sender=self.hostname, instance=self, conf=self.app.conf)
        if self.purge:
            self.purge_messages()
        if not self.quiet:
            # The disk of a log may be full, its reader gone, or its encoding ASCII. Later lines fail without harm, too.
            with suppress(OSError, UnicodeError):
                self.emit_banner()
        if not self.tasklist(include_builtins=False):
            logger.warning(
                "no task is declared, so this worker can run none: name the module of your app (-A), and in the app "
                "the modules of its tasks (include=[…] or autodiscover_tasks)"
            )
        if without := self.options_without_effect():
            logger.info("options without effect here: %s", "; ".join(without))
        if not self._custom_logging and self.redirect_stdouts:
            self.app.log.redirect_stdouts(self.redirect_stdouts_level)

    def on_consumer_ready(self, consumer: Any) -> None:
        signals.worker_ready.send(sender=consumer)
        logger.info("%s ready.", self.hostname)

    def purge_messages(self) -> int:
        """Empty the queues that are served. Returns how many jobs were in them."""
        count: int = self.app.control.purge()
        removed = "1 task was" if count == 1 else f"{count:,} tasks were"
        logger.warning("purge: %s removed from the queues", removed)
        return count

    def tasklist(self, include_builtins: bool = True, sep: str = "\n", int_: str = "celery.") -> str:
        """List the names of tasks."""
        names = sorted(name for name in self.app.tasks if include_builtins or not name.startswith(int_))
        return sep.join(f"  {name}" for name in names)

    def emit_banner(self) -> None:
        """Print the banner, and the tasks below it."""
        print(self.startup_info() + (self.extra_info() or ""), file=sys.__stdout__, flush=True)

    def extra_info(self) -> str | None:
        """List the tasks, if the log level is INFO or below."""
        if self.loglevel is None or self.loglevel > logging.INFO:
            return ""
        return f"\nTasks\n{self.tasklist(include_builtins=self.loglevel <= logging.DEBUG)}\n"

    def startup_info(self, artlines: bool = True) -> str:
        """The banner: what someone at the terminal wants to know first. It has no art, whatever *artlines* says."""
        app = self.app
        up_to = f" to {self.autoscale[0]}" if self.autoscale else ""
        lines = (
            f"{self.hostname} runs tasks of {app.main or '__main__'}",
            f"  version      {VERSION_BANNER}, Python {platform.python_version()}",
            f"  broker       {place(client_of(app).pool.settings)}",
            f"  results      {app.backend.as_uri() or app.conf.result_backend}",
            f"  concurrency  {self.concurrency}{up_to} ({self.pool_name})",
            f"  queues       {', '.join(app.amqp.queues.consume_from)}",
            "TERM or Ctrl-C lets tasks finish; another one a second or more later, or QUIT, does not wait for them.",
        )
        return "\n".join(lines) + "\n"
