"""Pushes that wait for a commit: the hook, Django, SQLAlchemy."""

import asyncio
import contextlib
import contextvars
import json
import unittest
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.errors import ArgumentTypeError, ConfigError, RedisConnectionError
from sidekiq_py.transactions import immediately, transactional_push
from tests.client.conftest import Pushed

pytestmark = pytest.mark.usefixtures("configured")


class Ledger:
    """A transaction of the test's own."""

    def __init__(self) -> None:
        self.is_open = True
        self.waiting: list[Callable[[], None]] = []

    def __call__(self, push: Callable[[], None]) -> bool:
        if self.is_open:
            self.waiting.append(push)
        return self.is_open

    def commit(self) -> None:
        """Make the pushes."""
        self.is_open = False
        for push in self.waiting:
            push()


@pytest.fixture
def ledger() -> Ledger:
    """The hook of this program."""
    ledger = Ledger()
    transactional_push(ledger)
    return ledger


def test_a_push_waits_for_the_commit_and_its_jid_does_not(ledger: Ledger, pushed: Pushed) -> None:
    """The jid that was returned is the job's."""
    jid = sidekiq.ruby_job("A").perform_async(1)
    assert pushed.queue() == []

    ledger.commit()

    assert json.loads(pushed.queue()[0])["jid"] == jid


def test_the_payload_is_that_of_an_immediate_push(ledger: Ledger, pushed: Pushed) -> None:
    """Key for key."""
    sidekiq.ruby_job("A", retry=3).set(tags=["x"]).perform_async(1)

    ledger.commit()

    assert list(json.loads(pushed.queue()[0])) == [
        "retry",
        "queue",
        "tags",
        "args",
        "class",
        "jid",
        "created_at",
        "enqueued_at",
    ]


def test_without_an_open_transaction_the_push_is_made_at_once(ledger: Ledger, pushed: Pushed) -> None:
    """The hook says so."""
    ledger.is_open = False

    sidekiq.ruby_job("A").perform_async(1)

    assert len(pushed.queue()) == 1


def test_arguments_are_checked_and_copied_at_the_call(ledger: Ledger, pushed: Pushed) -> None:
    """What happens to them until the commit is nobody's business."""
    value = [1]
    sidekiq.ruby_job("A").perform_async(value)
    value.append(2)

    with pytest.raises(ArgumentTypeError, match=r"args\[0\]"):
        sidekiq.ruby_job("A").perform_async({1})
    ledger.commit()

    assert json.loads(pushed.queue()[0])["args"] == [[1]]


def test_scheduled_jobs_wait_and_bulk_pushes_do_not(ledger: Ledger, pushed: Pushed) -> None:
    """As in Ruby."""
    sidekiq.ruby_job("A").perform_at(4e9)
    sidekiq.ruby_job("A").perform_bulk([[1]])

    assert (len(pushed.queue()), pushed.schedule()) == (1, [])
    ledger.commit()
    assert len(pushed.schedule()) == 1


def test_an_awaited_push_waits_as_well(ledger: Ledger, pushed: Pushed) -> None:
    """For the same commit."""
    jid = asyncio.run(sidekiq.ruby_job("A").aperform_async(1))

    ledger.commit()

    assert json.loads(pushed.queue()[0])["jid"] == jid


def test_a_push_can_be_made_at_once_all_the_same(ledger: Ledger, pushed: Pushed) -> None:
    """Within the block."""
    with immediately():
        sidekiq.ruby_job("A").perform_async(1)

    assert len(pushed.queue()) == 1


def test_a_hook_can_be_taken_away(ledger: Ledger, pushed: Pushed) -> None:
    """Then every push is made at once."""
    transactional_push(None)

    sidekiq.ruby_job("A").perform_async(1)

    assert len(pushed.queue()) == 1


@pytest.fixture
def atomic() -> Iterator[Callable[[], Any]]:
    """Django's `transaction.atomic` on a database in memory."""
    django = pytest.importorskip("django")
    from django.conf import settings

    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
        django.setup()
    from django.db import connections, transaction

    from sidekiq_py.contrib.django import transactional_push as with_django

    with_django()
    yield transaction.atomic
    connections.close_all()


def test_django_s_commit_makes_the_push(atomic: Callable[[], Any], pushed: Pushed) -> None:
    """That of the outermost block."""
    with atomic():
        with atomic():
            sidekiq.ruby_job("A").perform_async(1)
        assert pushed.queue() == []

    assert len(pushed.queue()) == 1


