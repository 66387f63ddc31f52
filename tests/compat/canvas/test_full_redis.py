"""A Redis whose memory is full refuses what is sent in one step with other data, too."""

from collections.abc import Callable
from typing import Any

import pytest
from kombu.exceptions import OperationalError
from sidekiq_celery import Celery, chain, chord, group
from sidekiq_celery._send import atomic_batch

from tests.support.redis_server import RedisServer
from tests.support.stored_keys import all_keys


@pytest.mark.parametrize("name", ["chain", "group", "chord", "unique task"])
def test_a_workflow_is_refused(new_redis_server: Callable[..., RedisServer], name: str) -> None:
    """Nothing of it is stored, and the error says what to do."""
    server = new_redis_server()
    app = Celery("full", broker=server.url, backend=server.url)

    @app.task(name="full.step")
    def step(*numbers: int) -> None: ...

    @app.task(name="full.once", unique_for=60)
    def once() -> None: ...

    workflows = {
        "chain": chain(step.s(1), step.s(2)),
        "group": group(step.s(1), step.s(2)),
        "chord": chord([step.s(1), step.s(2)], step.s()),
        "unique task": once.s(),
    }
    step.delay(0)
    with server.client() as client:
        before = all_keys(client)
        client.config_set("maxmemory", 1)

    with pytest.raises(OperationalError, match="Let workers drain its queues or raise maxmemory"):
        workflows[name].apply_async()

    with server.client() as client:
        client.config_set("maxmemory", 0)
        assert all_keys(client) == before


def test_a_workflow_that_was_begun_is_stored_whole(
    new_redis_server: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large ones are sent in slices. If memory fills up between two of them, half a chord would never end."""
    server = new_redis_server()
    app = Celery("full", broker=server.url, backend=server.url)

    @app.task(name="full.step")
    def step(*numbers: int) -> None: ...

    monkeypatch.setattr(atomic_batch, "_MOST_WORDS", 4)
    write = atomic_batch._write
    with server.client() as client:

        def write_and_fill(*arguments: Any, **options: Any) -> None:
            write(*arguments, **options)
            client.config_set("maxmemory", 1)

        monkeypatch.setattr(atomic_batch, "_write", write_and_fill)

        chord([step.s(number) for number in range(3)], step.s()).apply_async()

        assert client.llen("queue:celery") == 3
