"""Takes snapshots of a cluster's state for programs that store them: `sidekiq-celery events --camera`."""

from typing import Any

from kombu.utils.limits import TokenBucket

from sidekiq_celery._state import app_or_default
from sidekiq_celery.utils.dispatch import Signal
from sidekiq_celery.utils.imports import instantiate
from sidekiq_celery.utils.log import get_logger
from sidekiq_celery.utils.pidfile import holding_pidfile
from sidekiq_celery.utils.time import rate
from sidekiq_celery.utils.timer import Timer

__all__ = ("Polaroid", "evcam")

logger = get_logger("celery.evcam")


class Polaroid:
    """
    A camera. Derive a class from it with an `on_shutter` that stores what it is given.

    Args:
        state: The state of the cluster.
        freq: Seconds between snapshots.
        maxrate: The highest rate of snapshots, as in `10/m`.
        cleanup_freq: Seconds between calls of `on_cleanup`.
        timer: Schedules the calls; needs `call_repeatedly`. By default, a timer of its own.
    """

    timer: Any = None
    shutter_signal = Signal(name="shutter_signal", providing_args={"state"})
    cleanup_signal = Signal(name="cleanup_signal")
    clear_after = False
    """Forget workers and finished tasks after each snapshot."""

    _tref: Any = None
    _ctref: Any = None

    def __init__(
        self,
        state: Any,
        freq: float = 1.0,
        maxrate: Any = None,
        cleanup_freq: float = 3600.0,
        timer: Any = None,
        app: Any = None,
    ) -> None:
        self.app = app_or_default(app)
        self.state = state
        self.freq = freq
        self.cleanup_freq = cleanup_freq
        self._own_timer = Timer()
        self.timer = timer or self.timer or self._own_timer
        self.logger = logger
        self.maxrate: Any = maxrate and TokenBucket(rate(maxrate))

    def install(self) -> None:
        """Start taking snapshots."""
        self._tref = self.timer.call_repeatedly(self.freq, self.capture)
        self._ctref = self.timer.call_repeatedly(self.cleanup_freq, self.cleanup)

    def cancel(self) -> None:
        """Take a last snapshot, then stop."""
        if self._tref:
            self._tref()
            self._tref.cancel()
        if self._ctref:
            self._ctref.cancel()
        if self.timer is self._own_timer:
            self.timer.stop()
            self.timer = self._own_timer = Timer()

    def on_shutter(self, state: Any) -> None:
        """Called to store a snapshot, while events are held back."""

    def on_cleanup(self) -> None:
        """Called when old snapshots may be deleted."""

    def capture(self) -> None:
        """Take a snapshot."""
        self.state.freeze_while(self.shutter, clear_after=self.clear_after)

    def shutter(self) -> None:
        """Take a snapshot while events are already held back, within `maxrate`."""
        if self.maxrate is None or self.maxrate.can_consume():
            logger.debug("Shutter: %s", self.state)
            self.shutter_signal.send(sender=self.state)
            self.on_shutter(self.state)

    def cleanup(self) -> None:
        """Let old snapshots be deleted."""
        logger.debug("Cleanup: Running...")
        self.cleanup_signal.send(sender=self.state)
        self.on_cleanup()

    def __enter__(self) -> "Polaroid":
        self.install()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.cancel()


def evcam(
    camera: Any,
    freq: float = 1.0,
    maxrate: Any = None,
    loglevel: Any = 0,
    logfile: str | None = None,
    pidfile: str | None = None,
    timer: Any = None,
    app: Any = None,
    **kwargs: Any,
) -> None:
    """
    Take snapshots until Ctrl-C.

    Args:
        camera: A class derived from `Polaroid`, or its name.
        freq, maxrate: Seconds between snapshots, and their highest rate.
        pidfile: Holds the process's id while it runs.

    Raises:
        ImproperlyConfigured: A running process has written the pidfile.
        SystemExit: On Ctrl-C.
    """
    app = app_or_default(app)
    with holding_pidfile(pidfile):
        app.log.setup_logging_subsystem(loglevel, logfile)
        print(f"-> evcam: Taking snapshots with {camera} (every {freq} secs.)", flush=True)
        state = app.events.State()
        picture = instantiate(camera, state, app=app, freq=freq, maxrate=maxrate, timer=timer)
        picture.install()
        connection = app.connection_for_read()
        receiver = app.events.Receiver(connection, handlers={"*": state.event})
        try:
            receiver.capture(limit=None)
        except KeyboardInterrupt:
            raise SystemExit from None
        finally:
            picture.cancel()
            connection.close()
