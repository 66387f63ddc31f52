"""
Beat's answer to `ping` over remote control, for health checks: `celery inspect ping -d celerybeat@HOST`.

`inspect` fails only if no node replies. So beat keeps silent once its schedule has not been checked for too long
(`beat_remote_control_max_tick_age`). It also keeps silent about all other commands, which are meant for workers.
"""

import logging
from typing import Any

from sidekiq_celery._pidbox.node import Node
from sidekiq_celery.utils.collections import AttributeDict
from sidekiq_celery.utils.nodenames import default_nodename, host_format
from sidekiq_py.extension import monotonic

logger = logging.getLogger("celery.beat")

NODENAME_DEFAULT = "celerybeat"


def beat_nodename(hostname: str | None = None) -> str:
    """The name of beat's node: `celerybeat@` and the host, unless *hostname* has a name of its own. Expands `%h`."""
    return host_format(default_nodename(hostname, NODENAME_DEFAULT))


class BeatPidbox(Node):
    """
    Beat's node of remote control, in a thread of its own.

    Args:
        service: The `Service` whose checks of the schedule count.
    """

    # By default beat falls silent after twice the pause between two checks, but never sooner than this: a slow check of
    # a scheduler that pauses for five seconds would look like a stall, and a probe would restart beat over and over.
    min_tick_age = 60.0

    def __init__(self, service: Any) -> None:
        super().__init__(service.app, beat_nodename(service.hostname), "sidekiq.beat_pidbox")
        self.service = service
        self.state = AttributeDict(app=self.app, service=service)
        self.handlers = {"ping": lambda state, **_: {"ok": "pong"}}

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

    def run(self) -> None:
        """Listen."""
        from sidekiq_celery._pidbox.listener import listen

        listen(self)

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
