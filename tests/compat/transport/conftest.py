"""kombu's connections to the shared Redis, by our transport."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis
import sidekiq_celery.transport  # noqa: F401 - registers the schemes
from kombu import Connection

from tests.support.queued_jobs import queued_jobs

Connect = Callable[..., Connection]
Jobs = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def sidekiq_url(redis_url: str) -> str:
    """The shared Redis as kombu is told of it."""
    return redis_url.replace("redis://", "sidekiq://")


@pytest.fixture
def connect(sidekiq_url: str) -> Iterator[Connect]:
    """Opens connections, with the release 6.4.1 pinned; `connect(global_keyprefix=…)` gives transport options."""
    with ExitStack() as opened:

        def make(url: str = sidekiq_url, **options: Any) -> Connection:
            return opened.enter_context(Connection(url, transport_options={"sidekiq_version": "6.4.1", **options}))

        yield make


@pytest.fixture
def connection(connect: Connect) -> Connection:
    """One connection."""
    return connect()


@pytest.fixture
def jobs(redis_client: redis.Redis) -> Jobs:
    """The payloads of a queue, next to run first."""
    return lambda queue: queued_jobs(redis_client, queue)
