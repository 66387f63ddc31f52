"""
Slices of many jobs with what an extension writes besides, by transactions instead of a script: of 250 bytes each, a job
costs Redis a third then, as its bytes pass through no Lua.

A transaction has no conditions. They are checked before it, and it watches a key that changes with them:

1. A check, which is a script, looks at everything that may keep slices out, and makes the key for a minute at most.
2. WATCH, and a look whether the key is still there, and whether the queue is one.
3. MULTI, what the extension writes, the push, EXEC: nothing is done where the key has changed or expired meanwhile.

The look for the next slice goes out behind the EXEC of the last one, so that it costs no round trip. The check comes
again only where the key has gone: with one for each slice of short jobs Redis needed 1.6 times the CPU time of a plain
push.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import redis

from sidekiq_py.errors import RedisConnectionError, RedisError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.replies import reply_error
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.wire import keys

LEAST_JOBS = 100
"""A slice of fewer costs no more by a script."""


class Watched(NamedTuple):
    """
    What an extension writes along with a slice.

    Args:
        key: There while slices may be pushed; changed by each of them, and removed by whoever changes what *check* has
            found.
        check: Replies 1 if slices may be pushed; *key* is there then, if only for a while.
        commands: What the transaction writes before the push. As far as *check* can see they succeed: where one is
            refused after all, the others are done.
    """

    key: str
    check: Command
    commands: tuple[Command, ...]


class WatchedPushes:
    """
    Pushes of one connection, one behind the other.

    Args:
        link: Nobody else uses it meanwhile.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        # On which socket which key is watched, and for which queue.
        self._ready: tuple[int, str, str] | None = None
        self._has_watched = False
        self._is_refused = False
        self._pending: tuple[Watched, str, int] | None = None

    def may_push(self, watched: Watched, queue: str) -> bool:
        """
        Whether the next slice, which goes into this queue, can go out so; asks, if the last one has not.

        Raises:
            RedisConnectionError: Nothing was done.
            ReplyLostError: Likewise.
        """
        # A connection that is about to be left, as its server is the primary no longer, watches nothing that counts.
        self._link.drop_if_idle()
        if not self._is_ready(watched.key, queue) and not self._is_refused:
            self._has_watched = True
            _, checked, *looked = self._link.batch([("UNWATCH",), watched.check, *_look(watched.key, queue)])
            self._heard(watched.key, queue, looked, checked)
        return self._is_ready(watched.key, queue)

    def send(self, watched: Watched, queue: str, push: Sequence[bytes]) -> None:
        """
        Send a slice that may be pushed.

        Args:
            push: The packed commands that push its jobs into *queue*.

        Raises:
            ReplyLostError: Nobody knows whether it was done.
        """
        self._ready = None
        self._pending = watched, queue, len(watched.commands) + len(push)
        before = self._link.pack([("MULTI",), *watched.commands])
        after = self._link.pack([("EXEC",), *_look(watched.key, queue)])
        try:
            self._link.send([b"".join([*before, *push, *after])])
        except RedisConnectionError as error:
            self._pending = None
            raise ReplyLostError(f"{error}; the slice may have been executed") from error

    def settle(self) -> bool:
        """
        Read what the last slice came to.

        Returns:
            False if nothing of it was done.

        Raises:
            ReplyLostError: Nobody knows whether it was done.
            RedisReplyError: A command was refused, in spite of the check; others were done.
        """
        assert self._pending is not None
        (watched, queue, count), self._pending = self._pending, None
        replies = self._link.receive_all(count + 5)  # with those to MULTI, EXEC and the look
        done, looked = replies[count + 1], replies[count + 2 :]
        self._heard(watched.key, queue, looked)
        if not isinstance(done, list):
            return False
        for reply in done:
            if isinstance(reply, redis.RedisError):
                raise reply_error(reply)
        return True

    def end(self) -> bool:
        """Watch nothing any more, as others will use the connection; False if it is to be closed instead."""
        if not self._has_watched:
            return True
        try:
            return self._link.batch([("UNWATCH",)]) == [b"OK"]
        except RedisError:
            return False

    def _is_ready(self, key: str, queue: str) -> bool:
        return self._link.is_open and self._ready == (self._link.generation, key, queue)

    def _heard(self, key: str, queue: str, looked: Sequence[Any], checked: Any = 1) -> None:
        """What came of the look, and of the check before it."""
        # By the rights of a user, as a rule: the next slice would fare no better.
        self._is_refused |= any(isinstance(reply, RedisReplyError) for reply in (checked, *looked))
        _, exists, kind = looked
        is_fine = checked == 1 and exists == 1 and kind in (b"list", b"none") and not self._is_refused
        self._ready = (self._link.generation, key, queue) if is_fine else None


def _look(key: str, queue: str) -> list[Command]:
    return [("WATCH", key), ("EXISTS", key), ("TYPE", keys.queue(queue))]
