"""What a call leaves in Redis."""

import json
import math
import sys
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import ModuleType
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
import redis
from kombu import Producer
from kombu.exceptions import EncodeError, OperationalError
from kombu.utils import json as kombu_json
from sidekiq_celery import Celery, chain, signals

from sidekiq_py import program
from sidekiq_py.client.sync_client import Client
from tests.support.queued_jobs import queued_jobs


class Name(str, Enum):  # noqa: UP042 - what `str` makes of these members is not their value
    """Texts of a class of their own."""

    FIRST = "first"
    SECOND = "second"
    THIRD = "third"


@pytest.fixture
def add(app: Celery) -> Any:
    """A task."""

    @app.task(name="proj.add")
    def add(x: Any, y: Any = 0, **more: Any) -> Any:
        return x + y

    return add


def waiting(client: redis.Redis, queue: str = "celery") -> list[dict[str, Any]]:
    """The jobs of a queue, the oldest first."""
    return queued_jobs(client, queue)


def test_a_call_is_a_job_of_its_name_and_id(redis_client: redis.Redis, add: Any) -> None:
    """Ruby reads all that it needs where it looks for it; there is nothing else to say of a plain call."""
    result = add.delay(2, 3)

    [job] = waiting(redis_client)
    assert (job["class"], job["jid"], job["args"], job["retry"]) == ("proj.add", result.id, [2, 3], 3)
    assert redis_client.smembers("queues") == {b"celery"}
    assert job["celery"].keys() == {"origin"}


@pytest.mark.parametrize("max_retries", [None, math.inf])
def test_a_task_may_be_tried_without_end(app: Celery, redis_client: redis.Redis, max_retries: float | None) -> None:
    """Programs that come from Celery write infinity as well as None; JSON has no number for it."""

    @app.task(name="proj.endless", max_retries=max_retries)
    def endless() -> None: ...

    endless.delay()
    endless.apply_async(countdown=100)

    [job] = waiting(redis_client)
    [scheduled] = redis_client.zrange("schedule", 0, -1)
    assert (job["retry"], json.loads(scheduled)["retry"]) == (True, True)


def test_keyword_arguments_are_one_object_at_the_end(redis_client: redis.Redis, add: Any) -> None:
    """As `perform(a, opts)` in Ruby takes them; the mark tells them from an argument that is an object itself."""
    add.delay({"a": 1})
    add.delay(1, y=2)

    first, second = waiting(redis_client)
    assert (first["args"], first["celery"].get("kw")) == ([{"a": 1}], None)
    assert (second["args"], second["celery"].get("kw")) == ([1, {"y": 2}], True)


def test_values_that_json_lacks_are_written_as_kombu_does(redis_client: redis.Redis, add: Any) -> None:
    """Tuples become lists, keys texts; dates, ids and bytes bear their type."""
    add.delay((1, {2: datetime(2026, 1, 2)}), UUID(int=5))

    [job] = waiting(redis_client)
    assert job["args"] == [
        [1, {"2": {"__type__": "datetime", "__value__": "2026-01-02T00:00:00"}}],
        # Some releases of kombu add the id's version.
        json.loads(kombu_json.dumps(UUID(int=5))),
    ]
    assert job["args"][1]["__type__"] == "uuid"


def test_another_serializer_is_kept_aside(redis_client: redis.Redis, add: Any) -> None:
    """Ruby sees no arguments rather than some that it cannot read."""
    add.apply_async((1, 2), serializer="yaml", compression="gzip")

    [job] = waiting(redis_client)
    assert (job["args"], job["celery"]["content_type"]) == ([], "application/x-yaml")
    assert job["celery"]["compression"] == "application/x-gzip"


