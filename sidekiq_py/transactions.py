"""
Pushes that wait for a database transaction: a job must not run before its rows are there, nor after a rollback.

    transactional_push(hook)        from now on every single push is handed to the hook
    with immediately(): ...         pushes in here do not wait

Adapters: `sidekiq_py.contrib.django`, `sidekiq_py.contrib.sqlalchemy`. As in Ruby the jid is known at once, bulk pushes
are never put off, and client middleware runs when the push is made. Unlike there, arguments are checked and copied at
the call. Source: Sidekiq 8.1.7, transaction_aware_client.rb.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from sidekiq_py import program

_is_immediate: ContextVar[bool] = ContextVar("sidekiq_push_immediately", default=False)


class CommitHook(Protocol):
    """Knows the transaction that is open where it is called."""

    def __call__(self, push: Callable[[], None], /) -> bool:
        """
        Have *push* called after the commit, and never after a rollback.

        Returns:
            False if no transaction is open: the job is then pushed at once.
        """


def transactional_push(hook: CommitHook | None) -> None:
    """Put single pushes off until the commit that *hook* knows of; None ends that."""
    if hook is None:
        program.push_after_commit(None)
        return
    known = hook

    def unless_immediate(push: Callable[[], None]) -> bool:
        return not _is_immediate.get() and known(push)

    program.push_after_commit(unless_immediate)


@contextmanager
def immediately() -> Iterator[None]:
    """Push at once within the block, whatever transaction is open: for jobs that must run even after a rollback."""
    token = _is_immediate.set(True)
    try:
        yield
    finally:
        _is_immediate.reset(token)
