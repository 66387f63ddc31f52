"""A dashboard on an empty server, visitors, and jobs to look at."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.clock import now_seconds
from sidekiq_py.redis_access.connection.link import Link
from tests.web.browsing import Visitor


@pytest.fixture(autouse=True)
def _program(redis_url: str) -> Iterator[None]:
    """Configures the program to use the test's Redis."""
    program.reset()
    program.configure(redis_url=redis_url, sidekiq_version="8.1.7")
    yield
    sync_client.current().close()
    program.reset()


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock stands still, so that an age is shown as the one that was given, however slow the machine is."""
    now = time.time()
    monkeypatch.setattr("sidekiq_py.clock.time", SimpleNamespace(**{**vars(time), "time": lambda: now}))


@pytest.fixture
def visitor() -> Callable[..., Visitor]:
    """Makes a visitor with access from the host program: `visitor("viewer")`, `visitor("operator", may_edit=True)`."""

    def make(role: str = "operator", *, may_edit: bool = False, base: str = "", **settings: Any) -> Visitor:
        # Without the extra `web`, the tests of this folder are skipped.
        from sidekiq_py.web import User, asgi_app

        user = User("ada", role, may_edit)
        return Visitor(asgi_app(authorize=lambda _request: user, **settings), base=base)

    return make


@pytest.fixture
def operator(visitor: Callable[..., Visitor]) -> Visitor:
    """A visitor who may do everything."""
    return visitor("operator", may_edit=True)


@pytest.fixture
def viewer(visitor: Callable[..., Visitor]) -> Visitor:
    """A visitor who may only view."""
    return visitor("viewer")


@dataclass
class RoundTrips:
    """The number of round trips, and of the commands that they carried."""

    count: int = 0
    commands: int = 0


@pytest.fixture
def round_trips(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[RoundTrips]]:
    """Counts the round trips of this thread: `with round_trips() as made: …; made.count, made.commands`."""

    @contextmanager
    def counting() -> Iterator[RoundTrips]:
        made, here = RoundTrips(), threading.get_ident()

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def send(link: Link, *words: Any, **options: Any) -> Any:
                if threading.get_ident() == here:
                    made.count += 1
                    made.commands += len(words[0]) if real.__name__ == "batch" else 1
                return real(link, *words, **options)

            return send

        with monkeypatch.context() as patch:
            for name in ("command", "batch"):
                patch.setattr(Link, name, counted(getattr(Link, name)))
            yield made

    return counting


@pytest.fixture
def payload() -> Callable[..., bytes]:
    """Makes the bytes of a job: `payload("a1", klass="Boom", args=[1])`."""

    def make(jid: str = "a" * 24, *, klass: str = "HardJob", args: Any = (), **more: Any) -> bytes:
        job = {"retry": True, "queue": "default", "class": klass, "args": list(args), "jid": jid, "created_at": 1.5}
        return json.dumps({**job, **more}, separators=(",", ":"), ensure_ascii=False).encode()

    return make


@pytest.fixture
def failed(redis_client: redis.Redis, payload: Callable[..., bytes]) -> Callable[..., bytes]:
    """Puts a job into `retry` (or another set) and returns its bytes: `failed("a1", at=60, into="dead")`."""

    def put(jid: str = "a" * 24, *, at: float = 60, into: str = "retry", **about: Any) -> bytes:
        about.setdefault("error_class", "Boom")
        about.setdefault("error_message", "it broke")
        raw = payload(jid, **{"failed_at": 1.5, "retry_count": 0, **about})
        redis_client.zadd(into, {raw: now_seconds() + at})
        return raw

    return put