def test_what_comes_later_waits_in_the_schedule(redis_client: redis.Redis, add: Any) -> None:
    """Nothing is held by a worker; what is due already goes to its queue."""
    eta = datetime(2100, 1, 1, tzinfo=UTC)
    add.apply_async((1,), eta=eta)
    add.apply_async((2,), eta=datetime(2000, 1, 1, tzinfo=UTC))

    [(member, score)] = redis_client.zrange("schedule", 0, -1, withscores=True)
    assert (json.loads(member)["args"], score) == ([1], eta.timestamp())
    assert json.loads(member)["celery"]["eta"] == eta.isoformat()
    assert [job["args"] for job in waiting(redis_client)] == [[2]]


@pytest.mark.parametrize("enable_utc", [True, False])
def test_a_time_without_a_zone_is_utc_whatever_the_settings_say(
    app: Celery, redis_client: redis.Redis, add: Any, caplog: pytest.LogCaptureFixture, enable_utc: bool
) -> None:
    """As Celery's workers read it: `datetime.utcnow() + delay` is right in any time zone."""
    app.conf.update(timezone="Asia/Tokyo", enable_utc=enable_utc)
    eta = datetime.now(UTC) + timedelta(hours=1)

    add.apply_async((1,), eta=eta.replace(tzinfo=None), expires=eta.replace(tzinfo=None))
    add.apply_async((2,), eta=eta.replace(tzinfo=None).isoformat())

    waiting_there = redis_client.zrange("schedule", 0, -1, withscores=True)
    assert [score for _, score in waiting_there] == pytest.approx([eta.timestamp()] * 2, abs=0.001)
    assert "in the past" not in caplog.text


@pytest.mark.parametrize("expires", [timedelta(minutes=5), [60]], ids=["a timedelta", "a list"])
def test_an_expires_that_is_neither_seconds_nor_a_time_is_refused(
    redis_client: redis.Redis, add: Any, expires: Any
) -> None:
    """With its name and what to give, as for a countdown; `float() argument must be a string` named neither."""
    with pytest.raises(TypeError, match=r"^expires is .*; give a number of seconds or a datetime"):
        add.apply_async((1,), expires=expires)

    assert waiting(redis_client) == []


@pytest.mark.parametrize("eta", [300, timedelta(minutes=5)], ids=["seconds", "a timedelta"])
def test_an_eta_that_is_no_time_is_refused(redis_client: redis.Redis, add: Any, eta: Any) -> None:
    """With what to give: seconds are easily taken for a countdown."""
    with pytest.raises(TypeError, match=r"^eta is .*; give a datetime, or seconds as countdown$"):
        add.apply_async((1,), eta=eta)

    assert waiting(redis_client) == []


def test_every_option_goes_along(redis_client: redis.Redis, add: Any) -> None:
    """What the worker is to know stands in the object `celery`."""
    add.apply_async(
        (1,), queue="high", task_id="my-id", expires=60, priority=5, headers={"tenant": "a"}, time_limit=9,
        soft_time_limit=8, ignore_result=True, shadow="other", reply_to="x", MessageGroupId="g",
    )  # fmt: skip

    [job] = waiting(redis_client, "high")
    task_headers = job["celery"]
    left = datetime.fromisoformat(task_headers.pop("expires")) - datetime.now(UTC)
    assert timedelta(0) < left <= timedelta(seconds=60)
    task_headers.pop("origin")
    assert job["jid"] == "my-id"
    assert task_headers == {
        "priority": 5,
        "headers": {"tenant": "a"},
        "timelimit": [9, 8],
        "ignore_result": True,
        "shadow": "other",
        "reply_to": "x",
        "properties": {"MessageGroupId": "g"},
    }


def test_an_app_may_order_priorities(app: Celery, redis_client: redis.Redis, add: Any) -> None:
    """Each step is a queue of its own; 0 is the most urgent."""
    app.conf.broker_transport_options = {"queue_order_strategy": "priority"}

    for priority in (0, 4, 9):
        add.apply_async((priority,), priority=priority)

    assert set(redis_client.keys("queue:*")) == {b"queue:celery", b"queue:celery:3", b"queue:celery:9"}


