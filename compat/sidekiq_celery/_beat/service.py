"""Running beat: in this thread, in a separate thread, or in a separate process."""

import logging
import multiprocessing
import warnings
from functools import cached_property
from threading import Event, Thread
from typing import Any, ClassVar

from sidekiq_celery import signals
from sidekiq_celery._beat.persistent import PersistentScheduler
from sidekiq_celery._beat.pidbox import BeatPidbox
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.utils.imports import load_extension_class_names, symbol_by_name
from sidekiq_celery.utils.time import humanize_seconds
from sidekiq_py.errors import RedisError
from sidekiq_py.extension import monotonic

logger = logging.getLogger("celery.beat")

_LEAST_REST_SECONDS = 0.001


class Service:
    """
    Runs a scheduler until it is stopped.

    Args:
        app: The app whose periodic tasks to send.
        max_interval: The most seconds between two checks of the schedule; by default that of the setting or scheduler.
        schedule_filename: Passed to the scheduler.
        scheduler_cls: A class, its import path, or a name under which a package has registered it.
        remote_control: True to answer `ping` over remote control; by default as `beat_enable_remote_control` says.
        hostname: The node's name or host for that; by default `celerybeat@` and this machine's name.

    Attributes:
        ticked_at: When the schedule was checked last, in monotonic seconds; None before the start.
        effective_max_interval: The most seconds between two checks that the scheduler settled on.
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
        self.ticked_at: float | None = None
        self.effective_max_interval = float(self.max_interval or 0)
        self._pidbox: BeatPidbox | None = None
        self._is_shutdown = Event()
        self._is_stopped = Event()

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self.app, self.max_interval, self.schedule_filename, self.scheduler_cls)
        return type(self), (*given, self.remote_control, self.hostname)

    def start(self, embedded_process: bool = False) -> None:
        """
        Run the scheduler; returns when it is stopped.

        Raises:
            SystemExit: Redis refuses the user, or something that the scheduler needs, or an entry of `beat_schedule`
                cannot be read; it is logged.
        """
        try:
            self._run(embedded_process)
        finally:
            # Whoever stops a beat that could not start must not wait for ever.
            self._is_stopped.set()

    def _run(self, embedded_process: bool) -> None:
        logger.info("beat: Starting...")
        try:
            self.effective_max_interval = max_interval = self.scheduler.max_interval
        except (ImproperlyConfigured, RedisError) as error:
            # A traceback would say no more.
            logger.critical("beat cannot start: %s", error)
            raise SystemExit(1) from error
        logger.debug("beat: Ticking with max interval->%s", humanize_seconds(max_interval))
        signals.beat_init.send(sender=self)
        if embedded_process:
            signals.beat_embedded_init.send(sender=self)
        if self.remote_control:
            self._pidbox = BeatPidbox(self)
            self._pidbox.start()
        # Before the first check: a beat that hangs in it must fall silent, too.
        self.ticked_at = monotonic()
        try:
            while not self._is_shutdown.is_set():
                seconds = self.scheduler.tick()
                self.ticked_at = monotonic()
                if seconds:
                    # A wait shorter than the time to wake up comes out negative. That must not become a busy loop.
                    self._rest(max(seconds, _LEAST_REST_SECONDS))
        except (KeyboardInterrupt, SystemExit):
            self._is_shutdown.set()
        finally:
            try:
                # First the schedule: SIGKILL may follow soon.
                self.sync()
            finally:
                if self._pidbox is not None:
                    self._pidbox.stop()

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
        Make `start` return.

        Args:
            wait: True to wait until it has returned.
        """
        logger.info("beat: Shutting down...")
        self._is_shutdown.set()
        if wait:
            self._is_stopped.wait()

    def get_scheduler(self, lazy: bool = False, extension_namespace: str = "celery.beat_schedulers") -> Any:
        """Create a scheduler; a lazy one is only inspected."""
        made = self.scheduler_class(extension_namespace)
        return made(app=self.app, schedule_filename=self.schedule_filename, max_interval=self.max_interval, lazy=lazy)

    def scheduler_class(self, extension_namespace: str = "celery.beat_schedulers") -> Any:
        """
        The class that `scheduler_cls` names.

        Raises:
            ImproperlyConfigured: It cannot be imported, or is no class.
        """
        aliases = dict(load_extension_class_names(extension_namespace))
        try:
            found = symbol_by_name(self.scheduler_cls, aliases=aliases)
        except (ImportError, AttributeError, ValueError) as error:
            raise ImproperlyConfigured(
                f"beat_scheduler is {self.scheduler_cls!r}, which cannot be imported: {error}. Check the name "
                "(module:Class), and that its package is installed"
            ) from error
        if not callable(found):
            raise ImproperlyConfigured(f"beat_scheduler is {self.scheduler_cls!r}, which is no class; name one")
        return found

    @cached_property
    def scheduler(self) -> Any:
        """The scheduler that this service runs."""
        return self.get_scheduler()


def _run_embedded(service: Any) -> None:
    """Run beat's service beside a worker, which goes on without it after an error."""
    try:
        # Celery's worker starts beat in a process with any pool, and so sends `beat_embedded_init`.
        service.start(embedded_process=True)
    except Exception:
        logger.critical("beat has stopped after an error; the worker runs on without it", exc_info=True)


class _Threaded(Thread):
    """Beat in a thread."""

    def __init__(self, app: Any, **kwargs: Any) -> None:
        super().__init__(name="Beat", daemon=True)
        self.app = app
        self.service = Service(app, **kwargs)

    def run(self) -> None:
        self.app.set_current()
        _run_embedded(self.service)

    def stop(self) -> None:
        """Stop beat; returns when its thread has ended."""
        self.service.stop(wait=True)


_Process: Any = (
    multiprocessing.get_context("fork").Process if "fork" in multiprocessing.get_all_start_methods() else None
)


class _Forked:
    """Beat in a separate process."""

    _kind: ClassVar[Any] = _Process

    def __init__(self, app: Any, **kwargs: Any) -> None:
        self.app = app
        self.service = Service(app, **kwargs)
        self._process = self._kind(target=self._run, name="Beat", daemon=True)

    def start(self) -> None:
        """Fork the process."""
        with warnings.catch_warnings():
            # The child opens its own connections, and does not wait for any lock of the parent's threads.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            self._process.start()

    def is_alive(self) -> bool:
        """Whether the process is running."""
        return bool(self._process.is_alive())

    def stop(self) -> None:
        """Terminate the process and wait for it. Its state is written after each send, so nothing is lost."""
        self._process.terminate()
        self._process.join()

    def _run(self) -> None:
        from sidekiq_celery import platforms

        platforms.signals.reset("TERM", "INT")
        self.app.set_default()
        self.app.set_current()
        _run_embedded(self.service)


def EmbeddedService(app: Any, max_interval: float | None = None, **kwargs: Any) -> Any:
    """
    Create a beat to run beside a worker, with `start` and `stop`.

    Args:
        thread: True to run it in a thread instead of a separate process.
        kwargs: Arguments for `Service`.
    """
    kwargs.setdefault("remote_control", False)
    if kwargs.pop("thread", False) or _Process is None:
        return _Threaded(app, max_interval=1, **kwargs)
    return _Forked(app, max_interval=max_interval, **kwargs)
