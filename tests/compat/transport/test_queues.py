"""Queues as kombu's users know them: settling, sizes, priorities, times, fanout, names."""

import hashlib
import json
import re
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from queue import Empty
from typing import Any

import pytest
import redis
from kombu import Connection, Consumer, Exchange, Queue
from kombu.message import Message
from kombu.simple import SimpleQueue

from sidekiq_py.consumer import UnitOfWork, Waiters
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.extension.revoked import revoke
from tests.compat.transport.conftest import Connect, Jobs
from tests.compat.transport.publishing import publish
from tests.support.waiting import eventually


def drained(connection: Connection, messages: list[Message], count: int) -> list[Message]:
    """Drain events until so many messages have come."""

    def has_come() -> bool:
        try:
            connection.drain_events(timeout=0.5)
        except TimeoutError:
            pass
        return len(messages) >= count

    eventually(has_come)
    return messages


def in_flight(client: redis.Redis) -> int:
    """How many jobs are delivered and not settled."""
    return sum(client.hlen(key) for key in client.keys("*sidekiq_py:inflight:*"))


def consuming(connection: Connection, *queues: str, **options: Any) -> tuple[Consumer, list[Message]]:
    """A consumer that keeps what comes."""
    messages: list[Message] = []
    bound = [Queue(name) for name in queues]
    consumer = Consumer(connection, bound, on_message=messages.append, **options)
    consumer.consume()
    return consumer, messages


def test_a_message_stays_in_flight_until_it_is_acknowledged(connection: Connection, redis_client: redis.Redis) -> None:
    """Delivered is not done."""
    publish(connection, "proj.add")
    _, messages = consuming(connection, "celery")

    [message] = drained(connection, messages, 1)
    assert (in_flight(redis_client), redis_client.llen("queue:celery")) == (1, 0)
    message.ack()

    assert in_flight(redis_client) == 0
    assert redis_client.get("stat:processed") == b"1"


def test_a_requeued_message_goes_to_the_end_of_its_queue(connection: Connection, jobs: Jobs) -> None:
    """What a consumer wants later comes behind what waits, and is told to be delivered again."""
    publish(connection, "proj.add", task_id="first")
    publish(connection, "proj.add", task_id="second")
    [before, _] = jobs("celery")
    _, messages = consuming(connection, "celery")

    drained(connection, messages, 1)[0].requeue()

    assert jobs("celery")[-1] == {**before, "celery": {**before["celery"], "redelivered": True}}
    drained(connection, messages, 2)[1].ack()
    again = drained(connection, messages, 3)[2]
    assert [(each.headers["id"], each.delivery_info["redelivered"]) for each in messages] == [
        ("first", False),
        ("second", False),
        ("first", True),
    ]
    again.ack()


def test_any_other_message_that_is_requeued_says_so(connection: Connection) -> None:
    """Its body and headers are as they were."""
    with SimpleQueue(connection, "plain") as queue:
        queue.put({"a": 1}, headers={"b": 2})
        queue.get(timeout=60).requeue()

        message = queue.get(timeout=60)

        assert (message.payload, message.headers) == ({"a": 1}, {"b": 2})
        assert message.delivery_info["redelivered"] is True
        message.ack()


def test_a_rejected_task_is_kept_in_dead(connection: Connection, redis_client: redis.Redis) -> None:
    """A worker rejects what it does not know; a Ruby job must not vanish by that."""
    publish(connection, "proj.add", [1])
    _, messages = consuming(connection, "celery")

    drained(connection, messages, 1)[0].reject()

    [dead] = redis_client.zrange("dead", 0, -1)
    assert (json.loads(dead)["class"], json.loads(dead)["args"]) == ("proj.add", [1])
    assert in_flight(redis_client) == 0


def test_any_other_rejected_message_is_gone(connection: Connection, redis_client: redis.Redis) -> None:
    """As in AMQP, where nobody has declared a place for it."""
    with SimpleQueue(connection, "plain") as queue:
        queue.put(1)
        queue.get(timeout=60).reject()

    assert not redis_client.exists("dead")
    assert in_flight(redis_client) == 0