def test_django_s_rollback_drops_the_push(atomic: Callable[[], Any], pushed: Pushed) -> None:
    """Also that of a savepoint alone."""
    with atomic():
        sidekiq.ruby_job("A").perform_async("kept")
        with contextlib.suppress(LookupError), atomic():
            sidekiq.ruby_job("A").perform_async("dropped")
            raise LookupError

    assert [json.loads(raw)["args"] for raw in pushed.queue()] == [["kept"]]


def test_outside_of_django_s_blocks_the_push_is_made_at_once(atomic: Callable[[], Any], pushed: Pushed) -> None:
    """There is nothing to wait for."""
    sidekiq.ruby_job("A").perform_async(1)

    assert len(pushed.queue()) == 1


def test_django_s_test_case_pushes_what_its_captured_callbacks_would(atomic: Callable[[], Any], pushed: Pushed) -> None:
    """Its transaction is never committed, so all other pushes wait for ever: as docs/testing.md says."""
    from django.test import TestCase

    class Case(TestCase):
        def runTest(self) -> None:
            sidekiq.ruby_job("A").perform_async("waits for a commit that never comes")
            with self.captureOnCommitCallbacks(execute=True):
                sidekiq.ruby_job("A").perform_async("captured")

    outcome = unittest.TestResult()
    unittest.TestSuite([Case()]).run(outcome)

    assert outcome.wasSuccessful(), outcome.errors
    assert [json.loads(raw)["args"] for raw in pushed.queue()] == [["captured"]]


@pytest.fixture
def session() -> Iterator[Any]:
    """A session on a database in memory, which is the current one."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.orm import Session

    from sidekiq_py.contrib import sqlalchemy as adapter

    adapter.transactional_push()
    engine = sqlalchemy.create_engine("sqlite://")
    with Session(engine) as session, adapter.using(session):
        yield session
    engine.dispose()


def work(session: Any) -> None:
    """Begin a transaction as programs do: by using the session."""
    from sqlalchemy import text

    session.execute(text("select 1"))


def test_a_session_s_commit_makes_the_push(session: Any, pushed: Pushed) -> None:
    """And the next transaction begins with none."""
    work(session)
    sidekiq.ruby_job("A").perform_async(1)
    assert pushed.queue() == []

    session.commit()
    work(session)
    session.commit()

    assert len(pushed.queue()) == 1


def test_a_session_s_rollback_drops_the_push(session: Any, pushed: Pushed) -> None:
    """Also if a commit follows later."""
    work(session)
    sidekiq.ruby_job("A").perform_async(1)

    session.rollback()
    work(session)
    session.commit()

    assert pushed.queue() == []


def test_a_savepoint_s_pushes_stand_or_fall_with_it(session: Any, pushed: Pushed) -> None:
    """And, once it is released, with what is around it."""
    work(session)
    sidekiq.ruby_job("A").perform_async("outer")
    with session.begin_nested():
        sidekiq.ruby_job("A").perform_async("released")
    savepoint = session.begin_nested()
    sidekiq.ruby_job("A").perform_async("dropped")
    savepoint.rollback()
    assert pushed.queue() == []

    session.commit()

    assert [json.loads(raw)["args"] for raw in pushed.queue()] == [["outer"], ["released"]]


def test_a_released_savepoint_falls_with_what_is_around_it(session: Any, pushed: Pushed) -> None:
    """Nothing of the transaction was kept."""
    work(session)
    with session.begin_nested():
        sidekiq.ruby_job("A").perform_async("released")

    session.rollback()
    work(session)
    session.commit()

    assert pushed.queue() == []


def test_a_flush_within_the_transaction_is_no_end_of_it(session: Any, pushed: Pushed) -> None:
    """It opens and closes a transaction of its own inside."""
    work(session)
    sidekiq.ruby_job("A").perform_async(1)

    session.flush()

    assert pushed.queue() == []
    session.commit()
    assert len(pushed.queue()) == 1


def test_a_session_without_a_transaction_has_nothing_to_wait_for(session: Any, pushed: Pushed) -> None:
    """It begins one when it is used."""
    sidekiq.ruby_job("A").perform_async(1)

    assert len(pushed.queue()) == 1


def test_a_block_that_does_not_reach_the_endpoint_says_what_to_write(session: Any) -> None:
    """
    FastAPI begins and ends a plain dependency in threads with copies of the context, so the endpoint does not see the
    session: its pushes would not wait, and would be there after a rollback.
    """
    from sidekiq_py.contrib import sqlalchemy as adapter

    block = adapter.using(session)
    contextvars.copy_context().run(block.__enter__)

    with pytest.raises(ConfigError, match="in a dependency that is an `async def`"):
        contextvars.copy_context().run(block.__exit__, None, None, None)


@pytest.mark.parametrize(("end", "pushes"), [("commit", 1), ("rollback", 0)])
def test_a_session_of_fastapi_is_named_in_an_async_dependency(
    session: Any, pushed: Pushed, end: str, pushes: int
) -> None:
    """As the page on enqueueing says; the session itself may come from a plain dependency, and so may the endpoint."""
    fastapi = pytest.importorskip("fastapi")
    from sidekiq_py.contrib import sqlalchemy as adapter

    def get_session() -> Iterator[Any]:
        yield session

    async def session_of_request(own: Annotated[Any, fastapi.Depends(get_session)]) -> AsyncIterator[Any]:
        with adapter.using(own):
            yield own

    app = fastapi.FastAPI()
    before: list[int] = []

    @app.get("/")
    def endpoint(own: Annotated[Any, fastapi.Depends(session_of_request)]) -> None:
        own.begin()
        sidekiq.ruby_job("A").perform_async(1)
        before.append(len(pushed.queue()))
        getattr(own, end)()

    assert asyncio.run(status_of_get(app)) == 200
    assert (before, len(pushed.queue())) == ([0], pushes)


async def status_of_get(app: Any) -> int:
    """The status of the answer to GET /."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    await app(scope, receive, send)
    return int(sent[0]["status"])


