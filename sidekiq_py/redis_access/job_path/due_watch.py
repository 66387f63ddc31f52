"""
Hears when a job is put into `retry` or `schedule`, so that nobody has to look every 100 ms.

Redis tells one connection of changes to what another one has read: client-side caching (`CLIENT TRACKING`), from 6.0
on. A proxy may accept that and tell nothing. So the holder of the poller's lease also reads the lease, which it renews
each second: only while it hears of its own renewals is a silence taken for rest.
"""

from collections.abc import Sequence
from typing import Any

from sidekiq_py.clock import monotonic
from sidekiq_py.errors import RedisConnectionError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.connection.link import pack_command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path.promote import due_commands, noted_due
from sidekiq_py.wire import keys

_CHANNEL = b"__redis__:invalidate"
# A server that refuses may be replaced by another one; but each try stands in its log of refusals (`ACL LOG`).
_REFUSED_SECONDS = 3600.0
_LEASE = keys.POLLER_LEASE.encode()


class DueWatch:
    """
    Of one poller; used by its thread. Two connections while it is on.

    Args:
        pool: To the Redis whose sets are watched.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._asking = pool.new_link()
        self._hearing = pool.new_link()
        # On which socket Redis notes what is asked.
        self._noted_on = 0
        # A renewal of the lease was heard of since the last look.
        self._is_proven = False
        self._refused_until = 0.0

    def look(self, now: float, ahead_seconds: Sequence[float]) -> tuple[list[bool], bool]:
        """
        Whether any member of the waiting sets has its time so far ahead; and whether `wait` will hear of a change.

        Raises:
            RedisError: Redis is out of reach, or in trouble.
        """
        commands = due_commands(now, ahead_seconds)
        if self._is_on():
            try:
                is_proven, self._is_proven = self._is_proven, False
                *counts, lease = self._asking.batch([*commands, ("GET", keys.POLLER_LEASE)])
                # Redis may have closed the connection before, and it was opened again.
                is_heard = self._asking.generation == self._noted_on and not isinstance(lease, RedisReplyError)
                return noted_due(counts), is_heard and is_proven
            except (ReplyLostError, RedisConnectionError):
                self.close()
        return noted_due(self._pool.run(lambda link: link.batch(commands))), False

    def wait(self, seconds: float) -> bool:
        """Until a waiting set has changed, or `abandon` is called: True; False after so many seconds."""
        until = monotonic() + seconds
        while True:
            left = until - monotonic()
            if left <= 0:
                return False
            try:
                if self._hearing.wait_readable(left) and self._heard():
                    return True
            except (ReplyLostError, RedisConnectionError):
                self.close()
                return True

    def abandon(self) -> None:
        """End the present wait, and wait no more. From any thread."""
        self._hearing.abandon()

    def close(self) -> None:
        """Let go of the connections; the next look opens them again."""
        self._asking.close()
        self._hearing.close()
        self._is_proven = False

    def _is_on(self) -> bool:
        """Redis says what changes; it is asked to if need be."""
        if monotonic() < self._refused_until:
            return False
        try:
            self._asking.drop_if_idle()
            if self._asking.is_open and self._asking.generation == self._noted_on and self._hearing.is_open:
                if self._hearing.wait_readable(0):
                    self._heard()
                return True
            self.close()
            self._begin()
            return True
        except (ReplyLostError, RedisConnectionError):
            self.close()
        except RedisReplyError as error:
            self.close()
            if error.is_about_server:
                raise
            self._refused_until = monotonic() + _REFUSED_SECONDS
        return False

    def _begin(self) -> None:
        number = self._hearing.command("CLIENT", "ID")
        # The channel has no namespace.
        self._hearing.send([pack_command(("SUBSCRIBE", _CHANNEL))])
        self._hearing.receive()
        self._asking.command("CLIENT", "TRACKING", "ON", "REDIRECT", number)
        self._noted_on = self._asking.generation

    def _heard(self) -> bool:
        """Take in all that has come; true if a waiting set may have changed."""
        has_changed = False
        while True:
            message: Any = self._hearing.receive()
            changed = message[2] if type(message) is list and len(message) == 3 else None
            # After FLUSHALL it names no keys.
            names = changed if type(changed) is list else [b""]
            self._is_proven |= any(name.endswith(_LEASE) for name in names)
            has_changed |= not all(name.endswith(_LEASE) for name in names)
            if not self._hearing.has_unread and not self._hearing.wait_readable(0):
                return has_changed