def test_an_id_may_be_a_uuid(app: Celery, redis_client: redis.Redis, add: Any) -> None:
    """As `uuid.uuid4()` returns it; it is sent as text."""
    ids = [UUID(int=number) for number in range(1, 5)]

    sent = [
        add.apply_async((1,), task_id=ids[0]),
        app.send_task("proj.add", (1,), task_id=ids[1], root_id=ids[0]),
        chain(add.s(1).set(task_id=ids[2]), add.s(2)).apply_async(task_id=ids[3]),
    ]

    assert [result.id for result in sent] == [str(ids[0]), str(ids[1]), str(ids[3])]
    assert [job["jid"] for job in waiting(redis_client)] == [str(ids[0]), str(ids[1]), str(ids[2])]


def test_an_id_may_be_a_text_of_another_class(app: Celery, redis_client: redis.Redis, add: Any) -> None:
    """Such as an enum's member: its value is sent, as in Celery."""
    ids = [Name.FIRST, Name.SECOND, Name.THIRD]

    sent = [
        add.apply_async((1,), task_id=ids[0]),
        app.send_task("proj.add", (1,), task_id=ids[1], root_id=ids[0]),
        chain(add.s(1).set(task_id=ids[2]), add.s(2)).apply_async(),
    ]

    assert [result.id for result in sent[:2]] == ["first", "second"]
    jobs = waiting(redis_client)
    assert [(job["jid"], job["celery"].get("root_id")) for job in jobs] == [
        ("first", None),
        ("second", "first"),
        ("third", None),
    ]


@pytest.mark.parametrize(
    ("priority", "text"),
    [
        ("high", r"celery\.priority is 'high', where a number should stand"),
        ([1], r"celery\.priority is \[1\], where a number should stand"),
        (float("inf"), r'\["priority"\] is inf, which JSON cannot carry'),
    ],
)
def test_a_priority_that_is_no_number_is_refused_as_well_where_priorities_are_ordered(
    app: Celery, redis_client: redis.Redis, add: Any, priority: Any, text: str
) -> None:
    """With the error that names the option."""
    app.conf.broker_transport_options = {"queue_order_strategy": "priority"}

    with pytest.raises(EncodeError, match=text):
        add.apply_async((1,), priority=priority)

    assert waiting(redis_client) == []


def test_a_priority_may_be_a_text_of_digits(app: Celery, redis_client: redis.Redis, add: Any) -> None:
    """As it comes from an environment variable. Workers of older releases take only a number."""
    app.conf.broker_transport_options = {"queue_order_strategy": "priority"}

    add.apply_async((1,), priority="7")

    [job] = redis_client.lrange("queue:celery:6", 0, -1)
    assert json.loads(job)["celery"]["priority"] == 7


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"priority": "high"}, "celery.priority is 'high', where a number should stand"),
        ({"time_limit": "9"}, "celery.timelimit is ['9', None], where a list of two numbers of seconds should stand"),
        ({"shadow": 5}, "celery.shadow is 5, where a text should stand"),
        ({"retries": -1}, "celery.retries is -1, where a whole number from 0 should stand"),
    ],
)
def test_an_option_that_a_worker_would_not_take_is_refused_by_the_caller(
    redis_client: redis.Redis, add: Any, options: dict[str, Any], said: str
) -> None:
    """Nothing is sent."""
    with pytest.raises(EncodeError) as refused:
        add.apply_async((1,), **options)

    assert str(refused.value) == f"no worker would run this call of proj.add: {said}"
    assert waiting(redis_client) == []


def test_arguments_that_do_not_fit_are_refused_by_the_caller(app: Celery, redis_client: redis.Redis, add: Any) -> None:
    """Not by a worker, later; unless the task says so."""

    @app.task(name="proj.loose", typing=False)
    def loose(x: int) -> None:
        pass

    with pytest.raises(TypeError):
        add.delay()
    loose.delay()

    assert [job["class"] for job in waiting(redis_client)] == ["proj.loose"]


