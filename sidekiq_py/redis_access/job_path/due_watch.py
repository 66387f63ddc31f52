"""
Learns when a job is added to `retry` or `schedule`, so that the poller does not have to check every 100 ms.

Redis can notify one connection when keys change that another connection has read: client-side caching
(`CLIENT TRACKING`), since 6.0. A proxy may accept that command and send nothing. So the holder of the poller's lease
also reads the lease, which it renews every second. Only while it is notified of its own renewals does it take silence
to mean that nothing changed.

A renewal goes along with a check: `GET` and `EXPIRE` in the same packet cost Redis a tenth of a script of their own.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sidekiq_py.clock import monotonic
from sidekiq_py.errors import RedisConnectionError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.connection.link import Command, pack_command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import raise_first
from sidekiq_py.redis_access.job_path.promote import due_commands, noted_due
from sidekiq_py.wire import keys

_CHANNEL = b"__redis__:invalidate"
# A server that refuses may be replaced by another one later; but each try adds an entry to its log (`ACL LOG`).
_REFUSED_SECONDS = 3600.0
# Some proxies break the connection instead of refusing a command, or as soon as it is subscribed. Trying again at each
# look opened 15 a second.
_BROKEN_SECONDS = 10.0
# What Redis says of a connection for notifications that has broken by the time tracking is turned on.
_GONE = "redirect to does not exist"
_LEASE = keys.POLLER_LEASE.encode()


class Look(NamedTuple):
    """
    The result of one check.

    Args:
        dues: For each moment that was asked about, the number of members of the waiting sets that are due by then.
        holder: The identity of the process that holds the poller's lease; None if it has lapsed.
        will_notice: True if `wait` will notice changes.
        is_renewed: True if Redis has accepted the renewal of the lease that was asked for.
    """

    dues: list[int]
    holder: bytes | None
    will_notice: bool
    is_renewed: bool


class DueWatch:
    """
    The watch of one poller, used by the poller's thread. It needs two connections while it is on.

    Args:
        pool: The pool of the Redis whose sets are watched.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._asking = pool.new_link()
        self._notifications = pool.new_link()
        # The generation of the socket on which tracking is on.
        self._noted_on = 0
        # True if Redis has reported the last renewal of the lease.
        self._is_proven = False
        self._refused_until = 0.0

    def look(self, now: float, ahead_seconds: Sequence[float], *, renew_for: int = 0) -> Look:
        """
        Check if anything is due, and who holds the lease.

        Args:
            ahead_seconds: Check for what is due within each of these times.
            renew_for: If given, the lease lasts for this many seconds from now. Only its holder may ask for this: the
                lease of another process that has taken over meanwhile would then last longer as well.

        Raises:
            RedisError: Redis cannot be reached, or is in trouble. A user who may not use EXPIRE can still look.
        """
        lease: list[Command] = [("GET", keys.POLLER_LEASE)]
        if renew_for:
            # After GET, so that Redis reports it. Unlike SET, a full Redis accepts it.
            lease.append(("EXPIRE", keys.POLLER_LEASE, renew_for))
        commands = [*lease, *due_commands(now, ahead_seconds)]
        is_on = self._is_on()
        is_proven = self._is_proven
        if renew_for:
            self._is_proven = False
        replies, is_tracked = self._ask(commands) if is_on else (self._pool.replies(commands), False)
        holder, *renewal = replies[: len(lease)]
        is_refused = any(isinstance(reply, RedisReplyError) and not reply.is_about_server for reply in renewal)
        raise_first([holder] if is_refused else replies[: len(lease)])
        return Look(
            noted_due(replies[len(lease) :]), holder, is_tracked and is_proven, bool(renewal) and not is_refused
        )

    def wait(self, seconds: float) -> bool:
        """Wait until a waiting set changes or `abandon` is called: True. Returns False after *seconds*."""
        until = monotonic() + seconds
        while True:
            left = until - monotonic()
            if left <= 0:
                return False
            try:
                if self._notifications.wait_readable(left) and self._read_notifications():
                    return True
            except (ReplyLostError, RedisConnectionError):
                self.close()
                return True

    def abandon(self) -> None:
        """End the current wait and all later ones. Safe to call from any thread."""
        self._notifications.abandon()

    def close(self) -> None:
        """Close the connections; the next look opens them again."""
        self._asking.close()
        self._notifications.close()
        self._is_proven = False

    def _ask(self, commands: Sequence[Command]) -> tuple[list[Any], bool]:
        """Send commands. Returns their replies, and True if Redis tracks the keys that they read."""
        try:
            replies = self._asking.batch(commands)
            # Redis may have closed the connection before, so that it was reopened without tracking.
            return replies, self._asking.generation == self._noted_on
        except (ReplyLostError, RedisConnectionError):
            self.close()
            return self._pool.replies(commands), False

    def _is_on(self) -> bool:
        """True if tracking is on. Turns it on if necessary."""
        try:
            self._asking.drop_if_idle()
            if self._asking.is_open and self._asking.generation == self._noted_on and self._notifications.is_open:
                if self._notifications.wait_readable(0):
                    self._read_notifications()
                return True
            self.close()
            if monotonic() < self._refused_until:
                return False
            self._refused_until = monotonic() + _BROKEN_SECONDS
            self._begin()
            return True
        except (ReplyLostError, RedisConnectionError):
            self.close()
        except RedisReplyError as error:
            self.close()
            if error.is_about_server:
                raise
            if not str(error).endswith(_GONE):
                self._refused_until = monotonic() + _REFUSED_SECONDS
        return False

    def _begin(self) -> None:
        number = self._notifications.command("CLIENT", "ID")
        # The channel has no namespace.
        self._notifications.send([pack_command(("SUBSCRIBE", _CHANNEL))])
        self._notifications.receive()
        self._asking.command("CLIENT", "TRACKING", "ON", "REDIRECT", number)
        self._noted_on = self._asking.generation

    def _read_notifications(self) -> bool:
        """Read all notifications that have arrived. Returns True if a waiting set may have changed."""
        has_changed = False
        while True:
            message: Any = self._notifications.receive()
            changed = message[2] if type(message) is list and len(message) == 3 else None
            # After FLUSHALL, the notification names no keys.
            names = changed if type(changed) is list else [b""]
            if any(name.endswith(_LEASE) for name in names):
                self._is_proven = True
                self._refused_until = 0.0
            has_changed |= not all(name.endswith(_LEASE) for name in names)
            if not self._notifications.has_unread and not self._notifications.wait_readable(0):
                return has_changed
