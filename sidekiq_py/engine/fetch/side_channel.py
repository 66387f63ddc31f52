"""
Gives jobs back and asks Redis questions outside of the exchange. It uses a connection of its own, so that neither a
fetch nor an acknowledgement waits for it.
"""

import threading
from collections.abc import Iterable, Sequence
from itertools import islice

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.fetch.flusher import RETRY_SECONDS
from sidekiq_py.engine.fetch.redis_errors import RedisErrors
from sidekiq_py.engine.ownership.owner import Owner, Ownership, UnitOfWork, by_owner, forget, give_back
from sidekiq_py.errors import RedisError
from sidekiq_py.logs import log
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.extension import revoked
from sidekiq_py.registry import OnNotices

# A request for one job at a time took most of a worker's time where CPU was short.
_MOST_ASKED_AHEAD = 100


class SideChannel:
    """
    The side channel of one capsule. Safe to use from any thread.

    Args:
        link: A connection that only this object uses.
        on_notices: Called with the notices about a job; see `fetch.lua`.
    """

    def __init__(
        self, link: Link, ownership: Ownership, redis_errors: RedisErrors, on_notices: OnNotices | None
    ) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._ownership = ownership
        self._redis_errors = redis_errors
        self._on_notices = on_notices
        self._is_quiet = False
        self._is_stopped = False

    def quiet(self) -> None:
        """From now on, do not let `confirm` wait until Redis is back."""
        self._is_quiet = True

    def stop(self) -> None:
        """From now on, do not wait for Redis at all."""
        self._is_stopped = True

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._link.close()

    def give_back(self, units: Sequence[UnitOfWork]) -> None:
        """Put back jobs that will not finish here. The first of them will run first. Does not raise."""
        for unit in units:
            if unit.owner is None:
                log.warning("a job that runs at most once was cut off, and will not run again: %s", unit)
        for owner, theirs in by_owner(units).items():
            try:
                with self._lock:
                    give_back(self._link, owner, theirs)
            except RedisError as error:
                self._redis_errors.offline(error)
            except Exception as error:  # noqa: BLE001 — the callers have no other place for the jobs
                self._redis_errors.note()
                self._redis_errors.report(error, {"context": "giving jobs back; the rest goes back later"})
            finally:
                # A job that is still in flight is an orphan from now on, and goes back once Redis replies again.
                forget(theirs)

    def give_back_orphans(self) -> None:
        """
        Put back the jobs that are in flight but unknown to this process.

        Raises:
            RedisError: Redis did not reply.
        """
        with self._lock:
            self._ownership.give_back_orphans(self._link)

    def confirm(self, owner: Owner) -> bool:
        """
        Ask Redis whether *owner* is still registered, and retry until it replies or the process stops.

        Returns:
            False if the owner was recovered, or Redis is unreachable and this process is quiet.
        """
        while not self._is_stopped:
            try:
                with self._lock:
                    if self._ownership.trusts(monotonic()):
                        break
                    self._ownership.renew(self._link)
                break
            except RedisError as error:
                self._redis_errors.offline(error)
                if self._is_quiet:
                    return False
                threading.Event().wait(RETRY_SECONDS)
        return owner is self._ownership.current

    def refresh_notices(self, unit: UnitOfWork, jobs: Iterable[UnitOfWork], now: float) -> None:
        """
        Ask for the notices that a fetch of *unit* would bring now, and for those of the first of the *jobs*, which will
        start next. If Redis is unreachable, this is skipped: nobody can have revoked a job in the meantime.

        Args:
            now: The time on the monotonic clock.
        """
        if (on_notices := self._on_notices) is None:
            return

        asked = [unit, *islice(jobs, _MOST_ASKED_AHEAD)]

        def refresh() -> None:
            with self._lock:
                on_notices(revoked.told_of(self._link, [one.raw for one in asked]))
            for one in asked:
                one.notices_at = now

        self._redis_errors.attempt(refresh, "the notices about a job could not be processed")
