"""What stands in Redis for a message of kombu's, and what a consumer gets for a payload."""

import datetime
import json
import sys
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
import redis
from kombu import Connection, Exchange, Queue
from kombu.message import Message
from kombu.simple import SimpleQueue
from sidekiq_celery import Celery
from sidekiq_celery._send.clients import client_of
from sidekiq_celery._wire.chord_part import part
from sidekiq_celery._wire.payload import arguments_of, with_embedded

from sidekiq_py.client.sync_client import Client
from tests.compat.tasks.worker import TaskWorker
from tests.compat.transport.conftest import Jobs
from tests.compat.transport.publishing import publish
from tests.support.waiting import eventually

SIGNATURE = {"task": "proj.next", "args": [2], "kwargs": {}, "options": {}, "subtask_type": None, "immutable": False}


def received(connection: Connection, queue: str = "celery") -> Message:
    """The next message of a queue, acknowledged."""
    message = Queue(queue).bind(connection.default_channel).get(accept=["json", "yaml", "pickle", "msgpack"])
    assert message is not None, f"nothing waits in {queue}"
    message.ack()
    return message


def test_a_task_is_pushed_as_sidekiq_celery_pushes_it(connection: Connection, jobs: Jobs, redis_url: str) -> None:
    """A Ruby worker, and one of ours, cannot tell which of the two programs has sent a call."""
    app = Celery("ours", broker=redis_url, set_as_current=False, fixups=[])
    app.send_task("proj.add", [1, "é"], {"to": None}, task_id="an-id", priority=3, shadow="other", expires=60)
    [ours] = jobs("celery")
    client_of(app).close()

    publish(connection, "proj.add", [1, "é"], {"to": None}, priority=3, shadow="other", expires=60)

    _, theirs = jobs("celery")
    for payload in (ours, theirs):
        del payload["created_at"], payload["enqueued_at"], payload["celery"]["expires"]
        for text in ("origin", "argsrepr", "kwargsrepr", "ignore_result"):
            payload["celery"].pop(text, None)
    assert theirs == ours
    assert (theirs["class"], theirs["jid"], theirs["args"]) == ("proj.add", "an-id", [1, "é", {"to": None}])


def test_the_bytes_follow_the_pinned_release(connect: Any, redis_client: redis.Redis) -> None:
    """Sidekiq 8 stores times as whole milliseconds."""
    publish(connect(sidekiq_version="8.0.0"), "proj.add", [1])

    [raw] = redis_client.lrange("queue:celery", 0, -1)
    assert isinstance(json.loads(raw)["created_at"], int)
    assert b'"class":"proj.add"' in raw


def test_all_that_celery_sends_comes_back(connection: Connection) -> None:
    """Callbacks, chain, chord, stamps, limits, own headers and the rest survive the way through a payload."""
    told: dict[str, Any] = {
        "callbacks": [SIGNATURE],
        "errbacks": [SIGNATURE],
        "chain": [SIGNATURE, SIGNATURE],
        "chord": SIGNATURE,
    }
    publish(
        connection,
        "proj.add",
        [datetime.datetime(2026, 1, 2, 3), Decimal("1.5")],
        {"b": b"\xff"},
        **told,
        group_id="g",
        group_index=0,
        retries=2,
        time_limit=9,
        root_id="r",
        parent_id="p",
        shadow="s",
        ignore_result=True,
        stamped_headers=["by"],
        by=["me"],
        reply_to="1bd5eaae-90a0-4333-93cf-28d3a22ad56c",
        priority=4,
        more_headers={"tenant": "acme"},
    )

    message = received(connection)

    assert message.payload == [[datetime.datetime(2026, 1, 2, 3), Decimal("1.5")], {"b": b"\xff"}, told]
    headers = message.headers
    wanted = {
        "lang": "py", "task": "proj.add", "id": "an-id", "group": "g", "group_index": 0, "retries": 2,
        "timelimit": [9, None], "root_id": "r", "parent_id": "p", "shadow": "s", "ignore_result": True,
        "stamped_headers": ["by"], "stamps": {"by": ["me"]}, "tenant": "acme", "origin": "me@here",
    }  # fmt: skip
    assert {name: headers[name] for name in wanted} == wanted
    assert message.properties["reply_to"] == "1bd5eaae-90a0-4333-93cf-28d3a22ad56c"
    assert (message.properties["correlation_id"], message.properties["priority"]) == ("an-id", 4)
    assert message.delivery_info["routing_key"] == "celery"


@pytest.mark.parametrize("serializer", ["yaml", "pickle"])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_other_serializers_go_along_as_they_are(
    connection: Connection, serializer: str, compression: str | None
) -> None:
    """The body of another serializer is not opened on the way."""
    publish(
        connection, "proj.add", [1], {"b": 2}, serializer=serializer, compression=compression, callbacks=[SIGNATURE]
    )

    args, kwargs, embedded = received(connection).payload

    assert (list(args), kwargs, embedded["callbacks"]) == ([1], {"b": 2}, [SIGNATURE])


