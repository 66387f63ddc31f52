"""Celery's guide "Calling Tasks", walked through with the import changed."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Timer
from types import ModuleType
from typing import Any

import pytest
import redis
from kombu.exceptions import OperationalError
from sidekiq_celery import Celery, chain, chord, group
from sidekiq_celery._send.clients import client_of
from sidekiq_celery.exceptions import TaskRevokedError
from sidekiq_celery.utils.log import get_logger

from tests.compat.documentation.conftest import PROJECT, WAIT_SECONDS
from tests.support.redis_server import RedisServer


def test_star_arguments_or_lists(tasks: ModuleType) -> None:
    """Section "Basics"."""
    calls = [
        tasks.add.delay(1, y=2),
        tasks.add.apply_async(args=[1], kwargs={"y": 2}),
        tasks.add.s(1, y=2).apply_async(),
    ]

    assert [call.get(timeout=WAIT_SECONDS) for call in calls] == [3, 3, 3]


def test_a_callback_is_given_the_result(tasks: ModuleType) -> None:
    """Section "Linking": 2 + 2 + 16; several callbacks are one group."""
    one = tasks.add.apply_async((2, 2), link=tasks.add.s(16))
    several = tasks.add.apply_async((2, 2), link=[tasks.add.s(16), tasks.mul.s(10)])

    assert (one.get(timeout=WAIT_SECONDS), several.get(timeout=WAIT_SECONDS)) == (4, 4)
    assert [child.get(timeout=WAIT_SECONDS) for child in one.children] == [20]
    assert [child.get(timeout=WAIT_SECONDS) for child in several.children] == [[20, 40]]


def test_an_errback_is_given_request_and_error(tasks: ModuleType, noted: Callable[..., list[str]]) -> None:
    """Section "Linking"."""
    result = tasks.fail.apply_async(("no",), link_error=tasks.log_error.s())

    assert noted("errors") == [f"{result.id} ValueError('no')"]


def test_an_errback_of_one_argument_is_given_the_id(
    app: Any, tasks: ModuleType, noted: Callable[..., list[str]]
) -> None:
    """Section "Linking", by the task's name alone."""
    result = app.send_task(f"{PROJECT}.tasks.fail", ("no",), link_error=tasks.on_error.s())

    assert noted("errors") == [f"{result.id} ValueError('no')"]


def test_states_are_heard_while_waiting(tasks: ModuleType) -> None:
    """Section "On message"."""
    messages: list[dict[str, Any]] = []

    value = tasks.hello.apply_async((1, 1)).get(timeout=WAIT_SECONDS, on_message=messages.append, propagate=False)

    assert value == "hello world: 2"
    assert messages[-1]["status"] == "SUCCESS"
    assert {message["status"] for message in messages} <= {"PROGRESS", "SUCCESS"}


def test_a_task_may_come_later(tasks: ModuleType, client: redis.Redis) -> None:
    """Section "ETA and Countdown": by seconds, or by a time; it waits in the set `schedule`."""
    assert tasks.add.apply_async((2, 2), countdown=0.1).get(timeout=WAIT_SECONDS) == 4

    tomorrow = datetime.now(UTC) + timedelta(days=1)
    later = tasks.add.apply_async((2, 2), eta=tomorrow)

    [due] = [due for payload, due in client.zrange("schedule", 0, -1, withscores=True) if later.id in payload]
    assert due == pytest.approx(tomorrow.timestamp(), abs=0.01)
    client.delete("schedule")


def test_a_task_may_come_too_late(tasks: ModuleType) -> None:
    """Section "Expiration": seconds, or a time; what is too late is revoked."""
    past = datetime.now(UTC) - timedelta(minutes=1)
    in_time, late = tasks.add.apply_async((1, 1), expires=60), tasks.add.apply_async((1, 1), expires=past)

    assert in_time.get(timeout=WAIT_SECONDS) == 2
    with pytest.raises(TaskRevokedError):
        late.get(timeout=WAIT_SECONDS)
    assert late.state == "REVOKED"


def test_sending_may_be_tried_again(tasks: ModuleType) -> None:
    """Sections "Message Sending Retry" and "Retry Policy": the options are taken."""
    policy = {"max_retries": 3, "interval_start": 0, "interval_step": 0.2, "interval_max": 1, "retry_errors": None}

    assert tasks.add.apply_async((2, 2), retry=False).get(timeout=WAIT_SECONDS) == 4
    assert tasks.add.apply_async((2, 2), retry=True, retry_policy=policy).get(timeout=WAIT_SECONDS) == 4