def test_what_cannot_be_sent_is_told_by_kombus_error(redis_client: redis.Redis, add: Any) -> None:
    """As programs that come from Celery catch it: what is in a message's body by another error than its headers."""
    with pytest.raises(EncodeError) as refused:
        add.delay(object())
    assert [(type(cause), str(cause)) for cause in refused.value.args] == [(TypeError, str(refused.value))]
    with pytest.raises(EncodeError):
        add.apply_async((1,), link=add.s(object()))
    for options in ({"headers": {"by": object()}}, {"unknown": object()}):
        with pytest.raises(TypeError, match="Object of type object is not JSON serializable"):
            add.apply_async((1,), **options)
    with pytest.raises(OperationalError, match="'nope'"):
        add.apply_async((1,), compression="nope")

    assert redis_client.keys() == []


def test_a_redis_that_is_away_is_told_by_kombus_error() -> None:
    """The class that is caught around `delay`."""
    app = Celery("gone", broker="redis://localhost:1/0", set_as_current=False, fixups=[])
    app.conf.task_publish_retry_policy = {"max_retries": 1, "interval_start": 0, "interval_step": 0}

    @app.task(name="proj.gone")
    def gone() -> None:
        pass

    with pytest.raises(OperationalError):
        gone.delay()
    with pytest.raises(gone.OperationalError):
        gone.delay()


def test_an_attribute_of_a_program_s_task_does_not_hide_its_calls(app: Celery) -> None:
    """Programs choose the names of their own attributes."""
    told: list[str] = []

    def note(sender: str, **_: Any) -> None:
        told.append(sender)

    signals.after_task_publish.connect(note)
    try:
        app.task(name="quiet", is_announced=False)(abs).delay(1)
    finally:
        signals.after_task_publish.disconnect(note)

    assert told == ["quiet"]


def test_listeners_see_and_change_a_message(redis_client: redis.Redis, add: Any) -> None:
    """`before_task_publish` gets Celery's headers and may add some."""
    seen: dict[str, Any] = {}

    def before(sender: Any = None, headers: Any = None, body: Any = None, **more: Any) -> None:
        seen.update(sender=sender, task=headers["task"], args=headers["argsrepr"], body=body, more=set(more))
        headers["trace"] = "t1"

    def after(sender: Any = None, routing_key: Any = None, headers: Any = None, **_: Any) -> None:
        seen.update(routing_key=routing_key, trace=headers["trace"])

    signals.before_task_publish.connect(before)
    signals.after_task_publish.connect(after)
    try:
        add.delay(2, y=3)
    finally:
        signals.before_task_publish.disconnect(before)
        signals.after_task_publish.disconnect(after)

    [job] = waiting(redis_client)
    assert job["celery"]["headers"] == {"trace": "t1"}
    assert (seen["sender"], seen["task"], seen["args"], seen["routing_key"]) == (
        "proj.add", "proj.add", "(2,)", "celery",
    )  # fmt: skip
    assert list(seen["body"][0]) == [2]
    assert {"exchange", "routing_key", "properties", "declare", "retry_policy"} <= seen["more"]


def test_listeners_of_protocol_1_see_and_change_its_body(redis_client: redis.Redis, app: Celery, add: Any) -> None:
    """Programs that set `task_protocol` to 1, as edX does, read the id and the arguments from the body."""
    app.conf.task_protocol = 1
    seen: list[Any] = []

    def before(body: Any = None, **_: Any) -> None:
        seen.append(dict(body))
        body["kwargs"] = {"y": 4}

    def after(body: Any = None, **_: Any) -> None:
        seen.append(body)

    signals.before_task_publish.connect(before)
    signals.after_task_publish.connect(after)
    try:
        sent = add.apply_async((2,), {"y": 3}, link=add.s(1))
    finally:
        signals.before_task_publish.disconnect(before)
        signals.after_task_publish.disconnect(after)

    [job] = waiting(redis_client)
    assert job["args"] == [2, {"y": 4}]
    assert job["celery"]["callbacks"][0]["args"] == [1]
    assert seen[0] == {
        "task": "proj.add", "id": sent.id, "args": (2,), "kwargs": {"y": 3}, "group": None, "group_index": None,
        "retries": 0, "eta": None, "expires": None, "utc": True, "callbacks": [add.s(1)], "errbacks": None,
        "timelimit": (None, None), "taskset": None, "chord": None,
    }  # fmt: skip
    assert seen[1] == {**seen[0], "kwargs": {"y": 4}}


