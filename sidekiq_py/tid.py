"""
The short name of a thread, or of a slot on the event loop, as used in log lines and in the work hash.

It is written in base 36, as in Ruby, and mixed with the process id, so that the threads of a forked child have other
names than those of its parent. Source: Sidekiq 8.1.7, component.rb, `tid`.
"""

import os
import threading
from contextvars import ContextVar

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

# A context variable rather than a thread-local: each job on one event loop has its own name, and a call that a job
# passes to a helper thread with its context (`asyncio.to_thread`) keeps the job's name.
_current: ContextVar[str | None] = ContextVar("sidekiq_tid", default=None)


def base36(number: int) -> str:
    """*number*, 0 or more, as Ruby's `to_s(36)` writes it."""
    digits = ""
    while True:
        number, rest = divmod(number, 36)
        digits = _DIGITS[rest] + digits
        if not number:
            return digits


def of_thread(ident: int, *, slot: int = 0) -> str:
    """
    The name of a thread of this process.

    Args:
        ident: The thread's ident, from `threading.get_ident`.
        slot: The number of the job among those that share an event loop's thread; 0 is the thread itself. Idents are
            addresses far apart from each other, so a slot's name never collides with another thread's.
    """
    return base36((ident + slot) ^ os.getpid())


def current() -> str:
    """The name of the running thread or slot."""
    tid = _current.get()
    if tid is None:
        tid = of_thread(threading.get_ident())
        _current.set(tid)
    return tid


def take_slot(slot: int) -> str:
    """Name the running asyncio task, and what it starts, after its *slot* (1 or more); returns the name."""
    tid = of_thread(threading.get_ident(), slot=slot)
    _current.set(tid)
    return tid


def _forget() -> None:
    _current.set(None)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget)
