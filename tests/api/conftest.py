"""A pool on the emptied server, and payloads to put there."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sidekiq_py import program
from sidekiq_py.api import queue as queue_module
from sidekiq_py.client import sync_client
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings

T0 = 1_700_000_000.5


@pytest.fixture
def pool(redis_url: str) -> Iterator[Pool]:
    """Links to the test's own server, where the program's own Redis is too, with Sidekiq 6.4.1 at the other end."""
    program.reset()
    program.configure(redis_url=redis_url, sidekiq_version="6.4.1")
    links = Pool(RedisSettings(redis_url))
    yield links
    links.close()
    sync_client.current().close()
    program.reset()


@pytest.fixture
def payload() -> Callable[..., bytes]:
    """Makes the bytes of a job, spelled as Ruby does: `payload("jid", klass="Boom", retry_count=1)`."""

    def make(jid: str = "a" * 24, *, klass: str = "HardJob", args: Any = (), **more: Any) -> bytes:
        job = {"retry": True, "queue": "default", "class": klass, "args": list(args), "jid": jid, "created_at": T0}
        return json.dumps({**job, **more}, separators=(",", ":"), ensure_ascii=False).encode()

    return make


@pytest.fixture
def pages_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets a few jobs of a queue fill several pages."""

    def set_size(jobs: int) -> None:
        monkeypatch.setattr(queue_module, "_FIRST_PAGE_JOBS", jobs)
        monkeypatch.setattr(queue_module, "_PAGE_JOBS", jobs)

    return set_size
