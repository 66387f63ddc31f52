"""Nothing that was delivered is lost: a killed consumer, a forked one, a Redis that goes away."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from kombu import Connection, Consumer, Queue
from kombu.exceptions import OperationalError
from kombu.message import Message
from kombu.simple import SimpleQueue

from tests.compat.transport.celery_side import environment
from tests.compat.transport.conftest import Connect
from tests.compat.transport.publishing import publish
from tests.compat.transport.test_queues import consuming, drained, in_flight
from tests.support.child_process import tied_to_this_process
from tests.support.cutting_proxy import CuttingProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

SCRIPT = Path(__file__).with_name("consumer.py")

# eventlet does this to `select`.
UNDER_EVENTLET = """
import select, sys
del select.poll
import sidekiq_celery.transport
from kombu import Connection

with Connection(sys.argv[1]) as connection:
    queue = connection.SimpleQueue("plain")
    queue.put("hello")
    queue.get()
"""

Start = Callable[[str, str], "subprocess.Popen[str]"]


@pytest.fixture
def start_consumer(redis_url: str) -> Iterator[Start]:
    """Starts `consumer.py`; what is left of it is killed after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(url: str, what: str) -> "subprocess.Popen[str]":
        command = tied_to_this_process([sys.executable, "-W", "ignore", str(SCRIPT), url, what])
        process = subprocess.Popen(command, env=environment(redis_url), stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_what_a_killed_consumer_had_is_delivered_again(
    connection: Connection, sidekiq_url: str, redis_client: redis.Redis, start_consumer: Start
) -> None:
    """By whoever is alive, as soon as it is known to be dead: no time has to pass."""
    for task_id in ("one", "two"):
        publish(connection, "proj.add", task_id=task_id)
    killed = start_consumer(sidekiq_url, "hold")
    assert killed.stdout is not None
    assert killed.stdout.readline() == "holding\n"
    assert in_flight(redis_client) == 2

    killed.kill()
    killed.wait()

    _, messages = consuming(connection, "celery", prefetch_count=2)
    assert {message.headers["id"] for message in drained(connection, messages, 2)} == {"one", "two"}
    for message in messages:
        message.ack()
    assert in_flight(redis_client) == 0


def test_a_forked_child_leaves_its_parents_messages_alone(
    connection: Connection, sidekiq_url: str, redis_client: redis.Redis, start_consumer: Start
) -> None:
    """It closes what it has inherited, and has connections of its own; the parent goes on."""
    publish(connection, "proj.add", task_id="one")
    forking = start_consumer(sidekiq_url, "fork")
    assert forking.stdout is not None
    assert forking.stdout.readline() == "settled\n"
    assert redis_client.llen("queue:celery") == 0

    publish(connection, "proj.add", task_id="two")

    assert forking.wait(60) == 0
    assert (in_flight(redis_client), redis_client.llen("queue:celery")) == (0, 0)


def test_a_consumer_outlives_a_restart_of_redis(new_redis_server: Callable[..., RedisServer]) -> None:
    """It goes on waiting, and what it acknowledged meanwhile is not delivered again."""
    server = new_redis_server(appendonly=True)
    url = server.url.replace("redis://", "sidekiq://")
    with Connection(url, transport_options={"sidekiq_version": "6.4.1"}) as connection:
        publish(connection, "proj.add", task_id="before")
        _, messages = consuming(connection, "celery")
        drained(connection, messages, 1)

        server.kill()
        messages[0].ack()
        server.start()
        with Connection(url) as other:
            publish(other, "proj.add", task_id="after")

        assert [message.headers["id"] for message in drained(connection, messages, 2)] == ["before", "after"]
        messages[1].ack()
        with server.client() as client:
            eventually(lambda: in_flight(client) == 0)


def test_what_could_not_be_acknowledged_is_acknowledged_later_by_any_consumer(
    new_redis_server: Callable[..., RedisServer],
) -> None:
    """Not only by the one process that watches the registry: another's later messages would never be acknowledged."""
    server = new_redis_server(appendonly=True)
    url = server.url.replace("redis://", "sidekiq://")
    with (
        server.client() as client,
        Connection(url, transport_options={"sidekiq_version": "6.4.1", "lease_seconds": 6}) as connection,
    ):
        client.set("sidekiq_py:lookout", "another process")
        publish(connection, "proj.add")
        _, messages = consuming(connection, "celery", prefetch_count=2)
        drained(connection, messages, 1)
        # From here on nothing makes this process look into the registry.
        eventually(lambda: client.keys("sidekiq_py:newest:*"))
        publish(connection, "proj.add")
        drained(connection, messages, 2)

        server.kill()
        messages[0].ack()
        server.start()
        messages[1].ack()

        eventually(lambda: in_flight(client) == 0)


def test_an_end_that_redis_refuses_keeps_no_other_back(connect: Connect, redis_client: redis.Redis) -> None:
    """As where `dead` is of another type, or its user may not write there; it is told once Redis takes it."""
    connection = connect(lease_seconds=6)
    for number in range(3):
        publish(connection, "proj.add", [number])
    _, messages = consuming(connection, "celery")
    drained(connection, messages, 3)
    redis_client.set("dead", "oops")

    messages[0].reject()
    messages[1].ack()
    assert in_flight(redis_client) == 2
    dead_owner = "sidekiq_py:inflight:gone"
    redis_client.hset("sidekiq_py:owners", "gone", "{}")
    redis_client.hset(dead_owner, "1.0:other", messages[1].body)

    # Rounds of recovery go on beside it.
    eventually(lambda: redis_client.llen("queue:other") == 1)
    messages[2].ack()
    assert in_flight(redis_client) == 1
    redis_client.delete("dead")
    eventually(lambda: in_flight(redis_client) == 0)
    assert redis_client.zcard("dead") == 1


def test_a_message_that_is_acknowledged_while_redis_is_full_counts_as_processed(
    new_redis_server: Callable[..., RedisServer],
) -> None:
    """As a job of a worker does: once it is acknowledged, nobody can count it any more."""
    server = new_redis_server()
    with (
        server.client() as client,
        Connection(server.url.replace("redis://", "sidekiq://")) as connection,
    ):
        publish(connection, "proj.add")
        _, messages = consuming(connection, "celery")
        drained(connection, messages, 1)
        client.config_set("maxmemory", 1)

        messages[0].ack()

        assert in_flight(client) == 0
        assert client.get("stat:processed") == b"1"


def test_a_push_whose_reply_is_lost_is_not_made_again(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    """Nobody knows whether it was made: kombu must not take that for a connection to be tried once more."""
    with (
        CuttingProxy(redis_server.port) as proxy,
        Connection(proxy.url.replace("redis://", "sidekiq://")) as connection,
    ):
        publish(connection, "proj.add", task_id="one")
        proxy.cut(b"LPUSH", "before reply")

        with pytest.raises(OperationalError, match="may have been enqueued"):
            publish(connection, "proj.add", task_id="two", retry=True)

    assert redis_client.llen("queue:celery") == 2


def test_messages_survive_a_consumer_that_raises(connect: Connect, redis_client: redis.Redis) -> None:
    """What it had taken goes back when its connection is closed."""
    connection = connect()
    publish(connection, "proj.add")

    def refuse(message: Message) -> None:
        raise RuntimeError("no")

    def drain() -> None:
        while True:
            connection.drain_events(timeout=60)

    with Consumer(connection, [Queue("celery")], on_message=refuse), pytest.raises(RuntimeError):
        drain()
    connection.release()

    assert redis_client.llen("queue:celery") == 1


def test_a_program_under_eventlet_publishes_and_is_told_that_it_cannot_consume(
    connection: Connection, sidekiq_url: str, redis_url: str
) -> None:
    """A web server may run under eventlet. A worker there would wait for jobs without seeing them."""
    program = [sys.executable, "-W", "ignore", "-c", UNDER_EVENTLET, sidekiq_url]

    ran = subprocess.run(program, env=environment(redis_url), check=False, capture_output=True, text=True, timeout=60)

    assert "cannot consume under eventlet" in ran.stderr
    with SimpleQueue(connection, "plain") as queue:
        message = queue.get(timeout=60)
        message.ack()
        assert message.payload == "hello"
