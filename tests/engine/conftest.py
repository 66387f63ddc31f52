"""A pool on the emptied server."""

from collections.abc import Iterator

import pytest

from sidekiq_py.redis_access.pool import Pool, RedisSettings


@pytest.fixture
def pool(redis_url: str) -> Iterator[Pool]:
    """Links to the test's own server."""
    links = Pool(RedisSettings(redis_url))
    yield links
    links.close()
