"""
The thread that keeps this process's claim to its jobs, and brings back the jobs of others that died.

Each beat: renew the lease, compare what is in flight with what is known here, look after the dead. It runs no code of
the program's, so nothing that a program does can cost it its lease.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from sidekiq_py.clock import Wakeable
from sidekiq_py.engine.owner import Ownership
from sidekiq_py.engine.recovery import Recovery
from sidekiq_py.errors import RedisError
from sidekiq_py.redis_access.link import Link

_log = logging.getLogger("sidekiq")


class Custodian:
    """
    Starts, beats until stopped. Stopping twice, or before a start, is fine.

    Args:
        report: Told of errors; it must not wait for handlers of the program, nor must the recovery's `on_buried`.
    """

    def __init__(
        self,
        link: Link,
        ownership: Ownership,
        recovery: Recovery,
        beat_seconds: float,
        report: Callable[[BaseException, dict[str, Any]], None],
    ) -> None:
        self._link = link
        self._ownership = ownership
        self._recovery = recovery
        self._beat_seconds = beat_seconds
        self._report = report
        self._known_dead: deque[str] = deque()
        self._pause = Wakeable()
        self._is_stopped = False
        self._is_offline = False
        self._thread = threading.Thread(target=self._run, name="sidekiq.custodian", daemon=True)

    def start(self) -> None:
        """Start the thread; its first look is at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._is_stopped = True
        self._pause.wake()
        if self._thread.is_alive():
            self._thread.join(timeout=self._link.timeout_seconds + 1)
        self._link.close()
        self._recovery.close()

    def bury(self, owner: str) -> None:
        """An owner is known to be dead: look after it at once."""
        self._known_dead.append(owner)
        self._pause.wake()

    def _run(self) -> None:
        while not self._is_stopped:
            try:
                self._beat()
                self._is_offline = False
            except RedisError as error:
                if not self._is_offline:
                    self._is_offline = True
                    self._report(error, {"context": "the lease could not be renewed; trying again"})
            except Exception as error:  # noqa: BLE001 — without this thread the process would be taken for dead
                self._report(error, {"context": "recovery"})
            # Soon again while Redis is away: a lease that ran out meanwhile is to be renewed first of all.
            self._pause.wait(min(0.5, self._beat_seconds) if self._is_offline else self._beat_seconds)
            if not self._is_stopped:
                self._pause.rearm()

    def _beat(self) -> None:
        self._ownership.renew(self._link)
        while self._known_dead:
            self._recovery.bury(self._known_dead[0])
            self._known_dead.popleft()
        self._ownership.give_back_strangers(self._link)
        self._recovery.look()