def test_a_closed_channel_gives_back_what_it_had(connect: Connect, redis_client: redis.Redis) -> None:
    """In the order in which it came."""
    connection = connect()
    for number in range(3):
        publish(connection, "proj.add", task_id=str(number))
    before = redis_client.lrange("queue:celery", 0, -1)
    _, messages = consuming(connection, "celery", prefetch_count=3)
    drained(connection, messages, 3)

    connection.release()

    assert redis_client.lrange("queue:celery", 0, -1) == before
    assert not redis_client.hlen("sidekiq_py:owners")


def test_recover_delivers_again(connection: Connection) -> None:
    """`basic_recover` is the channel's way to start anew."""
    publish(connection, "proj.add")
    consumer, messages = consuming(connection, "celery")
    drained(connection, messages, 1)

    consumer.recover(requeue=True)

    first, again = drained(connection, messages, 2)
    assert first.headers["id"] == again.headers["id"]
    again.ack()


def test_no_more_is_delivered_than_the_prefetch_count(connection: Connection, redis_client: redis.Redis) -> None:
    """What is beyond it stays in its queue, for others."""
    for number in range(5):
        publish(connection, "proj.add", task_id=str(number))
    _, messages = consuming(connection, "celery", prefetch_count=2)
    drained(connection, messages, 2)

    with pytest.raises(socket.timeout):
        connection.drain_events(timeout=0.2)

    assert (len(messages), redis_client.llen("queue:celery")) == (2, 3)
    messages[0].ack()
    assert [message.headers["id"] for message in drained(connection, messages, 3)] == ["0", "1", "2"]


def test_what_needs_no_acknowledgement_is_done_when_it_comes(connection: Connection, redis_client: redis.Redis) -> None:
    """With `no_ack` nothing stays in flight."""
    publish(connection, "proj.add")
    publish(connection, "proj.add")
    _, messages = consuming(connection, "celery", no_ack=True)

    drained(connection, messages, 1)
    assert Queue("celery").bind(connection.default_channel).get(no_ack=True) is not None

    assert in_flight(redis_client) == 0


def test_an_idle_consumer_wakes_up_at_once(connection: Connection, connect: Connect) -> None:
    """It waits on its queues, however many there are; nothing is polled for."""
    _, messages = consuming(connection, *[f"q{number}" for number in range(12)])
    with pytest.raises(socket.timeout):
        connection.drain_events(timeout=0.1)

    publish(connect(), "proj.add", queue="q3")
    publish(connect(), "proj.add", queue="q11")

    assert len(drained(connection, messages, 2)) == 2


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """How many seconds a consumer has waited at most, each time."""
    noted: list[float | None] = []
    collect = Waiters.collect

    def collect_and_note(waiters: Waiters, wake_fd: int | None, seconds: float | None) -> tuple[list[UnitOfWork], bool]:
        noted.append(seconds)
        return collect(waiters, wake_fd, seconds)

    monkeypatch.setattr(Waiters, "collect", collect_and_note)
    return noted


def test_a_queue_that_stays_paused_is_looked_at_twice_a_second(
    connection: Connection, redis_client: redis.Redis, pauses: list[float | None]
) -> None:
    """That may take days. A fetch every 50 ms cost Redis 200 commands a second for each consumer."""
    redis_client.sadd("paused", "celery")
    publish(connection, "proj.add")
    _, messages = consuming(connection, "celery")

    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=2)
    assert pauses
    assert set(pauses) == {0.5}

    redis_client.srem("paused", "celery")
    assert len(drained(connection, messages, 1)) == 1


def test_a_queue_with_a_suspect_is_soon_waited_on_again_while_another_is_paused(
    connection: Connection, redis_client: redis.Redis, pauses: list[float | None]
) -> None:
    """One that has to wait for another suspect goes back, and its queue is left alone for 50 ms, not half a second."""
    redis_client.sadd("paused", "other")
    for _ in range(2):
        publish(connection, "proj.add")
    for job in redis_client.lrange("queue:celery", 0, -1):
        redis_client.hset("sidekiq_py:suspects", hashlib.sha1(job).hexdigest(), f"1:{time.time():.0f}")

    _, messages = consuming(connection, "celery", "other")

    assert len(drained(connection, messages, 1)) == 1
    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=2)
    assert min(seconds for seconds in pauses if seconds is not None) <= 0.05
    messages[0].ack()
    drained(connection, messages, 2)[1].ack()


