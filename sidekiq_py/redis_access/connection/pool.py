"""A pool of links to one Redis: creates a link when none is free, and starts over in a forked child."""

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from sidekiq_py.errors import RedisConnectionError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.connection.connections import PrimaryFinder, connection_maker, shown_address
from sidekiq_py.redis_access.connection.link import SUSPECT_IDLE_SECONDS, Command, Link, NamespacedLink
from sidekiq_py.redis_access.connection.namespace import Namespace
from sidekiq_py.redis_access.connection.replies import FAILOVER_CODES, raise_first, readable, well_typed
from sidekiq_py.redis_access.connection.settings import RedisSettings, place

T = TypeVar("T")


class Pool:
    """Links to one Redis. Safe across threads and forks."""

    def __init__(self, settings: RedisSettings) -> None:
        self.settings = settings
        self.namespace = Namespace(settings.namespace) if settings.namespace else None
        self.key_prefix = settings.key_prefix
        """The prefix of each key. Only needed by code that packs commands itself."""
        self.push_heads: dict[str, bytes] = {}
        """For each queue, the bytes that every push to it starts with; maintained by `push.py`."""
        self._make = connection_maker(settings)
        self._free: deque[Link] = deque()
        self._links: weakref.WeakValueDictionary[int, Link] = weakref.WeakValueDictionary()
        self._pid = os.getpid()
        self._starting = threading.Lock()
        self.is_abandoned = False
        _pools.add(self)

    def __repr__(self) -> str:
        return f"<Pool {place(self.settings)} free={len(self._free)}>"

    @property
    def address(self) -> str:
        """Which Redis this is, for people; without a user or a password."""
        return shown_address(self.settings.url)

    def new_link(self, *, timeout_seconds: float | None = None) -> Link:
        """Create a link that does not go back to the pool, with *timeout_seconds* for a reply."""
        check_links()
        if self._pid != os.getpid():
            # Later, this link would be taken for one of the parent's.
            self._notice_fork()
        seconds = self.settings.socket_timeout_seconds if timeout_seconds is None else timeout_seconds
        # A host name is resolved for each connection anyway; sentinels have to be asked.
        primary = self._make if isinstance(self._make, PrimaryFinder) else None
        if self.namespace is None:
            link = Link(self._make(seconds), seconds, primary)
        else:
            link = NamespacedLink(self._make(seconds), seconds, primary, self.namespace)
        self._links[id(link)] = link
        if self.is_abandoned:
            link.abandon()
        return link

    def acquire(self) -> Link:
        """A free link, or a new one."""
        if self._pid != os.getpid():
            self._notice_fork()
        try:
            link = self._free.pop()
        except IndexError:
            return self.new_link()
        if time.monotonic() - link.released_at > SUSPECT_IDLE_SECONDS:
            link.drop_if_stale()
        return link

    def release(self, link: Link) -> None:
        """Return a link to the pool."""
        if self._pid != os.getpid() or len(self._free) >= self.settings.pool_size:
            link.close()
            return
        link.released_at = time.monotonic()
        self._free.append(link)

    @contextmanager
    def link(self) -> Iterator[Link]:
        """A context manager that acquires a link and releases it at the end."""
        link = self.acquire()
        try:
            yield link
        finally:
            self.release(link)

    def run(self, use: Callable[[Link], T], *, idempotent: bool = True) -> T:
        """
        Call *use* with a link. After a failover or a broken connection, call it once more on a fresh connection.

        Args:
            idempotent: Call it once more after a lost reply, too. Pass False for anything that must not happen twice.
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
        """Send one command on any link. See `run` for when it is repeated."""
        return self.run(lambda link: link.command(*args), idempotent=idempotent)

    def batch(self, commands: Sequence[Command], *, idempotent: bool = True) -> list[Any]:
        """
        Send several commands in one round trip. See `run` for when they are repeated.

        Raises:
            RedisReplyError: The first error among the replies.
        """
        return self.run(lambda link: raise_first(link.batch(commands)), idempotent=idempotent) if commands else []

    def replies(self, commands: Sequence[Command]) -> list[Any]:
        """Like `batch`, but with the errors among the replies."""
        return self.run(lambda link: link.batch(commands)) if commands else []

    def readable(self, commands: Sequence[Command]) -> list[Any]:
        """Like `batch`, but with None in place of an error that concerns only one key."""
        return readable(self.replies(commands))

    def well_typed(self, commands: Sequence[Command]) -> list[Any]:
        """Like `batch`, but with None in place of a key of the wrong type."""
        return well_typed(self.replies(commands))

    def abandon(self) -> None:
        """For a process that is shutting down: make all pending and later calls fail immediately."""
        self.is_abandoned = True
        for reference in self._links.valuerefs():
            link = reference()
            if link is not None:
                link.abandon()

    @property
    def join_seconds(self) -> float:
        """How many seconds a thread that was asked to end may still wait for this Redis."""
        return 0.1 if self.is_abandoned else self.settings.socket_timeout_seconds + 1

    def close(self) -> None:
        """Close the free links."""
        # Other threads may take links meanwhile.
        with suppress(IndexError):
            while True:
                self._free.pop().close()

    def _notice_fork(self) -> None:
        # uWSGI forks without telling Python, and its threads may all find that out at once.
        with self._starting:
            if self._pid != os.getpid():
                self._start_afresh()

    def _start_afresh(self) -> None:
        self._free = deque()
        for reference in self._links.valuerefs():
            link = reference()
            if link is not None:
                link.forget_inherited()
        # Last: other threads then use what is here.
        self._pid = os.getpid()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_refusal: Callable[[], Exception] | None = None


def refuse_links(refusal: Callable[[], Exception] | None) -> None:
    """
    Keep all pools of this process from making links, which then raise what *refusal* returns. None allows them again.
    For tests of programs.
    """
    global _refusal
    _refusal = refusal
    for pool in list(_pools):
        pool.close()


def check_links() -> None:
    """Raise if links are refused."""
    if _refusal is not None:
        raise _refusal()


def _start_all_afresh() -> None:
    """A child must never read from the sockets of its parent, and would keep them open after the parent's death."""
    for pool in list(_pools):
        pool._starting = threading.Lock()
        pool._start_afresh()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_start_all_afresh)
