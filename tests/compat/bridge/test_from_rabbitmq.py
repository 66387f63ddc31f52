"""From Celery's queues in RabbitMQ to Sidekiq's."""

from typing import Any

import kombu
import pytest
import redis
from sidekiq_celery._wire.payload import KEY
from sidekiq_celery.bridge import forward
from sidekiq_celery.bridge.kombu_source import KombuRoute

from tests.compat.bridge.conftest import RunBridge, job_set, jobs, send_calls
from tests.support.waiting import eventually

# The first one starts a RabbitMQ.
pytestmark = pytest.mark.timeout(300)


def _count(url: str, queue: str = "celery") -> int:
    with kombu.Connection(url) as connection:
        return int(connection.channel().queue_declare(queue, passive=True).message_count)


def _publish(url: str, *ids: str, **more: Any) -> None:
    with kombu.Connection(url, transport_options={"confirm_publish": True}) as connection:
        producer = connection.Producer()
        queue = kombu.Queue("celery", queue_arguments=more.pop("queue_arguments", None))(producer.channel)
        queue.declare()
        for task_id in ids:
            headers = {"task": "side.note", "id": task_id, **more.get("headers", {})}
            body = more.get("body", [[1], {}, {}])
            options = {"serializer": "json", **more.get("options", {})}
            producer.publish(body, routing_key="celery", headers=headers, **options)