def test_sizes_purges_and_deletes_are_of_the_queue_in_redis(connection: Connection, redis_client: redis.Redis) -> None:
    """As Ruby's API sees it."""
    channel = connection.default_channel
    queue = Queue("celery").bind(channel)
    for _ in range(3):
        publish(connection, "proj.add")

    assert queue.queue_declare(passive=True).message_count == 3
    assert queue.purge() == 3
    assert redis_client.smembers("queues") == set()
    publish(connection, "proj.add")
    queue.declare()
    queue.delete()
    assert redis_client.keys("queue:*") == []


def test_a_passive_declare_asks_for_the_queue(connection: Connection) -> None:
    """Nobody has ever pushed to it."""
    with pytest.raises(connection.channel_errors, match="NOT_FOUND"):
        Queue("nowhere").bind(connection.default_channel).queue_declare(passive=True)


def test_a_cancelled_consumer_gets_nothing_more(connection: Connection, redis_client: redis.Redis) -> None:
    """And one that is added later gets its own."""
    consumer, messages = consuming(connection, "one")
    publish(connection, "proj.add", queue="one", task_id="a")
    drained(connection, messages, 1)[0].ack()

    consumer.cancel_by_queue("one")
    consumer.add_queue(Queue("two"))
    consumer.consume()
    publish(connection, "proj.add", queue="one", task_id="b")
    publish(connection, "proj.add", queue="two", task_id="c")

    assert drained(connection, messages, 2)[1].headers["id"] == "c"
    eventually(lambda: redis_client.llen("queue:one") == 1)


def test_a_time_leads_to_the_schedule(connection: Connection, redis_client: redis.Redis) -> None:
    """A message with an `eta` is held by nobody; Ruby's Scheduled page shows it."""
    at = datetime.now(UTC) + timedelta(hours=1)
    publish(connection, "proj.add", [1], eta=at)

    [(raw, score)] = redis_client.zrange("schedule", 0, -1, withscores=True)
    assert score == pytest.approx(at.timestamp(), abs=0.001)
    assert json.loads(raw)["celery"]["eta"] == at.isoformat()
    assert not redis_client.exists("queue:celery")


def test_a_consumer_moves_what_is_due(connection: Connection) -> None:
    """Where only workers of Celery run, theirs is the poller; the message still tells its time."""
    at = datetime.now(UTC) + timedelta(seconds=0.5)
    publish(connection, "proj.add", eta=at)
    _, messages = consuming(connection, "celery")

    [message] = drained(connection, messages, 1)

    assert time.time() >= at.timestamp()
    assert message.headers["eta"] == at.isoformat()
    message.ack()


def test_priorities_are_queues_in_order(connect: Connect, redis_client: redis.Redis) -> None:
    """With `queue_order_strategy` of `priority`, as with sidekiq_celery: 0 first, in the queue itself."""
    connection = connect(queue_order_strategy="priority")
    for priority in (9, 0, 4, 3):
        publish(connection, "proj.add", task_id=str(priority), priority=priority)

    assert redis_client.smembers("queues") == {b"celery", b"celery:3", b"celery:9"}
    _, messages = consuming(connection, "celery", prefetch_count=4)
    assert [message.headers["id"] for message in drained(connection, messages, 4)] == ["0", "4", "3", "9"]
    assert {message.delivery_info["routing_key"] for message in messages} == {"celery"}
    connection.default_channel.basic_recover(requeue=True)


def test_without_a_strategy_a_priority_is_only_told(connection: Connection, jobs: Jobs) -> None:
    """One queue, in the order of arrival."""
    publish(connection, "proj.add", task_id="a", priority=9)
    publish(connection, "proj.add", task_id="b", priority=0)

    assert [job["jid"] for job in jobs("celery")] == ["a", "b"]


@pytest.mark.parametrize("prefix", ["shop:", "shop"])
def test_a_key_prefix_is_a_namespace(connect: Connect, redis_client: redis.Redis, prefix: str) -> None:
    """Nothing is touched outside it."""
    connection = connect(global_keyprefix=prefix)
    publish(connection, "proj.add")
    _, messages = consuming(connection, "celery")

    drained(connection, messages, 1)[0].ack()

    assert {key for key in redis_client.keys("*") if not key.startswith(b"shop")} == set()
    assert redis_client.smembers("shop:queues") == {b"celery"}


