"""A program as at its start, and a timetable whose clock is handed in."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.config import Config
from sidekiq_py.extensions.periodic import PeriodicJobs, loading
from sidekiq_py.extensions.periodic.declared import declarations
from sidekiq_py.extensions.periodic.firing import Firing
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.registry import registry

# 2030-01-01 12:00 UTC.
NOON = 1893499200


@pytest.fixture(autouse=True)
def _as_at_the_start(redis_url: str) -> Iterator[None]:
    """Nothing declared but what other modules hold; the extension as it is without settings."""
    program.reset()
    sidekiq.configure(redis_url=redis_url, sidekiq_version="7", extensions=[PeriodicJobs()])
    declarations.clear()
    declared = {definition.name for definition in registry}
    yield
    program.reset()
    declarations.clear()
    for definition in registry:
        if definition.name not in declared:
            registry.remove(definition.name)


@pytest.fixture
def pool() -> Pool:
    """The program's."""
    return sync_client.current().pool


@pytest.fixture
def start(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes what is declared, as a worker does when it starts; `at` is the moment that Redis's clock shows."""

    def write(at: float = NOON, *, cron_version: str | None = None, **config: Any) -> None:
        monkeypatch.setattr("sidekiq_py.extensions.periodic.store.redis_now", lambda pool: float(at))
        loading.load(pool, Config(**{"tag": "shop", **config}), cron_version=cron_version)

    return write


@pytest.fixture
def look(pool: Pool) -> Callable[[float], list[str]]:
    """What a maintaining process fires at a moment; the same process each time."""
    firing = Firing()
    number = iter(range(1_000_000))

    def at(moment: float) -> list[str]:
        return firing.look(pool, moment, b"%d" % next(number))

    return at


@pytest.fixture
def queued(redis_client: redis.Redis) -> Callable[[], list[bytes]]:
    """The jobs in `default`, the first to run first."""
    return lambda: list(reversed(redis_client.lrange("queue:default", 0, -1)))
