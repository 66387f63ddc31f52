"""Messages of the real Celery, an app of ours, and runs of the bridge."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from kombu import Queue
from sidekiq_celery import Celery
from sidekiq_celery.bridge.ledger import Ledger
from sidekiq_celery.bridge.run import Bridge, BridgePlan

from tests.support.missing_tools import skip_or_fail
from tests.support.rabbitmq_server import RabbitServer, is_installed
from tests.support.real_celery import python_with_celery
from tests.support.redis_server import RedisServer

RunBridge = Callable[..., Ledger]

_SIDE = Path(__file__).parent / "celery_side.py"
_SECONDS = 60


class Recorded(NamedTuple):
    """What the real Celery has sent: the id of each kind of call, and the lists with the messages."""

    ids: dict[str, str]
    lists: dict[bytes, list[bytes]]

    def replay(self, client: redis.Redis) -> None:
        """Put the messages into a Redis."""
        for key, messages in self.lists.items():
            client.rpush(key, *messages)


def celery_side(broker: str, results: str, what: str, *more: str) -> list[str]:
    """The command that runs the real Celery's side."""
    return [python_with_celery(), str(_SIDE), broker, results, what, *more]


def send_calls(broker: str, results: str, what: str = "calls") -> dict[str, str]:
    """Have the real Celery send a call of each kind, or other calls; their ids."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        celery_side(broker, results, what), capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    ids: dict[str, str] = json.loads(done.stdout)
    return ids


@pytest.fixture(scope="session")
def recorded() -> Recorded:
    """A call of each kind, sent once by the real Celery to a Redis of its own."""
    with RedisServer() as server, server.client() as client:
        ids = send_calls(server.url, server.url)
        names = [key for key in client.scan_iter() if client.type(key) == b"list"]
        return Recorded(ids, {name: client.lrange(name, 0, -1) for name in names})


@pytest.fixture(scope="package")
def rabbit() -> Iterator[RabbitServer]:
    """A RabbitMQ of these tests."""
    if not is_installed():
        skip_or_fail("no RabbitMQ here: apt-get install rabbitmq-server", switch="SIDEKIQ_PY_REQUIRE_RABBITMQ")
    with RabbitServer() as server:
        yield server


@pytest.fixture
def rabbit_url(rabbit: RabbitServer) -> str:
    """Its URL; the queues of earlier tests are gone."""
    import kombu

    with kombu.Connection(rabbit.url()) as connection:
        for queue in ("celery", "high"):
            connection.channel().queue_delete(queue)
    return rabbit.url()


@pytest.fixture
def other_redis(new_redis_server: Callable[..., RedisServer]) -> RedisServer:
    """A second server."""
    return new_redis_server()


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    """The app at Sidekiq's end, with the task that the other side calls; `app.noted` is what it was called with."""
    made = Celery("ours", broker=redis_url, set_as_current=False)
    made.conf.task_queues = [Queue("celery", queue_arguments={"x-max-priority": 10}), Queue("high")]

    noted: list[Any] = []

    @made.task(name="side.note", max_retries=3, shared=False)
    def note(*args: Any, **kwargs: Any) -> Any:
        noted.append(args[0])
        return args[0]

    made.finalize()
    made.noted = noted
    yield made
    made.close()


@pytest.fixture
def run_bridge(app: Celery) -> RunBridge:
    """`run_bridge(celery_url=…)`: one run until nothing is left; its account."""

    def run(app: Celery = app, **plan: Any) -> Ledger:
        bridge = Bridge(app, BridgePlan(**{"queues": ["celery", "high"], "is_once": True, **plan}))
        bridge.run()
        return bridge.ledger

    return run


def jobs(client: redis.Redis, queue: str = "celery") -> dict[str, dict[str, Any]]:
    """The jobs of one of Sidekiq's queues by their ids."""
    found = [json.loads(text) for text in client.lrange(f"queue:{queue}", 0, -1)]
    assert len({job["jid"] for job in found}) == len(found)
    return {job["jid"]: job for job in found}


def job_set(client: redis.Redis, name: str) -> dict[str, tuple[dict[str, Any], float]]:
    """The jobs of one of Sidekiq's sets by their ids, with their scores."""
    return {
        job["jid"]: (job, score)
        for job, score in ((json.loads(text), score) for text, score in client.zrange(name, 0, -1, withscores=True))
    }
