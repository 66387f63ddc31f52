"""How events get to Redis: together, bounded, and never at a task's cost."""

import ctypes
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery.events import Event
from sidekiq_celery.events.outbox import MOST_EVENTS, Outbox, outbox_of

from tests.compat.events.event_monitor import LONG, EventMonitor
from tests.support.no_more_threads import without_more_threads
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import SOURCE_ROOTS

MakeApp = Callable[..., Celery]


def put(outbox: Outbox, count: int, **fields: Any) -> None:
    """Put in the events of *count* tasks."""
    for number in range(count):
        outbox.put(Event("task-started", uuid=str(number), **fields), "w1@here", "json")


def test_events_of_a_time_without_threads_go_with_the_next(app: Celery, monitor: EventMonitor) -> None:
    """No task fails for it, and monitors are not blind from then on."""
    outbox = outbox_of(app)
    without_more_threads(lambda: put(outbox, 3))

    put(outbox, 1)

    eventually(lambda: len(monitor.events) == 4, LONG)


def test_events_of_tasks_go_in_lists_of_a_hundred(
    app: Celery, monitor: EventMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order in which they came, and those of others in messages of their own between them."""
    # Nothing is sent before all are there, however slow the machine is.
    monkeypatch.setattr("sidekiq_celery.events.outbox._BATCHING_SECONDS", LONG)
    outbox = outbox_of(app)

    put(outbox, 150)
    outbox.publish(
        Event("worker-mood", good=True), routing_key="worker.mood", serializer="json", headers={"hostname": "x"}
    )
    put(outbox, 50)
    outbox.send_before(LONG)

    eventually(lambda: len(monitor.events) == 201, LONG)
    sizes = [len(message["body"]) if isinstance(message["body"], list) else 0 for _, message in monitor.messages]
    assert sizes == [100, 50, 0, 50]
    assert [channel for channel, _ in monitor.messages] == [
        *["/0.celeryev/task.multi"] * 2,
        "/0.celeryev/worker.mood",
        "/0.celeryev/task.multi",
    ]
    assert [event["uuid"] for event in monitor.events if "uuid" in event] == [
        *map(str, range(150)),
        *map(str, range(50)),
    ]


def test_what_redis_does_not_take_in_time_is_dropped_and_counted(
    make_app: MakeApp, new_redis_server: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever has an event never waits, and memory does not grow."""
    server = new_redis_server()
    outbox = outbox_of(make_app(server.url))

    with server.paused():
        started = time.monotonic()
        put(outbox, 2 * MOST_EVENTS)
        assert time.monotonic() - started < LONG / 2

    assert outbox.dropped >= MOST_EVENTS / 2
    eventually(lambda: "events were not sent" in caplog.text, LONG)


def test_nobody_waits_for_long(make_app: MakeApp) -> None:
    """Not for a Redis that is out of reach."""
    outbox = outbox_of(make_app("redis://127.0.0.1:1/0"))
    put(outbox, 1)

    started = time.monotonic()
    outbox.send_before(0.1)

    assert 0.1 <= time.monotonic() - started < LONG


def test_events_wait_for_a_redis_that_is_down(make_app: MakeApp, new_redis_server: Callable[..., RedisServer]) -> None:
    """They are sent when it is back."""
    server = new_redis_server()
    server.stop()
    outbox = outbox_of(make_app(server.url))

    put(outbox, 3)
    server.start()

    with server.client() as client:
        eventually(lambda: client.info("commandstats").get("cmdstat_publish", {}).get("calls") == 1, LONG)
    assert outbox.dropped == 0


def test_a_value_that_cannot_be_sent_keeps_no_other_event_back(app: Celery, monitor: EventMonitor) -> None:
    """It is dropped with its message."""
    outbox = outbox_of(app)
    about = {"routing_key": "task.own", "serializer": "json", "headers": {"hostname": "x"}}

    outbox.publish(Event("task-own", uuid="1", value=object()), **about)
    outbox.publish(Event("task-own", uuid="2", value=2), **about)

    assert monitor.wait_for("task-own")["uuid"] == "2"
    assert outbox.dropped == 1


def test_who_may_not_publish_is_told_once(
    make_app: MakeApp, redis_client: redis.Redis, redis_url: str, caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """With the rights that are missing."""
    redis_client.execute_command("ACL", "SETUSER", "quiet", "reset", "on", ">secret", "+@all", "-publish", "~*", "&*")
    request.addfinalizer(lambda: redis_client.acl_deluser("quiet"))
    outbox = outbox_of(make_app(redis_url.replace("://", "://quiet:secret@", 1)))

    for number in range(3):
        outbox.publish_now(Event("worker-mood", number=number), "x", "json")
    put(outbox, 2)

    eventually(lambda: outbox.dropped == 5, LONG)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "+publish and the channels '&*.celeryev/*'" in warnings[0]


def test_settings_of_the_broker_name_the_channels(make_app: MakeApp, redis_url: str, redis_client: redis.Redis) -> None:
    """As kombu names them: database, prefixes, exchange, and routing keys or none."""
    pubsub = redis_client.pubsub()
    pubsub.psubscribe("*")
    eventually(lambda: pubsub.get_message(timeout=0.1), LONG)
    event = Event("worker-mood")

    outbox_of(make_app(redis_url.replace("/0", "/3"))).publish_now(event, "x", "json")
    outbox_of(make_app(event_exchange="ev")).publish_now(event, "x", "json")
    options = {"fanout_prefix": "mine.", "fanout_patterns": False, "global_keyprefix": "key:"}
    outbox_of(make_app(broker_transport_options=options)).publish_now(event, "x", "json")

    channels = [pubsub.get_message(timeout=LONG)["channel"].decode() for _ in range(3)]
    pubsub.close()
    assert channels == ["/3.celeryev/worker.mood", "/0.ev/worker.mood", "key:mine.celeryev"]


def test_a_program_that_ends_sends_what_it_has(redis_url: str, monitor: EventMonitor) -> None:
    """A script that calls a task and is over has told of it."""
    script = (
        "from sidekiq_celery import Celery\n"
        f"app = Celery('proj', broker={redis_url!r})\n"
        "app.conf.task_send_sent_event = True\n"
        "app.send_task('proj.add', (1, 2), task_id='sent')\n"
    )
    paths = os.pathsep.join(map(str, SOURCE_ROOTS))
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": paths}, timeout=LONG)

    sent = monitor.wait_for("task-sent", "sent")

    assert (sent["name"], sent["args"], sent["queue"], sent["routing_key"]) == (
        "proj.add",
        "(1, 2)",
        "celery",
        "celery",
    )


def test_what_is_put_in_just_before_the_end_is_sent(app: Celery, monitor: EventMonitor) -> None:
    """Also where its thread has looked for the last time: here it is held while it logs."""
    outbox = outbox_of(app)
    closing = threading.Thread(target=outbox.close)

    class Closer(logging.Handler):
        """Puts in one more event, and closes."""

        def emit(self, record: logging.LogRecord) -> None:
            """In the outbox's thread, once."""
            if closing.ident is None:
                put(outbox, 1)
                closing.start()
                eventually(outbox._is_closing.is_set, LONG)

    closer = Closer()
    logging.getLogger("celery.events").addHandler(closer)
    try:
        put(outbox, 1, result=object())
        eventually(lambda: monitor.events, LONG)
    finally:
        logging.getLogger("celery.events").removeHandler(closer)

    closing.join(LONG)
    assert [event["uuid"] for event in monitor.events] == ["0"]


def test_a_forked_process_sends_its_own_events(redis_url: str, monitor: EventMonitor) -> None:
    """And not those of its parent, nor over its connection."""
    script = (
        "import os\n"
        "from sidekiq_celery import Celery\n"
        f"app = Celery('proj', broker={redis_url!r})\n"
        "def tell(name):\n"
        "    with app.events.default_dispatcher() as dispatcher:\n"
        "        dispatcher.send('custom-' + name)\n"
        "tell('before')\n"
        "from sidekiq_celery.events.outbox import close_all\n"
        "if os.fork() == 0:\n"
        "    tell('child')\n"
        "    close_all()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "tell('after')\n"
    )
    paths = os.pathsep.join(map(str, SOURCE_ROOTS))
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": paths}, timeout=LONG)

    monitor.wait_for("custom-after")
    assert sorted(event["type"] for event in monitor.events) == ["custom-after", "custom-before", "custom-child"]


def test_threads_of_a_process_that_was_forked_behind_python_lose_no_event(app: Celery, monitor: EventMonitor) -> None:
    """As of uWSGI: one must not put its event among those of the parent, while another discards these."""
    others: list[threading.Thread] = []

    class Discarding(Outbox):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "_letters" and hasattr(self, name):
                others.append(threading.Thread(target=put, args=(self, 1)))
                others[0].start()
                # It comes no further if it has to wait until all are discarded.
                others[0].join(0.3)
            super().__setattr__(name, value)

    outbox = Discarding(app)

    pid = ctypes.PyDLL(None).fork()
    if pid == 0:
        put(outbox, 1)
        others[0].join(LONG)
        outbox.close()
        os._exit(0)
    os.waitpid(pid, 0)

    eventually(lambda: len(monitor.events) == 2, LONG)


def test_who_has_to_can_wait_for_what_was_put_in(app: Celery, monitor: EventMonitor) -> None:
    """For a while: what is told by another process afterwards comes afterwards."""
    outbox = outbox_of(app)
    put(outbox, 250)

    outbox.send_before(LONG)

    eventually(lambda: len(monitor.events) == 250, LONG)
