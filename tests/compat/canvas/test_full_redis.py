"""A Redis whose memory is full refuses what is sent in one step with other data, too."""

from collections.abc import Callable

import pytest
from kombu.exceptions import OperationalError
from sidekiq_celery import Celery, chain, chord, group

from tests.support.redis_server import RedisServer


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
        before = {key: client.dump(key) for key in client.keys("*")}
        client.config_set("maxmemory", 1)

    with pytest.raises(OperationalError, match="Let workers drain its queues or raise maxmemory"):
        workflows[name].apply_async()

    with server.client() as client:
        client.config_set("maxmemory", 0)
        assert {key: client.dump(key) for key in client.keys("*")} == before
