"""
The short name of a thread, or of a slot on the event loop, in log lines and in the work hash.

Written in base 36 as Ruby writes its own, mixed with the process id so that a forked child's threads have other names
than their parent's. Source: Sidekiq 8.1.7, component.rb, `tid`.
"""

import os
import threading
from contextvars import ContextVar

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

# A context variable and not a thread-local: jobs on one event loop each have a name of their own, and a call that a job
# hands to a helper thread with its context (`asyncio.to_thread`) keeps the job's.
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
        ident: As `threading.get_ident` gives it.
        slot: Which of the jobs that share the thread, for an event loop; 0 is the thread itself. Idents are addresses
            that lie far apart, so slots of one thread never meet another thread.
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


os.register_at_fork(after_in_child=_forget)
