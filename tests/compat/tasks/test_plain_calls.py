"""Calls without options take a short cut, which nobody can tell from the long way."""

import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu.exceptions import EncodeError, OperationalError
from sidekiq_celery import Celery, chain, chord, signals
from sidekiq_celery._send import plain_calls, publish

from sidekiq_py import program
from tests.compat.tasks.test_payloads import waiting

ROOT = Path(__file__).parents[3]
TIMES = re.compile(rb'"(created_at|enqueued_at)":[0-9.]+')
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1, "x"), {}),
    ((1.5, 1e22, "Zoë 100 %", None, True), {}),
    (((1, 2), {"a": {3: 4}}), {"on": date(2026, 1, 2)}),
    ((), {"kw": True}),
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"ignore_result": True},
    {"max_retries": None},
    {"max_retries": 0},
    {"queue": "high"},
    {"time_limit": 30, "soft_time_limit": 2.5},
    {"priority": 3},
    {"serializer": "yaml"},
]


def declared(app: Celery, **options: Any) -> Any:
    """A task that takes anything."""

    @app.task(name="proj.anything", **options)
    def anything(*args: Any, **kwargs: Any) -> None:
        pass

    return anything


def last_bytes(client: redis.Redis, queue: str) -> bytes:
    """What was sent last, but for its times."""
    raw = client.lpop(f"queue:{queue}")
    assert raw is not None
    return TIMES.sub(rb"\1", raw)


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
@pytest.mark.parametrize(("args", "kwargs"), CALLS, ids=repr)
def test_the_bytes_are_those_of_the_long_way(
    app: Celery, redis_client: redis.Redis, options: dict[str, Any], args: Any, kwargs: Any
) -> None:
    """Also where client middleware looks on, before which a payload is a dict."""
    task = declared(app, **options)
    queue = options.get("queue", "celery")

    task_id = task.delay(*args, **kwargs).id
    short = last_bytes(redis_client, queue)
    task.apply_async(args, kwargs, task_id=task_id)
    long = last_bytes(redis_client, queue)
    program.client_middleware.add(lambda job, payload, queue, call_next: call_next())
    try:
        task.apply_async(args, kwargs, task_id=task_id)
    finally:
        program.client_middleware.clear()

    assert short == long == last_bytes(redis_client, queue)


PLACES: list[dict[str, Any]] = [
    {"parent_id": "p-1", "root_id": "r-1"},
    {"group_id": "g-1", "group_index": 3, "reply_to": "thread-1"},
    {"group_id": "g-1", "group_index": 0, "parent_id": "p-1"},
    {"group_index": 0},
    {"group_id": "g-1", "chord": {"id": "g-1", "part": 2}},
    {"chain": [{"id": "f-1", "next": "s-1"}]},
    {"chain": [], "chord": {"id": "g-1", "part": 2}, "reply_to": "thread-1"},
    {"task_id": "own-id"},
]


@pytest.mark.parametrize("options", [{}, {"time_limit": 30}, {"ignore_result": True}], ids=repr)
@pytest.mark.parametrize("place", PLACES, ids=repr)
def test_the_place_in_a_workflow_stands_where_the_long_way_puts_it(
    app: Celery, redis_client: redis.Redis, options: dict[str, Any], place: dict[str, Any]
) -> None:
    """Steps, members and parts go the short way as well."""
    task = declared(app, **options)

    task_id = task.apply_async((1,), {"on": date(2026, 1, 2)}, **place).id
    short = last_bytes(redis_client, "celery")
    # A router that may look at arguments.
    app.conf.task_routes = [lambda name, args, kwargs, options, task=None, **_: None]
    app.amqp.flush_routes()
    task.apply_async((1,), {"on": date(2026, 1, 2)}, **{**place, "task_id": task_id})

    assert short == last_bytes(redis_client, "celery")


