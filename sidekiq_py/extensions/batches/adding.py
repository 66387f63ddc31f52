"""
Adding jobs to a batch: whoever does holds it open by a token, and numbers its jobs out of blocks that it reserves.

A slice of jobs, its place in the block and the batch's counters are written by one script, under a mark that the slice
leaves: sent again after a lost reply it does nothing.
"""

import asyncio
import os
import secrets
import threading
from contextlib import suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import NamedTuple

from sidekiq_py.errors import RedisReplyError, SidekiqError
from sidekiq_py.extensions.batches import steps
from sidekiq_py.extensions.batches.errors import of_refusal
from sidekiq_py.redis_access.connection.pool import Pool

# The first block of a thread; each is twice as long as the one before, as nobody knows how many jobs are to come.
_FIRST_BLOCK = 16
_LARGEST_BLOCK = 8192


class Place(NamedTuple):
    """
    The numbers of a slice.

    Args:
        block: The first number of the block that they are from.
        first: Theirs.
        used: How many of the block are members with them.
        mark: What says that the slice has come.
        previous: The mark of the slice before, which is needed no more; empty for none.
    """

    block: int
    first: int
    used: int
    mark: str
    previous: str


class _Sender:
    """One thread or task of one process: its slices come one after the other."""

    __slots__ = ("end", "length", "mark", "next", "start")

    def __init__(self) -> None:
        self.start = self.next = self.end = 0
        self.length = _FIRST_BLOCK
        self.mark = ""


class Adding:
    """
    One entering of a batch's block.

    Args:
        token: By which it holds the batch open.
        number: Of the member that adds from its run; None for others.

    Attributes:
        is_tracked: The batch keeps a row for each job.
    """

    def __init__(self, pool: Pool, bid: str, token: str, number: int | None) -> None:
        self.pool = pool
        self.bid = bid
        self.token = token
        self.number = number
        self.is_tracked = False
        self._senders: dict[tuple[int, int], _Sender] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Adding to {self.bid} as {self.token}>"

    def place(self, count: int) -> Place:
        """
        Numbers for a slice of so many jobs.

        Raises:
            RedisError: None could be reserved; nothing is to be pushed.
            BatchError: The batch is gone.
        """
        with self._lock:
            sender = self._senders.setdefault(_here(), _Sender())
        if sender.end - sender.next < count:
            length = max(count, sender.length)
            sender.length = min(2 * length, _LARGEST_BLOCK)
            try:
                sender.start = sender.next = int(steps.call(self.pool, "reserve", self.bid, length))
            except RedisReplyError as refusal:
                raise of_refusal(str(refusal)) or refusal from refusal
            sender.end = sender.start + length
        first, sender.next = sender.next, sender.next + count
        used = sender.next - sender.start
        previous, sender.mark = sender.mark, f"{sender.start}+{used}"
        return Place(sender.start, first, used, sender.mark, previous)


class Deferred:
    """
    A push that waits for a commit: it keeps the batch open until it is made, or given up by a rollback.

    Raises:
        BatchError: The batch takes no more jobs.
        RedisError: Redis is out of reach.
    """

    def __init__(self, adds: Adding) -> None:
        self._adds = Adding(adds.pool, adds.bid, "commit:" + secrets.token_hex(8), None)
        self._adds.is_tracked = adds.is_tracked
        self._is_made = False
        self._left: Token[Adding | None] | None = None
        words = (self._adds.token, "-", "a push that waits for a commit", "0", "", 0)
        steps.call(adds.pool, "open", adds.bid, *words)

    def __enter__(self) -> None:
        self._is_made = True
        self._left = _current.set(self._adds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._left is not None
        _current.reset(self._left)
        # One that could not be made leaves the batch open: a job is missing.
        if kind is None:
            self._give_up()

    def __del__(self) -> None:
        if not self._is_made:
            with suppress(SidekiqError):
                self._give_up()

    def _give_up(self) -> None:
        steps.call(self._adds.pool, "leave", self._adds.bid, self._adds.token)


_current: ContextVar[Adding | None] = ContextVar("sidekiq_batch", default=None)


def current() -> Adding | None:
    """The innermost block that this thread or task is in."""
    return _current.get()


enter = _current.set
leave = _current.reset


def _here() -> tuple[int, int]:
    """Who sends; a child forked in the block is somebody else, or its slices would bear the marks of its parent's."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return os.getpid(), threading.get_ident() if task is None else id(task)
