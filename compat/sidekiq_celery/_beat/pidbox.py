"""
Beat's answer to `ping` over remote control, for health checks: `celery inspect ping -d celerybeat@HOST`.

`inspect` fails only if no node replies. So beat keeps silent once its schedule has not been checked for too long
(`beat_remote_control_max_tick_age`). It also keeps silent about all other commands, which are meant for workers.
"""

import logging
import os
import threading
from typing import Any

from sidekiq_celery.utils.collections import AttributeDict
from sidekiq_celery.utils.nodenames import default_nodename, host_format
from sidekiq_py.extension import monotonic
from sidekiq_py.worker import wake_pipe

logger = logging.getLogger("celery.beat")

NODENAME_DEFAULT = "celerybeat"
_STOP_SECONDS = 3.0


def beat_nodename(hostname: str | None = None) -> str:
    """The name of beat's node: `celerybeat@` and the host, unless *hostname* has a name of its own. Expands `%h`."""
    return host_format(default_nodename(hostname, NODENAME_DEFAULT))


class BeatPidbox:
    """
    Beat's node of remote control, in a thread of its own.

    Args:
        service: The `Service` whose checks of the schedule count.
    """

    # By default beat falls silent after twice the pause between two checks, but never sooner than this: a slow check of
    # a scheduler that pauses for five seconds would look like a stall, and a probe would restart beat over and over.
    min_tick_age = 60.0

    def __init__(self, service: Any) -> None:
        self.service = service
        self.app = service.app
        self.hostname = beat_nodename(service.hostname)
        self.state = AttributeDict(app=self.app, service=service)
        self.handlers = {"ping": lambda state, **_: {"ok": "pong"}}
        self.connection: Any = None
        self._is_stopping = threading.Event()
        self._wake_read, self._wake_write = wake_pipe(self)
        self._thread = threading.Thread(target=self._run, name="sidekiq.beat_pidbox", daemon=True)

    @property
    def max_tick_age(self) -> float:
        """The seconds without a check after which beat is silent; 0 for never."""
        configured: float | None = self.app.conf.beat_remote_control_max_tick_age
        return max(self.service.effective_max_interval * 2, self.min_tick_age) if configured is None else configured

    def tick_age(self) -> float | None:
        """The seconds since the last check; None before the first one."""
        return None if self.service.ticked_at is None else monotonic() - self.service.ticked_at

    def is_stale(self) -> bool:
        """Whether the schedule has not been checked for too long."""
        longest, age = self.max_tick_age, self.tick_age()
        return bool(longest) and age is not None and age > longest

    def start(self) -> None:
        """Start to listen. Does not wait for Redis."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, and wait a moment for that."""
        self._is_stopping.set()
        os.write(self._wake_write, b".")
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        from sidekiq_celery._pidbox.listener import listen

        self.app.set_current()
        listen(self, self._wake_read, self._is_stopping, lambda: None)

    def answers(self, method: str) -> bool:
        """Whether to answer a command: `ping`, unless the schedule has not been checked for too long."""
        if method not in self.handlers:
            return False
        if self.is_stale():
            logger.warning(
                "beat does not answer %s: the schedule has not been checked for %.0f s (limit: %g s)",
                *(method, self.tick_age(), self.max_tick_age),
            )
            return False
        return True

    def note_deadline(self, expires: Any) -> None:
        """See `_pidbox.listener.Owner`; `ping` is answered at once."""

    def stop_by_command(self, reason: str) -> None:
        """See `_pidbox.listener.Owner`; `ping` stops nothing."""
