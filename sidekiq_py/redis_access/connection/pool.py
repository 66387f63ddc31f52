"""Links to one Redis: handed out, made anew when none is free, and started afresh in a forked child."""

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from sidekiq_py.errors import RedisConnectionError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.connection.connections import connection_maker
from sidekiq_py.redis_access.connection.link import SUSPECT_IDLE_SECONDS, Command, Link, NamespacedLink
from sidekiq_py.redis_access.connection.namespace import Namespace
from sidekiq_py.redis_access.connection.replies import FAILOVER_CODES, raise_first, readable
from sidekiq_py.redis_access.connection.settings import RedisSettings, place

T = TypeVar("T")


class Pool:
    """Links to one Redis. Safe in threads and across fork."""

    def __init__(self, settings: RedisSettings) -> None:
        self.settings = settings
        self.namespace = Namespace(settings.namespace) if settings.namespace else None
        self.key_prefix = settings.key_prefix
        """What stands before each key; for those alone who pack commands themselves."""
        self.push_heads: dict[str, bytes] = {}
        """By queue, what every push into it begins with; kept by `push.py`."""
        self._make = connection_maker(settings)
        self._free: deque[Link] = deque()
        self._links: weakref.WeakValueDictionary[int, Link] = weakref.WeakValueDictionary()
        self._pid = os.getpid()
        self.is_abandoned = False
        _pools.add(self)

    def __repr__(self) -> str:
        return f"<Pool {place(self.settings)} free={len(self._free)}>"

    def new_link(self, *, timeout_seconds: float | None = None) -> Link:
        """A link that the pool does not take back; *timeout_seconds* for a reply."""
        check_links()
        seconds = self.settings.socket_timeout_seconds if timeout_seconds is None else timeout_seconds
        # A host name is looked up at each connection anyway; sentinels have to be asked.
        find_again = self._make if "+sentinel://" in self.settings.url else None
        if self.namespace is None:
            link = Link(self._make(seconds), seconds, find_again)
        else:
            link = NamespacedLink(self._make(seconds), seconds, find_again, self.namespace)
        self._links[id(link)] = link
        if self.is_abandoned:
            link.abandon()
        return link

    def acquire(self) -> Link:
        """A free link, or a new one."""
        if self._pid != os.getpid():
            self._start_afresh()
        try:
            link = self._free.pop()
        except IndexError:
            return self.new_link()
        if time.monotonic() - link.released_at > SUSPECT_IDLE_SECONDS:
            link.drop_if_stale()
        return link

    def release(self, link: Link) -> None:
        """Give a link back."""
        if self._pid != os.getpid() or len(self._free) >= self.settings.pool_size:
            link.close()
            return
        link.released_at = time.monotonic()
        self._free.append(link)

    @contextmanager
    def link(self) -> Iterator[Link]:
        """A link for the length of a block."""
        link = self.acquire()
        try:
            yield link
        finally:
            self.release(link)

    def run(self, use: Callable[[Link], T], *, idempotent: bool = True) -> T:
        """
        Call *use* with a link; once more on a fresh one after a failover.

        Args:
            idempotent: Also once more after a lost reply. Leave it off for anything that must not happen twice.
        """
        link = self.acquire()
        try:
            try:
                return use(link)
            except RedisReplyError as error:
                if error.code not in FAILOVER_CODES:
                    raise
            except ReplyLostError:
                if not idempotent:
                    raise
            except RedisConnectionError:
                pass
            link.close()
            return use(link)
        finally:
            self.release(link)

    def command(self, *args: Any, idempotent: bool = True) -> Any:
        """One command on any link; repeated as `run` says."""
        return self.run(lambda link: link.command(*args), idempotent=idempotent)

    def batch(self, commands: Sequence[Command], *, idempotent: bool = True) -> list[Any]:
        """
        Several commands in one round trip; repeated as `run` says.

        Raises:
            RedisReplyError: The first error among the replies.
        """
        replies = self.run(lambda link: raise_first(link.batch(commands)), idempotent=idempotent)
        return replies

    def readable(self, commands: Sequence[Command]) -> list[Any]:
        """As `batch`, with None for a reply that is an error about its own key: the others are read."""
        return readable(self.run(lambda link: link.batch(commands))) if commands else []

    def abandon(self) -> None:
        """For a process that leaves: every call that waits for Redis, and every later one, fails at once."""
        self.is_abandoned = True
        for reference in self._links.valuerefs():
            link = reference()
            if link is not None:
                link.abandon()

    @property
    def join_seconds(self) -> float:
        """How long a thread that has been told to end may still be waiting for this Redis."""
        return 0.1 if self.is_abandoned else self.settings.socket_timeout_seconds + 1

    def close(self) -> None:
        """Close the free links."""
        while self._free:
            self._free.pop().close()

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._free = deque()
        for reference in self._links.valuerefs():
            link = reference()
            if link is not None:
                link.forget_inherited()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_refusal: Callable[[], Exception] | None = None


def refuse_links(refusal: Callable[[], Exception] | None) -> None:
    """From now on no pool of this process makes a link: *refusal* says why. None ends that. For tests of programs."""
    global _refusal
    _refusal = refusal
    for pool in list(_pools):
        pool.close()


def check_links() -> None:
    """Raise if links are refused."""
    if _refusal is not None:
        raise _refusal()


def _start_all_afresh() -> None:
    """A child that lives on would keep the sockets of a worker open after its death, and must never read from one."""
    for pool in list(_pools):
        pool._start_afresh()


os.register_at_fork(after_in_child=_start_all_afresh)
