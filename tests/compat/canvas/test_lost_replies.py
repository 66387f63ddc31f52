"""A push whose reply is lost: the error says that the tasks may have been enqueued."""

import pytest
import redis
from kombu.exceptions import OperationalError
from sidekiq_celery import Celery, chain, chord, group
from sidekiq_celery._send.clients import client_of

from tests.support.cutting_proxy import CuttingProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually


@pytest.mark.parametrize("name", ["call", "chain", "group", "chord", "unique task"])
def test_the_error_says_that_tasks_may_have_been_enqueued(
    redis_server: RedisServer, redis_client: redis.Redis, name: str
) -> None:
    """They are not sent again, however they were put together."""
    with CuttingProxy(redis_server.port) as proxy:
        app = Celery("lost", broker=proxy.url, backend=proxy.url, set_as_current=False)

        @app.task(name="lost.step")
        def step(*numbers: int) -> None: ...

        @app.task(name="lost.once", unique_for=60)
        def once(name: str) -> None: ...

        sent = {
            "call": step.s(1),
            "chain": chain(step.s(1), step.s(2)),
            "group": group(step.s(1), step.s(2)),
            "chord": chord([step.s(1), step.s(2)], step.s()),
            "unique task": once.s("lost.mark"),
        }
        # So that Redis knows the scripts.
        step.delay(0)
        chain(step.s(1), step.s(2)).delay()
        once.delay("first")
        waiting = redis_client.llen("queue:celery")
        proxy.cut(b"lost.mark" if name == "unique task" else b"lost.step", "before reply")

        with pytest.raises(OperationalError, match=r"^jid .+ may have been enqueued: the connection broke") as caught:
            sent[name].apply_async()
        client_of(app).close()

    eventually(lambda: redis_client.llen("queue:celery") > waiting)
    assert str(caught.value).split()[1].strip(",").encode() in b"".join(redis_client.lrange("queue:celery", 0, -1))
