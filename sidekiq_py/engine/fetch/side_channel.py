"""
What is asked of Redis, and given back to it, beside the exchange: over a connection of its own, so that neither a fetch
nor an acknowledgement waits for it.
"""

import logging
import threading
from collections.abc import Sequence

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.fetch.flusher import RETRY_SECONDS
from sidekiq_py.engine.fetch.settle import forget
from sidekiq_py.engine.fetch.trouble import Trouble
from sidekiq_py.engine.ownership.owner import Owner, Ownership, UnitOfWork, listed_among
from sidekiq_py.errors import RedisError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.extension import revoked
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.registry import OnNotices

_log = logging.getLogger("sidekiq")


class SideChannel:
    """
    Of one capsule. Safe from any thread.

    Args:
        link: A connection of its own.
        on_notices: Handed the orders that are told of a job; see `fetch.lua`.
    """

    def __init__(self, link: Link, ownership: Ownership, trouble: Trouble, on_notices: OnNotices | None) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._ownership = ownership
        self._trouble = trouble
        self._on_notices = on_notices
        self._is_quiet = False
        self._is_stopped = False

    def quiet(self) -> None:
        """Who asks about a job that has not started is not to wait until Redis is back."""
        self._is_quiet = True

    def stop(self) -> None:
        """Nobody is to wait for Redis any more."""
        self._is_stopped = True

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            self._link.close()

    def give_back(self, units: Sequence[UnitOfWork]) -> None:
        """Put jobs back that are not to be run to their end here; the first of them is to run first. Does not raise."""
        by_owner: dict[Owner, list[UnitOfWork]] = {}
        for unit in units:
            if unit.owner is None:
                _log.warning("a job that runs at most once was cut off, and will not run again: %s", unit)
            else:
                by_owner.setdefault(unit.owner, []).append(unit)
        for owner, theirs in by_owner.items():
            fields = [unit.field for unit in theirs]
            try:
                with self._lock:
                    in_flight.give_back(self._link, owner.name, fields, listed_among(theirs))
            except RedisError as error:
                self._trouble.offline(error)
            except Exception as error:  # noqa: BLE001 — the callers have nobody else to hand the jobs to
                self._trouble.note()
                self._trouble.report(error, {"context": "giving jobs back; those that are left go back later"})
            finally:
                # What is still in flight is an orphan from now on, and goes back once Redis answers again.
                forget(owner, fields)

    def give_back_orphans(self) -> None:
        """
        Put jobs back that are in flight and unknown here.

        Raises:
            RedisError: Redis did not say.
        """
        with self._lock:
            self._ownership.give_back_orphans(self._link)

    def confirm(self, owner: Owner) -> bool:
        """Ask Redis whether *owner* stands, for as long as it takes; False: it does not, or it is time to stop."""
        while not self._is_stopped:
            try:
                with self._lock:
                    if self._ownership.trusts(monotonic()):
                        break
                    self._ownership.renew(self._link)
                break
            except RedisError as error:
                self._trouble.offline(error)
                if self._is_quiet:
                    return False
                threading.Event().wait(RETRY_SECONDS)
        return owner is self._ownership.current

    def hear_again(self, unit: UnitOfWork) -> None:
        """Ask what a fetch would tell of *unit* now. Where Redis cannot be asked, nobody can have revoked it."""
        if self._on_notices is None:
            return
        try:
            with self._lock:
                self._on_notices(revoked.told_of(self._link, unit.raw))
        except RedisError as error:
            self._trouble.offline(error)
        except Exception as error:  # noqa: BLE001 — what is told is a hint, and the job is at hand
            self._trouble.report(error, {"context": "what was told of a job could not be taken in"})
