"""A pool on the emptied server, a connection, and a worker."""

from collections.abc import Iterator

import pytest

from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.engine.embedded_worker import Worker


@pytest.fixture
def pool(redis_url: str) -> Iterator[Pool]:
    """Links to the test's own server."""
    links = Pool(RedisSettings(redis_url))
    yield links
    links.close()


@pytest.fixture
def link(pool: Pool) -> Iterator[Link]:
    """A connection of its own."""
    one = pool.new_link()
    yield one
    one.close()


@pytest.fixture
def worker(redis_url: str) -> Iterator[Worker]:
    """Not started yet."""
    one = Worker(redis_url)
    yield one
    one.stop()
