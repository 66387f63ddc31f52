"""
Slices of many jobs with what an extension writes besides, by transactions instead of a script: of 250 bytes each, a job
costs Redis a third then, as its bytes pass through no Lua.

A transaction has no conditions. They are looked at before it, and it watches a key that changes with them:

1. A check looks at everything that may keep the slice out, and sees to it that the key is there.
2. WATCH, and a look whether the key is still there.
3. MULTI, what the extension writes, the push, EXEC: nothing is done where the key has changed or expired meanwhile.

The check of the next slice goes out behind the EXEC of the last one, so that it costs no round trip.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import redis

from sidekiq_py.errors import RedisConnectionError, RedisError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.replies import reply_error
from sidekiq_py.redis_access.job_path.failed_jobs import Command

LEAST_JOBS = 100
"""A slice of fewer costs no more by a script."""


class Watched(NamedTuple):
    """
    What an extension writes along with a slice.

    Args:
        key: Changed by the transaction itself, and by whoever changes what *check* has found.
        check: Replies 1 if the slice may be pushed; *key* is there then, if only for a while.
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
        # On which socket which key is watched, after a check that has said yes.
        self._ready: tuple[int, str] | None = None
        self._has_watched = False
        self._is_refused = False
        self._pending: tuple[Watched, int] | None = None

    def may_push(self, watched: Watched) -> bool:
        """
        Whether the next slice can go out so; asks, if the last one has not.

        Raises:
            RedisConnectionError: Nothing was done.
            ReplyLostError: Likewise.
        """
        # A connection that is about to be left, as its server is the primary no longer, watches nothing that counts.
        self._link.drop_if_idle()
        if not self._is_ready(watched.key) and not self._is_refused:
            self._has_watched = True
            self._heard(watched.key, self._link.batch([("UNWATCH",), *_look(watched)])[1:])
        return self._is_ready(watched.key)

    def send(self, watched: Watched, push: Sequence[bytes]) -> None:
        """
        Send a slice that may be pushed.

        Args:
            push: The packed commands that push its jobs.

        Raises:
            ReplyLostError: Nobody knows whether it was done.
        """
        self._ready = None
        self._pending = watched, len(watched.commands) + len(push)
        before = self._link.pack([("MULTI",), *watched.commands])
        after = self._link.pack([("EXEC",), *_look(watched)])
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
        (watched, count), self._pending = self._pending, None
        replies = self._link.receive_all(count + 5)
        done, looked = replies[count + 1], replies[count + 2 :]
        self._heard(watched.key, looked)
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

    def _is_ready(self, key: str) -> bool:
        return self._link.is_open and self._ready == (self._link.generation, key)

    def _heard(self, key: str, replies: Sequence[Any]) -> None:
        """What came of the look: the check, WATCH, EXISTS."""
        check, _, exists = replies
        # By the rights of a user, as a rule: the next slice would fare no better.
        self._is_refused |= any(isinstance(reply, RedisReplyError) for reply in replies)
        is_fine = check == 1 and exists == 1 and not self._is_refused
        self._ready = (self._link.generation, key) if is_fine else None


def _look(watched: Watched) -> list[Command]:
    return [watched.check, ("WATCH", watched.key), ("EXISTS", watched.key)]