def test_callbacks_beside_another_serializer_go_along(connection: Connection, redis_url: str) -> None:
    """sidekiq_celery writes them beside the body; Celery's workers look for them within."""
    app = Celery("ours", broker=redis_url, set_as_current=False, fixups=[])
    app.send_task("proj.add", [1], link=app.signature("proj.next", app=app), serializer="yaml", compression="gzip")
    client_of(app).close()

    args, _, embedded = received(connection).payload

    assert args == [1]
    assert [callback["task"] for callback in embedded["callbacks"]] == ["proj.next"]


def test_callbacks_within_a_pickled_body_are_found_by_our_workers(connection: Connection, jobs: Jobs) -> None:
    """The transport does not open what may run code; a worker that accepts it does."""
    app = Celery("ours", set_as_current=False, fixups=[], accept_content=["pickle"])

    publish(connection, "proj.add", [1], {"b": 2}, serializer="pickle", callbacks=[SIGNATURE])

    [payload] = jobs("celery")
    assert arguments_of(app, payload["args"], payload["celery"]) == ([1], {"b": 2})
    assert with_embedded(app, payload["celery"])["callbacks"] == [SIGNATURE]


class Opaque:
    """A value that pickle can carry, and JSON cannot."""


@pytest.mark.parametrize(("header", "why"), [("proj.fails", "no such order"), ("proj.add", "not JSON serializable")])
@pytest.mark.parametrize("place", ["body", "link"])
def test_a_chord_whose_body_only_pickle_can_carry_fails_and_does_not_stay_pending(
    connection: Connection, redis_url: str, redis_client: redis.Redis, place: str, header: str, why: str
) -> None:
    """Workflows wait as JSON in Redis, so such a body cannot be called, and whoever waits for it hears that."""
    app = Celery("ours", broker=redis_url, backend=redis_url, set_as_current=False, fixups=[])
    app.conf.accept_content = ["json", "pickle"]
    app.task(name="proj.add")(lambda: 1)

    @app.task(name="proj.fails")
    def fails() -> None:
        raise ValueError("no such order")

    worker = TaskWorker(app, redis_url)
    worker.start()
    opaque, options = {**SIGNATURE, "args": [Opaque(), {(1, 2): 3}]}, {"task_id": "body"}
    links = {"link": [opaque]} if place == "link" else {}
    body = {**(SIGNATURE if links else opaque), "options": {**options, **links}, "chord_size": 1}
    try:
        publish(connection, header, serializer="pickle", chord=body, group_id="g", task_id="part")

        stored = json.loads(eventually(lambda: redis_client.get("celery-task-meta-body")))
    finally:
        worker.stop()
        app.close()

    assert (stored["status"], stored["result"]["exc_type"]) == ("FAILURE", "ChordError")
    assert why in stored["result"]["exc_message"][0]


def test_numbers_that_json_lacks_come_back(connection: Connection) -> None:
    """Python's json writes NaN, which no Ruby program reads: such a body goes along as it is."""
    publish(connection, "proj.add", [float("inf"), 2**70])

    assert received(connection).payload[0] == [float("inf"), 2**70]


def test_ids_that_are_uuids_come_back(connection: Connection) -> None:
    """As over kombu's own transports."""
    root = UUID(int=7)
    publish(connection, "proj.add", root_id=root, parent_id=root)

    headers = received(connection).headers

    assert (headers["root_id"], headers["parent_id"]) == (root, root)


def test_a_limit_of_the_largest_integer_comes_back(connection: Connection) -> None:
    """Programs write it for no limit, and Celery's workers run such a task."""
    publish(connection, "proj.add", time_limit=sys.maxsize)

    assert received(connection).headers["timelimit"] == [sys.maxsize, None]


def test_numbers_that_a_workflow_of_ours_hands_on_come_bare(connection: Connection, redis_client: redis.Redis) -> None:
    """Our mark is no type of kombu's."""
    marked = {"__type__": "float", "__value__": "-inf"}
    job = {"class": "proj.add", "jid": "j", "args": [[1, marked], {"b": marked}], "celery": {"kw": True}}
    redis_client.lpush("queue:celery", json.dumps(job))

    assert received(connection).payload[:2] == [[[1, float("-inf")]], {"b": float("-inf")}]


def test_a_job_of_ruby_is_a_task(connection: Connection, redis_url: str) -> None:
    """Its class is the name, its jid the id, and all its arguments are positional."""
    client = Client(redis_url, sidekiq_version="6.4.1")
    jid = client.push({"class": "HardWorker", "args": ["bob", {"n": 5}], "queue": "celery"})
    client.close()

    message = received(connection)

    assert (message.headers["task"], message.headers["id"], message.headers["root_id"]) == ("HardWorker", jid, jid)
    assert message.payload[:2] == [["bob", {"n": 5}], {}]
    assert message.headers["argsrepr"] == "('bob', {'n': 5})"