def test_a_workflow_is_sent_without_messages(
    app: Celery, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chord of a thousand parts is a thousand calls."""
    task = declared(app)
    task.delay()
    monkeypatch.setattr(publish, "create_message", None)
    monkeypatch.setattr(plain_calls, "as_task_v2", None)

    chord([task.s(number) for number in range(3)], task.s()).apply_async()
    chain(task.s(3), task.s(), task.s()).apply_async()

    assert [job["args"] for job in waiting(redis_client)] == [[], [0], [1], [2], [3]]


def test_a_call_without_options_is_no_message(
    app: Celery, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the short cut would be none."""
    task = declared(app, time_limit=30)
    task.delay(1)
    monkeypatch.setattr(publish, "create_message", None)
    monkeypatch.setattr(plain_calls, "as_task_v2", None)

    task.delay(2)
    task.apply_async((3,))

    assert [job["args"] for job in waiting(redis_client)] == [[1], [2], [3]]


def test_what_changes_counts_from_the_next_call_on(app: Celery, redis_client: redis.Redis) -> None:
    """Attributes of the task, settings, routes: as if there were no template."""
    task = declared(app)
    task.delay(1)
    task.max_retries = 1
    task.delay(2)
    task.max_retries = True
    task.delay(3)
    task.ignore_result = True
    task.delay(4)
    app.conf.task_default_queue = "other"
    app.amqp.flush_routes()
    task.delay(5)
    app.conf.task_routes = {"proj.*": "routed"}
    app.amqp.flush_routes()
    task.delay(6)

    assert [(job["args"][0], job["retry"]) for job in waiting(redis_client)] == [(1, 3), (2, 1), (3, 1), (4, 1)]
    assert [job["args"] for job in waiting(redis_client, "other")] == [[5]]
    assert [job["args"] for job in waiting(redis_client, "routed")] == [[6]]


def test_what_a_route_says_is_asked_at_every_call(app: Celery, redis_client: redis.Redis) -> None:
    """Its dict may be changed in place."""
    app.conf.task_routes = {"proj.*": {"queue": "first"}}
    task = declared(app)
    task.delay(1)

    app.conf.task_routes["proj.*"]["queue"] = "second"
    task.delay(2)

    assert [job["args"] for job in waiting(redis_client, "second")] == [[2]]


def test_calls_into_many_queues_keep_few_templates(app: Celery, redis_client: redis.Redis) -> None:
    """The rest goes the long way."""
    task = declared(app)

    for number in range(50):
        task.apply_async((number,), queue=f"q{number}")

    assert len(task._plain_calls) <= 8
    assert all(waiting(redis_client, f"q{number}")[0]["args"] == [number] for number in range(50))


def test_options_that_json_lacks_are_refused_as_arguments_are(app: Celery, redis_client: redis.Redis) -> None:
    """With kombu's error, which programs catch."""
    task = declared(app)

    with pytest.raises(EncodeError):
        task.apply_async((1,), time_limit=float("nan"))

    assert waiting(redis_client) == []


def test_a_serializer_that_is_set_later_counts(app: Celery, redis_client: redis.Redis) -> None:
    """What would be bent by json goes along in it."""
    task = declared(app)
    task.delay(1)
    task.serializer = None
    task._exec_options = None
    app.conf.task_serializer = "yaml"
    task.delay(2)

    assert [job["celery"].get("content_type") for job in waiting(redis_client)] == [None, "application/x-yaml"]


def test_listeners_and_routers_hear_of_every_call(app: Celery, redis_client: redis.Redis) -> None:
    """From the moment on in which they are there."""
    task = declared(app)
    task.delay(1)
    heard: list[Any] = []

    def hear(body: Any, **_: Any) -> None:
        heard.append(body[0])

    signals.before_task_publish.connect(hear)
    try:
        task.delay(2)
    finally:
        signals.before_task_publish.disconnect(hear)
    app.conf.task_routes = [lambda name, args, kwargs, options, task=None, **_: heard.append(args)]
    app.amqp.flush_routes()
    task.delay(3)
    task.delay(4)

    assert heard == [(2,), (3,), (4,)]
    assert len(waiting(redis_client)) == 4


def test_a_subclass_of_the_app_sees_every_call(redis_url: str, redis_client: redis.Redis) -> None:
    """Programs override `send_task`, and packages wrap it."""
    seen: list[str] = []

    class Watching(Celery):
        def send_task(self, name: str, *args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            return super().send_task(name, *args, **kwargs)

    app = Watching("proj", broker=redis_url, set_as_current=False, fixups=[])
    task = declared(app)

    task.delay(1)
    task.delay(2)

    assert seen == ["proj.anything"] * 2
    app.close()


@pytest.mark.parametrize(
    ("argument", "error"), [(object(), EncodeError), ({1: {object(): 1}}, EncodeError), (float("nan"), EncodeError)]
)
def test_what_cannot_be_sent_is_named_and_not_sent(
    app: Celery, redis_client: redis.Redis, argument: Any, error: type[Exception]
) -> None:
    """The long way says so, once there is a template too."""
    task = declared(app)
    task.delay(1)

    with pytest.raises(error):
        task.delay(argument)

    assert len(waiting(redis_client)) == 1


@pytest.mark.parametrize(("args", "kwargs"), [("ab", {}), ({1: 2}, {}), ((), [("a", 1)]), (5, None)])
def test_arguments_that_are_none_are_refused(app: Celery, redis_client: redis.Redis, args: Any, kwargs: Any) -> None:
    """A text is no list of its letters."""
    task = declared(app, typing=False)
    task.delay(1)

    with pytest.raises(TypeError, match=r"task (args|keyword arguments) must be a"):
        task.apply_async(args, kwargs)

    assert len(waiting(redis_client)) == 1


def test_a_redis_that_is_away_is_an_operational_error(app: Celery) -> None:
    """Tried as often as the settings say."""
    app.conf.broker_url = "redis://127.0.0.1:1/0"
    app.conf.task_publish_retry_policy = {"max_retries": 2, "interval_start": 0, "interval_step": 0}
    task = declared(app)

    with pytest.raises(OperationalError, match="out of reach"):
        task.delay(1)


def test_a_forked_child_is_named_as_the_origin(redis_url: str, redis_client: redis.Redis) -> None:
    """It has the template of its parent."""
    program = (
        "import os\n"
        "from sidekiq_celery import Celery\n"
        f"app = Celery('proj', broker={redis_url!r})\n"
        "@app.task(name='t')\n"
        "def t(): pass\n"
        "t.delay()\n"
        "pid = os.fork()\n"
        "if pid: os.waitpid(pid, 0)\n"
        "else: t.delay(); os._exit(0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'compat'}"}

    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=environment)

    parent, child = (job["celery"]["origin"] for job in waiting(redis_client))
    assert parent != child
