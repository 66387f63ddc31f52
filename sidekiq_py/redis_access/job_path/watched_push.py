"""
Pushes slices of many jobs, together with an extension's commands, in transactions instead of a script. A job of 250
bytes then costs Redis a third, because its bytes do not pass through Lua.

A transaction has no conditions. So they are checked before it, and it watches a key that changes with them:

1. A check, which is a script, tests everything that may rule out the push, and creates the key for a minute at most.
2. WATCH, followed by a look: does the key still exist, and is the queue's key a list?
3. MULTI, the extension's commands, the push, EXEC. If the key has changed or expired meanwhile, nothing is done.

The look for the next slice is sent together with the EXEC of the last one, so it costs no round trip. The check is only
repeated if the key is gone: with a check for each slice of short jobs, Redis needed 1.6 times the CPU time of a plain
push.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sidekiq_py.errors import RedisConnectionError, RedisError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.replies import of_transaction
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.wire import keys

LEAST_JOBS = 100
"""For smaller slices, a script costs no more."""


class Watched(NamedTuple):
    """
    What an extension writes along with a slice.

    Args:
        key: Exists while slices may be pushed. Each slice changes it, and anything that invalidates the result of
            *check* removes it.
        check: Replies 1 if slices may be pushed; *key* then exists for a while.
        commands: The commands that run before the push in the transaction. *check* makes sure, as far as it can, that
            they succeed; if one is refused anyway, the others still run.
    """

    key: str
    check: Command
    commands: tuple[Command, ...]


class WatchedPushes:
    """
    Consecutive pushes on one connection.

    Args:
        link: The connection; nothing else may use it meanwhile.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        # The generation of the socket, the key that is watched on it, and the queue.
        self._ready: tuple[int, str, str] | None = None
        self._has_watched = False
        self._is_refused = False
        self._pending: tuple[Watched, str, int] | None = None

    def may_push(self, watched: Watched, queue: str) -> bool:
        """
        True if the next slice, for this queue, can be pushed this way. Asks Redis unless the last slice already did.

        Raises:
            RedisConnectionError: Nothing was done.
            ReplyLostError: Nothing was done.
        """
        # A connection to a server that is no longer the primary is about to be dropped, so its WATCH does not count.
        self._link.drop_if_idle()
        if not self._is_ready(watched.key, queue) and not self._is_refused:
            self._has_watched = True
            _, checked, *looked = self._link.batch([("UNWATCH",), watched.check, *_look(watched.key, queue)])
            self._note_look(watched.key, queue, looked, checked)
        return self._is_ready(watched.key, queue)

    def send(self, watched: Watched, queue: str, push: Sequence[bytes]) -> None:
        """
        Send a slice that may be pushed.

        Args:
            push: The packed commands that push its jobs into *queue*.

        Raises:
            ReplyLostError: It may or may not have been done.
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
        Read the result of the last slice.

        Returns:
            False if nothing was done.

        Raises:
            ReplyLostError: It may or may not have been done.
            RedisReplyError: A command was refused in spite of the check; others were done.
        """
        assert self._pending is not None
        (watched, queue, count), self._pending = self._pending, None
        replies = self._link.receive_all(count + 5)  # including those to MULTI, EXEC and the look
        done, looked = replies[count + 1], replies[count + 2 :]
        self._note_look(watched.key, queue, looked)
        if not isinstance(done, list):
            return False
        of_transaction(done)
        return True

    def end(self) -> bool:
        """Unwatch, so that others can use the connection. Returns False if it must be closed instead."""
        if not self._has_watched:
            return True
        try:
            return self._link.batch([("UNWATCH",)]) == [b"OK"]
        except RedisError:
            return False

    def _is_ready(self, key: str, queue: str) -> bool:
        return self._link.is_open and self._ready == (self._link.generation, key, queue)

    def _note_look(self, key: str, queue: str, looked: Sequence[Any], checked: Any = 1) -> None:
        """Note the results of the look, and of the check before it."""
        # Usually this user lacks a permission, so the next slice would be refused, too.
        self._is_refused |= any(isinstance(reply, RedisReplyError) for reply in (checked, *looked))
        _, exists, kind = looked
        is_fine = checked == 1 and exists == 1 and kind in (b"list", b"none") and not self._is_refused
        self._ready = (self._link.generation, key, queue) if is_fine else None


def _look(key: str, queue: str) -> list[Command]:
    return [("WATCH", key), ("EXISTS", key), ("TYPE", keys.queue(queue))]
