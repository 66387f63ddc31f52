"""
The thread that recovers jobs: those of dead owners, and jobs of this process whose fetch lost its reply.

At each beat it recovers the jobs of owners that are known to be dead, compares the jobs in flight with those that this
process knows, and checks all other owners if it is this process's turn (`lookout.py`). A pass that runs out of time
continues at once, after a check for new work. The comparison also renews the lease of this process. If that is late,
another thread renews it (`lease_keeper.py`), so nothing here can cost it the lease.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from sidekiq_py.engine.background import background_thread, wait_for_end
from sidekiq_py.engine.downtime import Outage
from sidekiq_py.engine.ownership.lookout import Lookout
from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.engine.ownership.recovery import Recovery
from sidekiq_py.engine.pulse import Pulse
from sidekiq_py.errors import RedisError, RedisReplyError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.replies import raise_first
from sidekiq_py.telemetry import Report

_PASS_SECONDS = 1.0
_ANNOUNCE_SECONDS = 0.5


class Housekeeper:
    """
    Recovers jobs at each beat until stopped. Stopping twice, or before a start, is fine.

    Args:
        link: The connection of *recovery*, which only this thread uses.
        report: Called with errors. It must not wait for the program's handlers.
        on_beat: Called at the start of each pass. A Redis error that it raises ends the pass.

    Attributes:
        pulse: The thread's pulse.
    """

    def __init__(
        self,
        link: Link,
        ownership: Ownership,
        recovery: Recovery,
        beat_seconds: float,
        report: Report,
        on_beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._link = link
        self._ownership = ownership
        self._recovery = recovery
        self._lookout = Lookout(link, ownership, beat_seconds)
        self._beat_seconds = beat_seconds
        self._report = report
        self._on_beat = on_beat
        self._known_dead: deque[str] = deque()
        self._pause = threading.Event()
        self.pulse = Pulse()
        self._is_stopped = False
        self._refusal = Outage(report, "the jobs of dead workers cannot be recovered; trying again")
        self._thread = background_thread("sidekiq.housekeeper", self._run)

    def start(self) -> None:
        """Start the thread. The first pass begins at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._is_stopped = True
        self._pause.set()
        wait_for_end(self._thread, self._link.timeout_seconds + 1)
        self._recovery.close()

    def declare_dead(self, owner: str) -> None:
        """Report that an owner is known to be dead, so that its jobs are recovered at once."""
        self._known_dead.append(owner)
        self._pause.set()

    def _run(self) -> None:
        self.pulse.waits(0.0)
        while not self._is_stopped:
            self._pause.wait(self.pulse.waits(self._turn()))
            if not self._is_stopped:
                self._pause.clear()
        with suppress(RedisError):
            self._lookout.leave()

    def _turn(self) -> float:
        """Make one pass. Returns the seconds until the next one."""
        try:
            self._look()
            self._refusal.over()
        except RedisReplyError as error:
            self._refusal.failed(error)
        except RedisError:
            # Redis is unreachable. The lease keeper reports it.
            return min(0.5, self._beat_seconds)
        except Exception as error:  # noqa: BLE001 — without this thread no job of a dead owner would be recovered
            self._report(error, {"context": "recovery"})
        else:
            if self._recovery.has_more:
                return 0.0
            if not self._lookout.has_announced:
                # The first fetch registers this process, usually within an instant.
                return min(_ANNOUNCE_SECONDS, self._beat_seconds)
        return self._beat_seconds

    def _look(self) -> None:
        self._on_beat()
        dead = list(self._known_dead)
        if dead:
            self._recovery.declare_dead(*dead, within_seconds=_PASS_SECONDS)
            for _ in dead:
                self._known_dead.popleft()
        self._lookout.announce()
        answer, *deaths = self._ownership.give_back_orphans_and_ask(
            self._link, self._lookout.question, *self._recovery.questions
        )
        is_turn = self._lookout.must_walk(self._recovery.neighbours, *raise_first([answer]))
        if is_turn or self._recovery.has_more:
            self._recovery.look(_PASS_SECONDS)
            self._lookout.has_walked()
        else:
            self._recovery.forget_silent()
        if deaths != [0]:
            self._recovery.take_over_deaths()
