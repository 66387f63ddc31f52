"""Beat as something that runs: in this thread, in one of its own, or in a process of its own."""

import logging
import multiprocessing
import warnings
from functools import cached_property
from threading import Event, Thread
from typing import Any, ClassVar

from sidekiq_celery import signals
from sidekiq_celery._beat.persistent import PersistentScheduler
from sidekiq_celery.utils.imports import load_extension_class_names, symbol_by_name
from sidekiq_celery.utils.time import humanize_seconds

__all__ = ("EmbeddedService", "Service")

logger = logging.getLogger("celery.beat")

_LEAST_REST_SECONDS = 0.001


class Service:
    """
    Ticks until it is stopped.

    Args:
        app: Whose periodic tasks are sent.
        max_interval: Seconds between two looks at the schedule, at most; else as the setting or the scheduler says.
        schedule_filename: Handed to the scheduler.
        scheduler_cls: A class, its name, or a name under which a package has registered it.
        remote_control: Warned of: beat answers no remote control.
        hostname: Without effect.
    """

    scheduler_cls: Any = PersistentScheduler

    def __init__(
        self,
        app: Any,
        max_interval: float | None = None,
        schedule_filename: str | None = None,
        scheduler_cls: Any = None,
        remote_control: bool | None = None,
        hostname: str | None = None,
    ) -> None:
        self.app = app
        self.max_interval = max_interval or app.conf.beat_max_loop_interval
        self.scheduler_cls = scheduler_cls or self.scheduler_cls
        self.schedule_filename = schedule_filename or app.conf.beat_schedule_filename
        self.remote_control = app.conf.beat_enable_remote_control if remote_control is None else remote_control
        self.hostname = hostname
        self._is_shutdown = Event()
        self._is_stopped = Event()

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self.app, self.max_interval, self.schedule_filename, self.scheduler_cls)
        return type(self), (*given, self.remote_control, self.hostname)

    def start(self, embedded_process: bool = False) -> None:
        """Tick; returns when it is stopped."""
        logger.info("beat: Starting...")
        logger.debug("beat: Ticking with max interval->%s", humanize_seconds(self.scheduler.max_interval))
        if self.remote_control:
            warnings.warn(
                "beat answers no remote control here; unset beat_enable_remote_control; `beat list` shows its state",
                stacklevel=2,
            )
        signals.beat_init.send(sender=self)
        if embedded_process:
            signals.beat_embedded_init.send(sender=self)
        try:
            while not self._is_shutdown.is_set():
                seconds = self.scheduler.tick()
                if seconds:
                    # A wait that is shorter than waking up takes comes out negative: not a reason to spin.
                    self._rest(max(seconds, _LEAST_REST_SECONDS))
        except (KeyboardInterrupt, SystemExit):
            self._is_shutdown.set()
        finally:
            self.sync()

    def _rest(self, seconds: float) -> None:
        logger.debug("beat: Waking up %s.", humanize_seconds(seconds, prefix="in "))
        self._is_shutdown.wait(seconds)
        if self.scheduler.should_sync():
            self.scheduler._do_sync()

    def sync(self) -> None:
        """Close the scheduler."""
        self.scheduler.close()
        self._is_stopped.set()

    def stop(self, wait: bool = False) -> None:
        """
        Have `start` return.

        Args:
            wait: Until it has.
        """
        logger.info("beat: Shutting down...")
        self._is_shutdown.set()
        if wait:
            self._is_stopped.wait()

    def get_scheduler(self, lazy: bool = False, extension_namespace: str = "celery.beat_schedulers") -> Any:
        """A scheduler; a lazy one is only looked at."""
        aliases = dict(load_extension_class_names(extension_namespace))
        made = symbol_by_name(self.scheduler_cls, aliases=aliases)
        return made(app=self.app, schedule_filename=self.schedule_filename, max_interval=self.max_interval, lazy=lazy)

    @cached_property
    def scheduler(self) -> Any:
        """The scheduler that ticks."""
        return self.get_scheduler()


class _Threaded(Thread):
    """Beat in a thread."""

    def __init__(self, app: Any, **kwargs: Any) -> None:
        super().__init__(name="Beat", daemon=True)
        self.app = app
        self.service = Service(app, **kwargs)

    def run(self) -> None:
        self.app.set_current()
        self.service.start()

    def stop(self) -> None:
        """Stop ticking; returns when the thread has."""
        self.service.stop(wait=True)


_Process: Any = (
    multiprocessing.get_context("fork").Process if "fork" in multiprocessing.get_all_start_methods() else None
)


class _Forked:
    """Beat in a process of its own."""

    _kind: ClassVar[Any] = _Process

    def __init__(self, app: Any, **kwargs: Any) -> None:
        self.app = app
        self.service = Service(app, **kwargs)
        self._process = self._kind(target=self._run, name="Beat", daemon=True)

    def start(self) -> None:
        """Fork."""
        with warnings.catch_warnings():
            # The child makes connections of its own, and waits for no lock of the parent's threads.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            self._process.start()

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return bool(self._process.is_alive())

    def stop(self) -> None:
        """End the process; returns when it has. What it has sent is written down at once, so nothing is lost."""
        self._process.terminate()
        self._process.join()

    def _run(self) -> None:
        from sidekiq_celery import platforms

        platforms.signals.reset("TERM", "INT")
        self.app.set_default()
        self.app.set_current()
        self.service.start(embedded_process=True)


def EmbeddedService(app: Any, max_interval: float | None = None, **kwargs: Any) -> Any:
    """
    Beat beside a worker, to be started and stopped.

    Args:
        thread: In a thread, instead of in a process of its own.
        kwargs: Of `Service`.
    """
    kwargs.setdefault("remote_control", False)
    if kwargs.pop("thread", False) or _Process is None:
        return _Threaded(app, max_interval=1, **kwargs)
    return _Forked(app, max_interval=max_interval, **kwargs)
