"""
SQLAlchemy: makes pushes wait for the commit of the current session.

    transactional_push(scoped_session)          Flask-SQLAlchemy: transactional_push(db.session)

    transactional_push()                        without a registry, name the current session:
    with Session(engine) as session, using(session):
        ...

An `AsyncSession` will do as well.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from sidekiq_py import transactions
from sidekiq_py.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

_AnySession = TypeVar("_AnySession", bound="Session | AsyncSession")

_WAITING = "sidekiq_py.waiting_pushes"
_COMMITTED = "sidekiq_py.committed"

_using: ContextVar["Session | AsyncSession | None"] = ContextVar("sidekiq_sqlalchemy_session", default=None)


def transactional_push(
    current: "scoped_session[Any] | Callable[[], Session | AsyncSession | None] | None" = None,
) -> None:
    """
    From now on, push jobs only after the commit.

    Args:
        current: A `scoped_session` or `async_scoped_session`, or a function that returns the current session or None;
            by default the session of the innermost `using` block.
    """
    _listen()

    def after_commit(push: Callable[[], None]) -> bool:
        session = _session_of(current)
        if session is None or not session.in_transaction():
            return False
        innermost = session.get_nested_transaction() or session.get_transaction()
        session.info.setdefault(_WAITING, []).append((innermost, push))
        return True

    transactions.transactional_push(after_commit)


@contextmanager
def using(session: _AnySession) -> Iterator[_AnySession]:
    """
    Within the block, *session* is the current session of this thread or task.

    Raises:
        ConfigError: The block ends in another thread or task, as in a plain dependency of FastAPI. Pushes made
            elsewhere meanwhile did not wait.
    """
    token = _using.set(session)
    try:
        yield session
    finally:
        try:
            _using.reset(token)
        except ValueError:
            raise ConfigError(
                "using(session) ends in another thread or task than it began in, so jobs were pushed without waiting "
                "for the commit; in FastAPI, write it in a dependency that is an `async def`"
            ) from None


def _session_of(
    current: "scoped_session[Any] | Callable[[], Session | AsyncSession | None] | None",
) -> Session | None:
    registry = getattr(current, "registry", None)
    if registry is not None and not registry.has():
        return None  # calling it would create a session
    session = _using.get() if current is None else current()
    # The transactions of an AsyncSession are others than those that the events of its own session name.
    return session if session is None or isinstance(session, Session) else session.sync_session


def _listen() -> None:
    for name, listener in (
        ("after_commit", _after_commit),
        ("after_soft_rollback", _after_rollback),
        ("after_transaction_end", _after_end),
    ):
        if not event.contains(Session, name, listener):
            event.listen(Session, name, listener)


def _after_commit(session: Session) -> None:
    waiting = session.info.get(_WAITING)
    if not waiting:
        return
    savepoint = session.get_nested_transaction()
    if savepoint is None:
        session.info[_COMMITTED] = True
        return
    # Pushes made in the savepoint now depend on the transaction or savepoint around it.
    around = savepoint.parent
    session.info[_WAITING] = [(around if made_in is savepoint else made_in, push) for made_in, push in waiting]


def _after_rollback(session: Session, rolled_back: SessionTransaction) -> None:
    waiting = session.info.get(_WAITING)
    if waiting:
        session.info[_WAITING] = [entry for entry in waiting if entry[0] is not rolled_back]


def _after_end(session: Session, ended: SessionTransaction) -> None:
    if ended.parent is not None:
        return
    waiting = session.info.pop(_WAITING, [])
    if not session.info.pop(_COMMITTED, False):
        return
    failures: list[Exception] = []
    for _, push in waiting:
        try:
            push()
        except Exception as error:  # noqa: BLE001 - a push that fails must not prevent the others
            failures.append(error)
    if failures:
        raise failures[0]