def test_a_broker_that_is_away_is_told_by_kombu_s_error() -> None:
    """Section "Connection Error Handling": also as an attribute of the task."""
    app = Celery("away", broker="redis://127.0.0.1:1/0", set_as_current=False)

    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    assert add.OperationalError is OperationalError
    with pytest.raises(add.OperationalError):
        add.apply_async((2, 2), retry=False)
    assert get_logger(__name__).name == __name__
    app.close()


@pytest.mark.parametrize("name", ["call", "chain", "group", "chord"])
def test_sending_waits_for_a_redis_that_comes_back(new_redis_server: Callable[..., RedisServer], name: str) -> None:
    """Section "Retry Policy": workflows, too; a policy without retries gives up at once."""
    server = new_redis_server()
    app = Celery("away", broker=server.url, backend=server.url, set_as_current=False)

    @app.task(name="away.step")
    def step(*numbers: int) -> None: ...

    sent = {
        "call": step.s(1),
        "chain": chain(step.s(1), step.s(2)),
        "group": group(step.s(1), step.s(2)),
        "chord": chord([step.s(1), step.s(2)], step.s()),
    }[name]
    server.stop()
    with pytest.raises(OperationalError):
        sent.apply_async(retry=False)
    pauses = {"interval_start": 0.05, "interval_max": 0.05, "max_retries": None}
    app.conf.task_publish_retry_policy = pauses
    back = Timer(0.2, server.start)
    back.start()

    sent.apply_async()

    back.join()
    with server.client() as client:
        assert client.llen("queue:celery") > 0
    client_of(app).close()


def test_a_serializer_and_a_compression_are_chosen(tasks: ModuleType, app: Any) -> None:
    """Sections "Serializers" and "Compression"."""
    assert tasks.add.apply_async((10, 10), serializer="json").get(timeout=WAIT_SECONDS) == 20
    assert tasks.add.apply_async((2, 2), compression="zlib").get(timeout=WAIT_SECONDS) == 4


def test_times_come_as_they_went(tasks: ModuleType) -> None:
    """Section "Serializers": kombu's json knows more types than JSON."""
    day = datetime(2026, 1, 2, tzinfo=UTC)

    assert tasks.newest.delay([day]).get(timeout=WAIT_SECONDS) == day


def test_many_calls_on_one_connection(tasks: ModuleType) -> None:
    """Section "Connections": a group instead of a publisher that is passed around."""
    numbers = [(2, 2), (4, 4), (8, 8), (16, 16)]

    assert group(tasks.add.s(i, j) for i, j in numbers).apply_async().get(timeout=WAIT_SECONDS) == [4, 8, 16, 32]


def test_a_producer_that_is_passed_along_is_ignored(tasks: ModuleType, app: Any) -> None:
    """Section "Connections": calls with `producer=` are sent, by the app's own connections."""
    with app.producer_pool.acquire(block=True) as producer:
        results = [tasks.add.apply_async((i, i), producer=producer) for i in range(3)]

    assert [result.get(timeout=WAIT_SECONDS) for result in results] == [0, 2, 4]


def test_a_queue_is_chosen(tasks: ModuleType) -> None:
    """Section "Routing options"."""
    result = tasks.dump_context.apply_async((1, 2), queue="priority.high")

    assert result.get(timeout=WAIT_SECONDS)["queue"] == "priority.high"


def test_a_result_may_be_left_out_of_a_call(tasks: ModuleType) -> None:
    """Section "Results options": `ignore_result`, of a call."""
    ignored, kept = (tasks.add.apply_async((1, 2), ignore_result=ignored) for ignored in (True, False))

    assert ignored.get() is None
    assert kept.get(timeout=WAIT_SECONDS) == 3


def test_headers_go_along(tasks: ModuleType, client: redis.Redis) -> None:
    """Section "Results options": the task reads them."""
    result = tasks.dump_context.apply_async((1, 2), headers={"periodic_task_name": "nightly"})

    assert result.get(timeout=WAIT_SECONDS)["headers"]["periodic_task_name"] == "nightly"
    stored = json.loads(client.get(f"celery-task-meta-{result.id}"))
    assert (stored["name"], stored["queue"], stored["args"]) == (f"{PROJECT}.tasks.dump_context", "celery", [1, 2])


def test_priorities_order_queues_where_the_app_says_so(proj: ModuleType, app: Any, client: redis.Redis) -> None:
    """Section "Advanced Options": `priority`; on Redis 0 is the most urgent."""
    app.conf.broker_transport_options = {"queue_order_strategy": "priority", "priority_steps": [0, 3, 6, 9]}

    result = proj.add.apply_async((1, 2), priority=6, queue="ordered")

    assert result.id in client.lindex("queue:ordered:6", 0)