def test_a_registry_of_sessions_knows_the_current_one(pushed: Pushed) -> None:
    """Without a session in it, none is made."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.orm import scoped_session, sessionmaker

    from sidekiq_py.contrib import sqlalchemy as adapter

    engine = sqlalchemy.create_engine("sqlite://")
    sessions = scoped_session(sessionmaker(engine))
    adapter.transactional_push(sessions)
    sidekiq.ruby_job("A").perform_async("at once")
    assert not sessions.registry.has()

    work(sessions())
    sidekiq.ruby_job("A").perform_async("later")
    before = len(pushed.queue())
    sessions.commit()

    assert (before, len(pushed.queue())) == (1, 2)
    sessions.remove()
    engine.dispose()


def test_an_async_registry_of_sessions_is_asked_before_it_makes_one(pushed: Pushed) -> None:
    """One that is made for a push alone would never be removed."""
    pytest.importorskip("sqlalchemy")
    from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker

    from sidekiq_py.contrib import sqlalchemy as adapter

    sessions = async_scoped_session(async_sessionmaker(), scopefunc=lambda: 1)
    adapter.transactional_push(sessions)
    sidekiq.ruby_job("A").perform_async()

    assert (len(pushed.queue()), sessions.registry.has()) == (1, False)


def test_an_async_session_s_pushes_stand_or_fall_with_its_savepoints(pushed: Pushed) -> None:
    """As those of the session within it."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.ext.asyncio import AsyncSession

    from sidekiq_py.contrib import sqlalchemy as adapter

    async def committed_after_a_rolled_back_savepoint() -> None:
        session = AsyncSession()
        # There is no asynchronous driver here; nothing below waits for one.
        session.sync_session.bind = engine
        async with session, session.begin():
            with adapter.using(session):
                await session.run_sync(work)
                await sidekiq.ruby_job("A").aperform_async("kept")
                savepoint = await session.begin_nested()
                await sidekiq.ruby_job("A").aperform_async("dropped")
                await savepoint.rollback()
            assert pushed.queue() == []

    engine = sqlalchemy.create_engine("sqlite://")
    adapter.transactional_push()
    asyncio.run(committed_after_a_rolled_back_savepoint())

    engine.dispose()
    assert [json.loads(raw)["args"] for raw in pushed.queue()] == [["kept"]]


def test_a_push_that_fails_after_the_commit_does_not_take_the_others_with_it(session: Any, pushed: Pushed) -> None:
    """The first error is raised in the end; the rows are committed all the same."""
    work(session)
    sidekiq.ruby_job("A").set(pool="redis://127.0.0.1:1/0").perform_async("lost")
    sidekiq.ruby_job("A").perform_async("made")

    with pytest.raises(RedisConnectionError):
        session.commit()

    assert len(pushed.queue()) == 1