def test_the_rest_of_a_chain_of_ours_goes_along(connection: Connection, redis_url: str) -> None:
    """What sidekiq_celery keeps in Redis of a chain is in the message, where Celery's workers look for it."""
    app = Celery("ours", broker=redis_url, set_as_current=False, fixups=[])
    steps = [app.signature(f"proj.step{number}", [number], app=app) for number in range(3)]
    (steps[0] | steps[1] | steps[2]).apply_async()
    client_of(app).close()

    _, _, embedded = received(connection).payload

    assert [step["task"] for step in embedded["chain"]] == ["proj.step2", "proj.step1"]


def test_a_message_of_the_first_protocol_is_a_task(connection: Connection, jobs: Jobs) -> None:
    """Old clients put all into the body."""
    body = {"task": "proj.add", "id": "old", "args": [1], "kwargs": {"b": 2}, "retries": 1, "eta": None}
    connection.Producer().publish(body, routing_key="celery", serializer="json")

    [payload] = jobs("celery")
    assert (payload["class"], payload["jid"], payload["args"]) == ("proj.add", "old", [1, {"b": 2}])
    assert received(connection).headers["retries"] == 1


def test_a_message_of_the_first_protocol_keeps_its_place_in_its_group(connection: Connection) -> None:
    """By which Celery orders the results of a chord; without it they came in the order in which the tasks ended."""
    body = {"task": "proj.add", "id": "old", "args": [1], "taskset": "a-group", "group_index": 2}
    connection.Producer().publish(body, routing_key="celery", serializer="json")

    headers = received(connection).headers

    assert (headers["group"], headers["group_index"]) == ("a-group", 2)


@pytest.mark.parametrize("body", [{"a": [1, None]}, "é", b"\x00\xff", 5])
def test_any_other_message_comes_back(connection: Connection, body: Any) -> None:
    """Plain users of kombu send what they like."""
    with SimpleQueue(connection, "plain") as queue:
        queue.put(body, headers={"when": "now"}, compression="gzip")

        message = queue.get(timeout=60)

        assert message.payload == body
        assert message.headers["when"] == "now"
        message.ack()


def test_an_exchange_leads_to_its_queues(connection: Connection, jobs: Jobs) -> None:
    """Direct and topic exchanges are resolved when a message is sent; the message still tells them."""
    exchange = Exchange("news", type="topic")
    both = [Queue(name, exchange, routing_key=key) for name, key in (("all", "#"), ("red", "*.red"))]
    producer = connection.Producer()
    producer.publish({"n": 1}, exchange=exchange, routing_key="is.red", declare=both)
    producer.publish({"n": 2}, exchange=exchange, routing_key="is.blue", declare=both)

    assert [len(jobs(name)) for name in ("all", "red")] == [2, 1]
    assert received(connection, "red").delivery_info["exchange"] == "news"


@pytest.mark.parametrize(
    "raw",
    [
        b"no json",
        b"[]",
        b'{"class":"A","args":[],"jid":7}',
        b'{"class":"A","jid":"x","args":[],"celery":5}',
        b'{"class":"A","jid":"x","args":[],"celery":{"timelimit":"x"}}',
        b'{"class":"A","jid":"x","args":[],"celery":{"timelimit":["x",1]}}',
        b'{"class":"A","jid":"x","args":[],"celery":{"expires":[1]}}',
        b'{"class":"A","jid":"x","args":[],"celery":{"eta":"tomorrow"}}',
        b'{"class":"A","jid":"x","args":[],"celery":{"chord":{"id":"g"}}}',
        b'{"class":"A","jid":"x","args":[],"celery":{"expires":""}}',
        b'{"class":"A","jid":"x","args":[],"celery":{"stamped_headers":[[]]}}',
        b'{"class":"A","jid":"x","args":[],"celery":{"ignore_result":"x"}}',
        b'{"class":"A","jid":"x","args":[],"celery":{"body":"!","content_type":"application/json"}}',
        b'{"class":"A","jid":"x","args":[],"celery":{"flow":3}}',
        b'{"class":"kombu.Message","jid":"x","kombu":{"body":"x","properties":{"body_encoding":"no"}}}',
        b'{"class":"kombu.Message","jid":"x","kombu":{"headers":3,"properties":{}}}',
        b'{"class":"kombu.Message","jid":"x","kombu":{"properties":{"delivery_info":3}}}',
    ],
)
def test_what_is_no_job_is_kept_in_dead(connection: Connection, redis_client: redis.Redis, raw: bytes) -> None:
    """It is not delivered, not lost, and does not stop what stands behind it."""
    publish(connection, "proj.add", task_id="behind")
    redis_client.rpush("queue:celery", raw)

    assert received(connection).headers["id"] == "behind"
    assert redis_client.zcard("dead") == 1


def test_a_part_of_a_chord_of_ours_is_left_to_our_workers(connection: Connection, redis_client: redis.Redis) -> None:
    """Celery's worker could not end it, and its body would wait for ever: it is kept, with a word on what to do."""
    payload = {"class": "A", "args": [], "jid": "x", "celery": {"chord": part("g", 0)}}
    redis_client.lpush("queue:celery", json.dumps(payload))

    assert Queue("celery").bind(connection.default_channel).get() is None

    [dead] = redis_client.zrange("dead", 0, -1)
    assert "sidekiq-celery worker" in json.loads(dead)["error_message"]
