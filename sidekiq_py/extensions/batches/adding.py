"""
Adding jobs to a batch. The program that adds holds the batch open with a token, and numbers its jobs from blocks of
numbers that it reserves.

One script writes a slice of jobs, its place in the block and the batch's counters, and leaves a mark for the slice. So
if it is sent again after a lost reply, it does nothing.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, Token
from functools import partial
from typing import NamedTuple

from sidekiq_py.errors import SidekiqError
from sidekiq_py.extensions.batches import steps
from sidekiq_py.redis_access.connection.pool import Pool

# The size of a thread's first block. Each is twice as long as the one before, because the number of jobs is unknown.
_FIRST_BLOCK = 16
_LARGEST_BLOCK = 8192


class Place(NamedTuple):
    """
    The numbers of a slice.

    Args:
        block: The first number of the block that they belong to.
        first: The first number of the slice.
        used: How many numbers of the block are handed out, including these.
        mark: The mark that shows that the slice was written.
        previous: The mark of an earlier slice, which is no longer needed; empty if there is none.
        end: The number behind the block.
        sender: Who reserved the block.
        confirm: To be called once the slice will not be sent again, so that a later one removes its mark.
    """

    block: int
    first: int
    used: int
    mark: str
    previous: str
    end: int
    sender: str
    confirm: Callable[[], None]


class _Sender:
    """One thread or task of one process, whose slices come one after another."""

    __slots__ = ("confirmed", "end", "length", "name", "next", "start")

    def __init__(self) -> None:
        # After a failover that has lost a reservation, another sender may reserve the same block.
        self.name = os.urandom(6).hex()
        self.start = self.next = self.end = 0
        self.length = _FIRST_BLOCK
        # The marks of slices that will not be sent again. The last slice may not be among them: the generator of a bulk
        # push's arguments may push, too, while that slice still waits for its reply.
        self.confirmed: list[str] = []


class Adding:
    """
    One entered block of a batch.

    Args:
        token: The token that holds the batch open.
        number: The number of the member whose run adds; None for others.

    Attributes:
        is_tracked: True if the batch keeps a row for each job.
    """

    def __init__(self, pool: Pool, bid: str, token: str, number: int | None) -> None:
        self.pool = pool
        self.bid = bid
        self.token = token
        self.number = number
        self.is_tracked = False
        # Without a lock: a child that is forked while another thread holds it would wait for it forever.
        self._senders: dict[tuple[int, int], _Sender] = {}

    def __repr__(self) -> str:
        return f"<Adding to {self.bid} as {self.token}>"

    def place(self, count: int) -> Place:
        """
        Reserve numbers for a slice of *count* jobs.

        Raises:
            RedisError: No numbers could be reserved; push nothing.
            BatchError: The batch is gone.
        """
        here = _here()
        sender = self._senders.get(here)
        if sender is None:
            sender = self._senders[here] = _Sender()
        if sender.end - sender.next < count:
            length = max(count, sender.length)
            sender.length = min(2 * length, _LARGEST_BLOCK)
            sender.start = sender.next = int(steps.call(self.pool, "reserve", self.bid, length, sender.name))
            sender.end = sender.start + length
        first, sender.next = sender.next, sender.next + count
        used = sender.next - sender.start
        mark = f"{sender.start}+{used}:{sender.name}"
        previous = sender.confirmed.pop() if sender.confirmed else ""
        confirm = partial(sender.confirmed.append, mark)
        return Place(sender.start, first, used, mark, previous, sender.end, sender.name, confirm)

    def begin_anew(self) -> None:
        """Reserve other numbers for the next slice."""
        self._senders.clear()


class Deferred:
    """
    A push that waits for a commit. It keeps the batch open until it is made, or dropped by a rollback.

    Raises:
        BatchError: The batch takes no more jobs.
        RedisError: Redis cannot be reached.
    """

    def __init__(self, adds: Adding) -> None:
        self._adds = Adding(adds.pool, adds.bid, "commit:" + os.urandom(8).hex(), None)
        self._adds.is_tracked = adds.is_tracked
        self._is_made = False
        self._left: Token[Adding | None] | None = None
        words = (self._adds.token, "-", "a push that waits for a commit", "0", "", 0)
        steps.call(adds.pool, "open", adds.bid, *words)

    def __enter__(self) -> None:
        self._is_made = True
        self._left = _current.set(self._adds)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        assert self._left is not None
        _current.reset(self._left)
        # If the push fails, the batch stays open, because a job is missing.
        if kind is None:
            self._give_up()

    def __del__(self) -> None:
        if not self._is_made:
            with suppress(SidekiqError):
                self._give_up()

    def _give_up(self) -> None:
        steps.call(self._adds.pool, "leave", self._adds.bid, self._adds.token)


_current: ContextVar[Adding | None] = ContextVar("sidekiq_batch", default=None)


current = _current.get
"""The innermost block that this thread or task is in, or None."""
enter = _current.set
leave = _current.reset


def _here() -> tuple[int, int]:
    """The sender. A child forked in the block is another one; otherwise its slices would carry its parent's marks."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return os.getpid(), threading.get_ident() if task is None else id(task)