def test_each_kind_of_call_becomes_a_job(
    rabbit_url: str, redis_url: str, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """As from a Redis; what is left is the broker's again, in its place."""
    ids = send_calls(rabbit_url, redis_url)
    redis_client.flushall()

    ledger = run_bridge(celery_url=rabbit_url)

    moved = jobs(redis_client)
    assert moved[ids["plain"]]["args"] == ["plain", 1, None]
    assert moved[ids["urgent"]][KEY]["priority"] == 6
    assert moved[ids["headers"]][KEY]["headers"] == {"tenant": "a"}
    assert moved[ids["pickled"]][KEY]["content_type"] == "application/x-python-serialize"
    assert moved[ids["packed"]][KEY]["compression"] == "application/x-gzip"
    assert moved[ids["linked"]][KEY]["callbacks"][0]["args"] == ["link"]
    assert set(job_set(redis_client, "schedule")) == {ids["later"], ids["retried"], ids["protocol 1"]}
    assert list(jobs(redis_client, "high")) == [ids["high"]]
    assert ledger.left["celery"] == {forward.CHORD: 2, forward.MAYBE_CHORD: 1, forward.SEALED: 1}
    eventually(lambda: _count(rabbit_url) == 4, within_seconds=60)


def test_what_was_written_before_is_recognised(
    rabbit_url: str, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """The broker brings again what a bridge had not acknowledged."""
    _publish(rabbit_url, "a", "b")

    class Killed(Exception):
        pass

    def die(self: KombuRoute, deliveries: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KombuRoute, "_acknowledge", die)
        with pytest.raises(Killed):
            run_bridge(celery_url=rabbit_url)
    # Of a connection that broke the broker hears a moment later.
    eventually(lambda: _count(rabbit_url) == 2, within_seconds=60)
    ledger = run_bridge(celery_url=rabbit_url)

    assert sorted(jobs(redis_client)) == ["a", "b"]
    assert ledger.moved["celery"] == {"duplicates": 2}
    eventually(lambda: _count(rabbit_url) == 0, within_seconds=60)
    marks = [redis_client.ttl(key) for key in redis_client.scan_iter("sidekiq_py:bridge:written:*")]
    assert [1800 < seconds <= 3600 for seconds in marks] == [True, True]


def test_the_same_call_sent_twice_is_two_jobs(
    rabbit_url: str, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """A message that was not delivered before is no duplicate, whatever its id."""
    _publish(rabbit_url, "a", "a")

    run_bridge(celery_url=rabbit_url)

    assert redis_client.llen("queue:celery") == 2


def test_a_dry_run_asks_how_many_there_are(rabbit_url: str, redis_client: redis.Redis, run_bridge: RunBridge) -> None:
    """As looking at a message would take it from others."""
    _publish(rabbit_url, "a", "b")

    ledger = run_bridge(celery_url=rabbit_url, is_dry=True)

    assert ledger.moved["celery"] == {"waiting": 2}
    assert list(redis_client.scan_iter()) == []


def test_unreadable_and_large_messages(rabbit_url: str, redis_client: redis.Redis, run_bridge: RunBridge) -> None:
    """The dead set holds the ones, the broker keeps the others."""
    _publish(rabbit_url, "bad", body=[1])
    _publish(rabbit_url, "large", body=[["x" * 5000], {}, {}])
    _publish(rabbit_url, "good")

    ledger = run_bridge(celery_url=rabbit_url, most_bytes=4000)

    assert (list(jobs(redis_client)), list(job_set(redis_client, "dead"))) == (["good"], ["bad"])
    assert ledger.count_left == 1
    eventually(lambda: _count(rabbit_url) == 1, within_seconds=60)


def test_odd_headers_and_encodings_hold_up_no_other(
    rabbit_url: str, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """amqp decodes a body as it is told, and not each such text can be encoded again."""
    _publish(rabbit_url, "counted", headers={"x-delivery-count": "often"})
    undone = {"content_type": "application/json", "content_encoding": "idna"}
    _publish(rabbit_url, "encoded", body=b"a" * 100, options={**undone, "serializer": None})
    _publish(rabbit_url, "good")

    run_bridge(celery_url=rabbit_url)

    assert (sorted(jobs(redis_client)), list(job_set(redis_client, "dead"))) == (["counted", "good"], ["encoded"])


def test_a_quorum_queue_loses_nothing_that_is_given_back_often(
    rabbit_url: str, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """It throws messages away that come back too often; a copy takes their place before."""
    limited = {"x-queue-type": "quorum", "x-delivery-limit": 8}
    part = [[1], {}, {"chord": {"task": "side.note"}}]
    _publish(rabbit_url, "part", body=part, queue_arguments=limited, options={"expiration": 3600})

    for _ in range(12):
        # A quorum queue takes its time to have a message back.
        eventually(lambda: _count(rabbit_url) == 1, within_seconds=60)
        run_bridge(celery_url=rabbit_url)
    _publish(rabbit_url, "free", queue_arguments=limited)
    eventually(lambda: _count(rabbit_url) == 2, within_seconds=60)
    ledger = run_bridge(celery_url=rabbit_url)

    assert list(jobs(redis_client)) == ["free"]
    assert ledger.count_left == 1
    eventually(lambda: _count(rabbit_url) == 1, within_seconds=60)


def test_a_queue_that_is_not_there_is_told(rabbit_url: str, run_bridge: RunBridge) -> None:
    """The others are moved."""
    _publish(rabbit_url, "a")

    ledger = run_bridge(celery_url=rabbit_url)

    assert ledger.notes == {"there is no queue 'high' at the source": 1}
    assert ledger.count_moved == 1


def test_any_other_transport_of_kombu_s(tmp_path: Any, redis_client: redis.Redis, run_bridge: RunBridge) -> None:
    """Here it is a folder of files."""
    folder = tmp_path / "queues"
    folder.mkdir()
    options = {"data_folder_in": str(folder), "data_folder_out": str(folder), "control_folder": str(tmp_path / "c")}
    (tmp_path / "c").mkdir()
    with kombu.Connection("filesystem://", transport_options=options) as connection:
        producer = connection.Producer()
        queue = kombu.Queue("celery")(producer.channel)
        queue.declare()
        for task_id in ("a", "b"):
            producer.publish([[1], {}, {}], routing_key="celery", headers={"task": "side.note", "id": task_id})
        chord = [[1], {}, {"chord": {"task": "side.note"}}]
        producer.publish(chord, routing_key="celery", headers={"task": "side.note", "id": "part"})

    ledger = run_bridge(celery_url="filesystem://", transport_options=options, queues=["celery"])

    assert sorted(jobs(redis_client)) == ["a", "b"]
    assert ledger.left["celery"] == {forward.CHORD: 1}
    assert len(list(folder.iterdir())) == 1