def test_fanout_goes_by_pub_sub(connect: Connect) -> None:
    """As in kombu's own transport, under its channel's names: remote control and monitors are kombu's."""
    exchange = Exchange("celery.pidbox", type="fanout")
    connections = [connect(), connect()]
    received: list[list[Any]] = [[], []]
    for each, found in zip(connections, received, strict=True):
        queue = Queue(f"{id(found)}.celery.pidbox", exchange, auto_delete=True, durable=False)
        on_message: Callable[[Any, Message], None] = lambda body, message, found=found: found.append(body)  # noqa: E731
        Consumer(each, [queue], callbacks=[on_message], no_ack=True).consume()

    def all_have_come() -> bool:
        connect().Producer().publish({"method": "ping"}, exchange=exchange, declare=[exchange])
        for each in connections:
            try:
                each.drain_events(timeout=0.1)
            except TimeoutError:
                pass
        return all(received)

    eventually(all_have_come)
    assert received[0][0] == received[1][0] == {"method": "ping"}


def test_replies_are_lists_of_kombus(connect: Connect, redis_client: redis.Redis) -> None:
    """A queue made for one answer is none of Sidekiq's: who answers remote control looks for it as kombu does."""
    connection = connect()
    exchange = Exchange("reply.celery.pidbox", type="direct", delivery_mode="transient")
    queue = Queue("an-oid.reply.celery.pidbox", exchange, routing_key="an-oid", expires=10, durable=False)
    queue(connection.default_channel).declare()

    connect().Producer().publish({"celery@w": {"ok": "pong"}}, exchange=exchange, routing_key="an-oid")

    assert redis_client.llen("an-oid.reply.celery.pidbox") == 1
    assert not redis_client.exists("queues")
    messages: list[Message] = []
    Consumer(connection, [queue], on_message=messages.append, no_ack=True).consume()
    assert drained(connection, messages, 1)[0].payload == {"celery@w": {"ok": "pong"}}


def test_results_by_message_leave_no_queue_of_sidekiqs(connection: Connection, redis_client: redis.Redis) -> None:
    """Celery's `rpc://` has a queue for each client, named by a UUID."""
    oid = "1bd5eaae-90a0-4333-93cf-28d3a22ad56c"
    connection.Producer().publish({"status": "SUCCESS"}, routing_key=oid, correlation_id="x")

    assert not redis_client.exists("queues")
    message = Queue(oid).bind(connection.default_channel).get()
    assert message is not None
    assert message.payload == {"status": "SUCCESS"}
    message.ack()


@pytest.mark.parametrize("waits_first", [False, True])
def test_what_is_revoked_elsewhere_has_expired(connection: Connection, redis_url: str, waits_first: bool) -> None:
    """A program of ours has revoked it: a worker of Celery's does not run what has expired, and says REVOKED."""
    pool = Pool(RedisSettings(redis_url))
    revoke(pool, ["unwanted"], now=time.time(), kept_seconds=60)
    pool.close()
    _, messages = consuming(connection, "celery")
    if waits_first:
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.1)

    publish(connection, "proj.add", task_id="unwanted")

    [message] = drained(connection, messages, 1)
    assert message.headers["expires"].startswith("1970-")
    message.ack()


def test_an_empty_queue_is_waited_for_as_long_as_asked(connection: Connection) -> None:
    """`SimpleQueue.get` raises when its time is over."""
    with SimpleQueue(connection, "plain") as queue, pytest.raises(Empty):
        queue.get(timeout=0.05)


def test_a_batch_of_publishes_is_refused_by_name(connection: Connection) -> None:
    """kombu's batches are lists of its own commands; a producer sends one after the other then."""
    assert not getattr(connection.Producer(), "supports_batch_publish", False)


def test_the_url_is_shown_without_its_password(connect: Connect) -> None:
    """As kombu shows it in a worker's banner."""
    url = Connection("sidekiq://user:secret@somewhere:6379/2").as_uri()

    assert re.fullmatch(r"sidekiq://user:\*\*@somewhere:6379/2", url)
