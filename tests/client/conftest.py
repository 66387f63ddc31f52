"""A program as at its start for each test, and what stands in Redis after a push."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.registry import registry


@pytest.fixture(autouse=True)
def _as_at_the_start() -> Iterator[None]:
    """Nothing configured, and no job declared but those that other modules hold."""
    program.reset()
    declared = {definition.name for definition in registry}
    yield
    program.reset()
    for definition in registry:
        if definition.name not in declared:
            registry.remove(definition.name)


class Pushed:
    """What stands in Redis."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def queue(self, name: str = "default") -> list[bytes]:
        """A queue's jobs, the first to run first."""
        return list(reversed(self._client.lrange(f"queue:{name}", 0, -1)))

    def schedule(self) -> list[tuple[bytes, float]]:
        """The scheduled jobs with their scores."""
        return list(self._client.zrange("schedule", 0, -1, withscores=True))

    def queues(self) -> set[bytes]:
        """The known queues."""
        return set(self._client.smembers("queues"))


@pytest.fixture
def pushed(redis_client: redis.Redis) -> Pushed:
    """What stands in the Redis of this test."""
    return Pushed(redis_client)


@pytest.fixture
def configured(redis_url: str) -> str:
    """This program pushes to the Redis of this test, for Sidekiq 7; its URL."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="7")
    return redis_url


def masked(raw: bytes) -> bytes:
    """
    A payload without what differs from one push to the next: its jid and its times.

    How a time is spelled stays to be seen: float seconds, whole milliseconds.
    """
    raw = re.sub(rb'"jid":"[0-9a-f]{24}"', b'"jid":"JID"', raw)
    raw = re.sub(rb'"(created_at|enqueued_at)":\d{10}\.\d{1,7}(?=[,}])', rb'"\1":SECONDS', raw)
    return re.sub(rb'"(created_at|enqueued_at)":\d{13}(?=[,}])', rb'"\1":MILLISECONDS', raw)
