"""An app, a worker that runs its tasks in this process, and its locks."""

from collections.abc import Callable

import pytest
import redis

from tests.compat.tasks.conftest import app, worker

__all__ = ("app", "holders", "worker")


@pytest.fixture
def holders(redis_client: redis.Redis) -> Callable[[], list[str]]:
    """The ids in all locks."""

    def read() -> list[str]:
        keys = redis_client.keys("sidekiq_py:unique:*")
        # One may have gone since.
        return sorted(holder.decode() for holder in redis_client.mget(keys) if holder) if keys else []

    return read
