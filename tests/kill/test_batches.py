"""Batches while workers, the processes that open them, and Redis are killed."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.extensions.batches import state
from tests.support.batch_night import Morning, Night
from tests.support.redis_server import RedisServer


@pytest.fixture
def server(new_redis_server: Callable[..., RedisServer]) -> Iterator[RedisServer]:
    """One that keeps every write, and this program's own."""
    one = new_redis_server(appendonly=True)
    program.reset()
    program.configure(redis_url=one.url, sidekiq_version="7")
    yield one
    sync_client.current().close()
    program.reset()


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    """A client that is patient."""
    with server.client(retry_on_error=[redis.ConnectionError], socket_timeout=30) as one:
        yield one


@pytest.fixture
def exits() -> Iterator[ExitStack]:
    """Ends all processes of a night."""
    with ExitStack() as one:
        yield one


def books_of(dark: Night, client: redis.Redis, report: Callable[[object], None]) -> Morning:
    """All is quiet; what an opener has left open is closed by hand."""
    morning = Morning(dark, client, sync_client.current().pool, within_seconds=120)
    report(
        f"batches={len(morning.books)} of which children={morning.children} jobs={morning.jobs} "
        f"kills={dict(dark.kills)} steps={dict(dark.steps)} left_open={morning.left_open} "
        f"dead={sum(one.dead for one in morning.books.values())} callbacks={morning.callbacks.total()}"
    )
    return morning


@pytest.mark.parametrize(
    ("batches", "jobs", "kills"),
    [(60, 100, 12), pytest.param(400, 330, 200, marks=[pytest.mark.long, pytest.mark.timeout(3600)])],
)
def test_each_callback_is_enqueued_once_and_the_counts_add_up(
    server: RedisServer,
    client: redis.Redis,
    exits: ExitStack,
    tmp_path: Path,
    report: Callable[[object], None],
    batches: int,
    jobs: int,
    kills: int,
) -> None:
    """Whoever is killed, and whenever."""
    dark = Night(server, exits, tmp_path, batches, jobs, seed=7)
    while dark.is_open or dark.kills.total() < kills:
        time.sleep(dark.draw.uniform(0.1, 0.6))
        if dark.kills.total() < kills:
            dark.kill_one(kills_redis=True)

    morning = books_of(dark, client, report)

    assert morning.wrong == []
    assert morning.lost == 0
    assert len(morning.books) - morning.children >= batches - dark.kills["opener"] - dark.kills["redis"]
    assert list(state.bids(sync_client.current().pool, running=True)) or morning.is_happy


def test_at_each_step_of_a_batch_s_way(
    server: RedisServer, client: redis.Redis, exits: ExitStack, tmp_path: Path, report: Callable[[object], None]
) -> None:
    """Opening, adding by a script and by a transaction, closing, ends, callbacks, and the ends that parents hear of."""
    dark = Night(server, exits, tmp_path, batches=10, jobs=820, seed=11, is_stepped=True)
    while dark.is_open or dark.kills.total() < 8:
        if not dark.is_open:
            dark.go_on()
        dark.replace_the_dead()
        time.sleep(0.05)
    dark.end()

    morning = books_of(dark, client, report)

    assert morning.wrong == []
    assert morning.lost == 0