class Transparent:
    """A wrapper of a method that shows the attributes of what it wraps, as New Relic's do."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def __get__(self, producer: Any, _: Any) -> Any:
        def publish(body: Any, headers: Any = None, **more: Any) -> Any:
            return self.wrapped(producer, body, headers={**headers, "newrelic": "n1"}, **more)

        return publish


def test_a_wrapper_of_kombus_producer_sees_each_call_and_adds_headers(
    redis_client: redis.Redis, add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentry, New Relic and ddtrace trace calls there; the task continues the trace by the headers that they add."""
    seen: list[Any] = []
    original = Producer.publish

    def publish(self: Any, *args: Any, **kwargs: Any) -> Any:
        headers = kwargs["headers"]
        seen.append((headers["task"], headers["id"], kwargs["exchange"], kwargs["routing_key"]))
        seen.append(self.connection.transport.driver_type)
        assert waiting(redis_client) == []
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Producer, "publish", publish)
    sent = add.delay(2, y=3)
    assert seen == [("proj.add", sent.id, "", "celery"), "redis"]
    assert len(waiting(redis_client)) == 1
    redis_client.flushdb()

    monkeypatch.setattr(Producer, "publish", Transparent(original))
    sent = add.apply_async((2,), {"y": 3}, headers={"mine": 1}, priority=3)

    [job] = waiting(redis_client)
    assert (job["jid"], job["args"]) == (sent.id, [2, {"y": 3}])
    assert job["celery"]["headers"] == {"mine": 1, "newrelic": "n1"}


