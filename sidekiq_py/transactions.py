"""
Pushes that wait for a database transaction, so that a job runs neither before its rows are visible nor after a
rollback.

    transactional_push(hook)        from now on, every single push goes to the hook
    with immediately(): ...         pushes in this block do not wait

Adapters: `sidekiq_py.contrib.django`, `sidekiq_py.contrib.sqlalchemy`. As in Ruby, the jid is known immediately, bulk
pushes never wait, and client middleware runs when the job is actually pushed. Unlike Ruby, we check and copy the
arguments at the call. Source: Sidekiq 8.1.7, transaction_aware_client.rb.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from sidekiq_py import program

_is_immediate: ContextVar[bool] = ContextVar("sidekiq_push_immediately", default=False)


class CommitHook(Protocol):
    """Knows which transaction is open at the call."""

    def __call__(self, push: Callable[[], None], /) -> bool:
        """
        Arrange for *push* to be called after the commit, and never after a rollback.

        Returns:
            False if no transaction is open; the job is then pushed immediately.
        """


def transactional_push(hook: CommitHook | None) -> None:
    """Delay single pushes until the commit that *hook* waits for. Pass None to stop that."""
    if hook is None:
        program.push_after_commit(None)
        return
    known = hook

    def unless_immediate(push: Callable[[], None]) -> bool:
        return not _is_immediate.get() and known(push)

    program.push_after_commit(unless_immediate)


@contextmanager
def immediately() -> Iterator[None]:
    """Push immediately in this block, even if a transaction is open: for jobs that must run even after a rollback."""
    token = _is_immediate.set(True)
    try:
        yield
    finally:
        _is_immediate.reset(token)