def test_a_wrapper_of_what_kombus_producer_calls_adds_headers_too(
    redis_client: redis.Redis, add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    ddtrace wraps `_publish`, and finds the headers, the exchange and the routing key by their positions.

    It looks for the host in the channel's connection, which for kombu's Redis is its transport.
    """
    seen: list[Any] = []
    original = Producer._publish

    def publish(self: Any, *args: Any, **kwargs: Any) -> Any:
        args[4]["x-datadog-trace-id"] = "d1"
        seen.append((args[6], args[9], self.channel.connection.driver_type))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Producer, "_publish", publish)
    sent = add.delay(2, y=3)

    [job] = waiting(redis_client)
    assert (job["jid"], job["args"]) == (sent.id, [2, {"y": 3}])
    assert job["celery"]["headers"] == {"x-datadog-trace-id": "d1"}
    assert seen == [("celery", "", "redis")]


@pytest.mark.parametrize("method", ["publish", "_publish"])
def test_a_test_may_replace_kombus_producer_so_that_nothing_is_sent(
    redis_client: redis.Redis, add: Any, method: str
) -> None:
    """Tests of programs and of Sentry do so. The caller gets a result all the same, and its signals, as in Celery."""
    after: list[str] = []

    def listen(headers: Any = None, **_: Any) -> None:
        after.append(headers["id"])

    signals.after_task_publish.connect(listen)
    try:
        with patch.object(Producer, method, return_value=None) as publish:
            sent = add.delay(2, 3)
    finally:
        signals.after_task_publish.disconnect(listen)

    assert (publish.call_count, after, waiting(redis_client)) == (1, [sent.id], [])


def test_a_call_is_sent_while_another_thread_imports_kombu(
    redis_client: redis.Redis, add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module is there before its classes are."""
    monkeypatch.setitem(sys.modules, "kombu.messaging", ModuleType("kombu.messaging"))

    add.delay(1, 2)

    assert len(waiting(redis_client)) == 1


def test_a_wrapped_producer_sends_a_unique_call_once(
    redis_client: redis.Redis, add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call gets the id of the first."""
    monkeypatch.setattr(Producer, "publish", Transparent(Producer.publish))

    first, second = (add.apply_async((1, 2), unique_for=60) for _ in range(2))

    assert (first.id, len(waiting(redis_client))) == (second.id, 1)


def test_a_listener_is_given_the_queue_of_kombu(app: Celery, add: Any) -> None:
    """OpenTelemetry tells a queue from a topic by its exchange. Looking at a queue does not add it to those served."""
    seen: list[tuple[str, str]] = []

    def before(declare: Any = None, **_: Any) -> None:
        seen.extend((queue.name, queue.exchange.type) for queue in declare)

    signals.before_task_publish.connect(before)
    try:
        add.delay(1, 2)
        add.apply_async((1, 2), queue="elsewhere")
    finally:
        signals.before_task_publish.disconnect(before)

    assert seen == [("celery", "direct"), ("elsewhere", "direct")]
    assert list(app.amqp.queues.consume_from) == ["celery"]


def test_the_engines_client_middleware_sees_a_task(redis_client: redis.Redis, add: Any) -> None:
    """It is a push like any other, with the task in the place of the job."""
    seen: list[Any] = []

    def note(job: Any, payload: dict[str, Any], queue: str, call_next: Any) -> Any:
        seen.append((job.name, payload["args"], queue))
        payload["noted"] = True
        return call_next()

    program.client_middleware.add(note)
    try:
        add.delay(1)
    finally:
        program.client_middleware.remove(note)

    assert seen == [("proj.add", [1], "celery")]
    assert waiting(redis_client)[0]["noted"] is True


def test_a_task_is_sent_by_its_name_alone(app: Celery, redis_client: redis.Redis) -> None:
    """Its code need not be here."""
    result = app.send_task("elsewhere.work", (1,), {"a": 2}, queue="high")

    [job] = waiting(redis_client, "high")
    assert (job["class"], job["jid"], job["args"]) == ("elsewhere.work", result.id, [1, {"a": 2}])


def test_a_base_class_may_change_how_tasks_are_sent(app: Celery, redis_client: redis.Redis) -> None:
    """`delay` and signatures go by it."""
    from sidekiq_celery import Task

    class Tenant(Task):
        def apply_async(self, *args: Any, **kwargs: Any) -> Any:
            kwargs.setdefault("headers", {})["tenant"] = "a"
            return super().apply_async(*args, **kwargs)

    @app.task(name="proj.of_tenant", base=Tenant)
    def of_tenant() -> None:
        pass

    of_tenant.delay()

    assert waiting(redis_client)[0]["celery"]["headers"] == {"tenant": "a"}


def test_a_name_that_is_not_known_becomes_an_attribute(app: Celery) -> None:
    """Also a misspelt one; projects rely on their own."""

    @app.task(name="proj.odd", ignore_results=True, team="billing")
    def odd() -> None:
        pass

    assert (odd.ignore_results, odd.team) == (True, "billing")


def test_a_task_goes_where_the_program_sends_its_pushes(redis_url: str, redis_client: redis.Redis, add: Any) -> None:
    """`Client.via` picks another Redis, and a push inside a transaction waits for its commit."""
    other = redis_url.rpartition("/")[0] + "/1"
    waiting_pushes: list[Any] = []

    def after_commit(push: Any) -> bool:
        waiting_pushes.append(push)
        return True

    with Client.via(other):
        add.delay(1)
    program.push_after_commit(after_commit)
    try:
        add.delay(2)
        assert waiting(redis_client) == []
        for push in waiting_pushes:
            push()
    finally:
        program.push_after_commit(None)

    assert [job["args"] for job in waiting(redis_client)] == [[2]]
    elsewhere = redis.Redis.from_url(other)
    assert [job["args"] for job in waiting(elsewhere)] == [[1]]
    elsewhere.close()
