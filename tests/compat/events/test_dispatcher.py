"""`app.events`: sending and receiving by kombu."""

import io
import threading
from collections.abc import Callable
from copy import copy
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery.events import Event, EventDispatcher, EventReceiver, get_exchange, group_from
from sidekiq_celery.events.dumper import Dumper
from sidekiq_celery.exceptions import ImproperlyConfigured

from tests.compat.events.event_monitor import LONG, EventMonitor
from tests.support.waiting import eventually

MakeApp = Callable[..., Celery]


def test_an_event_has_a_type_and_a_time() -> None:
    """The time is now unless one is given."""
    assert Event("custom-x", a=1).keys() == {"type", "timestamp", "a"}
    assert Event("custom-x", timestamp=3.0) == {"type": "custom-x", "timestamp": 3.0}
    assert group_from("task-sent") == "task"


def test_a_dispatcher_sends_at_once(app: Celery, monitor: EventMonitor) -> None:
    """By kombu, under the key of the type, with the fields that all events have."""
    with app.connection_for_write() as connection, app.events.Dispatcher(connection, hostname="me") as dispatcher:
        assert isinstance(dispatcher, EventDispatcher)
        dispatcher.send("custom-mood", good=True)

    event = monitor.wait_for("custom-mood")
    assert (event["good"], event["hostname"]) == (True, "me")
    assert {"clock", "pid", "timestamp", "utcoffset"} <= event.keys()
    assert monitor.messages[0][0] == "/0.celeryev/custom.mood"


def test_groups_are_left_out_or_sent_together(app: Celery, monitor: EventMonitor) -> None:
    """`groups` says what is sent at all, `buffer_group` what waits for `flush`."""
    with app.connection_for_write() as connection:
        dispatcher = app.events.Dispatcher(connection, groups=["task"], buffer_group=["task"])
        dispatcher.send("worker-mood")
        dispatcher.send("task-own", uuid="1")
        dispatcher.send("task-own", uuid="2")
        dispatcher.flush()
        dispatcher.close()

    monitor.wait_for("task-own", "2")
    assert [len(message["body"]) for _, message in monitor.messages] == [2]


def test_a_group_whose_first_event_comes_during_a_flush_is_sent_by_the_next_one(
    app: Celery, monitor: EventMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads send events while one publishes."""
    with app.connection_for_write() as connection:
        dispatcher = app.events.Dispatcher(connection, buffer_group=["task", "worker"])
        publish = dispatcher.producer.publish

        def publish_meanwhile(*args: Any, **kwargs: Any) -> None:
            monkeypatch.undo()
            dispatcher.send("worker-mood")
            publish(*args, **kwargs)

        monkeypatch.setattr(dispatcher.producer, "publish", publish_meanwhile)
        dispatcher.send("task-own", uuid="1")
        dispatcher.flush()
        dispatcher.flush()
        dispatcher.close()

    monitor.wait_for("task-own", "1")
    monitor.wait_for("worker-mood")


def test_a_dispatcher_that_is_off_sends_nothing(app: Celery, monitor: EventMonitor) -> None:
    """Until it is switched on; those who want to know are told."""
    calls: list[str] = []
    with app.connection_for_write() as connection:
        dispatcher = app.events.Dispatcher(connection, enabled=False)
        dispatcher.on_enabled.add(lambda: calls.append("on"))
        dispatcher.on_disabled.add(lambda: calls.append("off"))
        dispatcher.send("custom-lost")
        dispatcher.enable()
        dispatcher.send("custom-sent")
        dispatcher.disable()

    monitor.wait_for("custom-sent")
    assert (len(monitor.events), calls) == (1, ["on", "off"])


def test_the_default_dispatcher_does_not_wait(make_app: MakeApp, redis_url: str) -> None:
    """It takes events where Redis is out of reach, and does not raise."""
    app = make_app("redis://127.0.0.1:1/0")

    with app.events.default_dispatcher(hostname="me") as dispatcher:
        dispatcher.send("custom-mood", retry=True)

    assert dispatcher.hostname == "me"


def test_a_receiver_hands_events_to_handlers(app: Celery, redis_client: redis.Redis) -> None:
    """By type, the rest to `*`; with the time at which they came, and the state they make up."""
    moods: list[dict[str, Any]] = []
    state = app.events.State()

    def capture() -> None:
        with app.connection_for_read() as connection:
            receiver = app.events.Receiver(connection)
            assert isinstance(receiver, EventReceiver)

            def on_mood(event: dict[str, Any]) -> None:
                moods.append(event)
                receiver.should_stop = True

            receiver.handlers.update({"custom-mood": on_mood, "*": state.event})
            receiver.capture(timeout=LONG, wakeup=False)

    thread = threading.Thread(target=capture)
    thread.start()
    eventually(lambda: redis_client.pubsub_numpat() == 1, LONG)
    with app.connection_for_write() as connection, app.events.Dispatcher(connection, hostname="w1@here") as dispatcher:
        dispatcher.send("worker-online", freq=600)
        dispatcher.send("task-received", uuid="1", name="proj.add", args="(1, 2)", kwargs="{}")
        dispatcher.send("custom-mood", good=True)
    thread.join(LONG)

    assert moods[0]["good"] is True
    assert moods[0]["local_received"] >= moods[0]["timestamp"] - 1
    assert [worker.hostname for worker in state.alive_workers()] == ["w1@here"]
    assert state.tasks["1"].info() == {"args": "(1, 2)", "kwargs": "{}"}


ALMOST = {"type": "task-received", "uuid": "1", "hostname": "w1@here", "timestamp": 1.0, "clock": 1, "utcoffset": 0}


@pytest.mark.parametrize(
    "bad",
    [
        "x",
        {},
        {**ALMOST, "type": None},
        {**ALMOST, "name": ["x"]},
        {**ALMOST, "timestamp": float("nan")},
        {**ALMOST, "timestamp": 1e300},
        {**ALMOST, "uuid": ["x"]},
        {**ALMOST, "type": "worker-online", "freq": "x"},
        {**ALMOST, "type": "worker-online", "hostname": {}},
    ],
    ids=str,
)
def test_an_event_that_is_not_well_formed_ends_no_monitor(
    app: Celery, bad: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever reaches the broker can send one. It is logged and ignored, and the next one is heard."""
    state, out = app.events.State(), io.StringIO()
    with app.connection_for_read() as connection:
        for read in (state.event, Dumper(out).on_event):
            receiver = app.events.Receiver(connection, handlers={"*": read})
            receiver._receive([copy(bad), {**ALMOST, "name": "proj.add"}], None)

    assert [task.name for _, task in state.itertasks()] == ["proj.add"]
    assert out.getvalue().count("task received: proj.add(1)") == 1
    assert sum("is ignored" in message for message in caplog.messages) == 2


@pytest.mark.parametrize(
    "fields",
    [{"children": 3, "cluster_state": "x"}, {"heartbeats": 1}, {"clock": None}, {"clock": "x"}, {"clock": 1e300}],
    ids=str,
)
def test_an_event_of_a_programs_own_form_is_heard(app: Celery, fields: dict[str, Any]) -> None:
    """Programs may send any fields, and a clock that is none, as in events that are `blind`, does not matter."""
    state = app.events.State()
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": state.event})
        receiver._receive([{**ALMOST, **fields}, {**ALMOST, "type": "worker-online", **fields}], None)

    assert [(task.uuid, list(task.children)) for _, task in state.itertasks()] == [("1", [])]
    assert 0 < app.clock.value < 100
    assert len(state.workers["w1@here"].heartbeats) >= 1


@pytest.mark.parametrize("missing", ["uuid", "hostname", "timestamp"])
def test_an_event_that_lacks_a_field_ends_no_monitor(app: Celery, missing: str) -> None:
    """Handlers get it as it came. The state has no place for it, and it is printed with what it has."""
    state, out = app.events.State(), io.StringIO()
    with app.connection_for_read() as connection:
        for read in (state.event, Dumper(out).on_event):
            receiver = app.events.Receiver(connection, handlers={"*": read})
            receiver._receive({key: value for key, value in ALMOST.items() if key != missing}, None)

    assert (state.event_count, list(state.itertasks())) == (1, [])
    assert "task received: " in out.getvalue()


def test_printed_events_are_a_line_each_and_send_nothing_to_a_terminal() -> None:
    """They repeat what payloads say."""
    out = io.StringIO()

    Dumper(out).on_event({**ALMOST, "name": "x\nforged", "exception": "\x1b]0;title\x07"})

    assert r"x\nforged" in out.getvalue()
    assert r"exception=\x1b]0;title\x07" in out.getvalue()
    assert out.getvalue().count("\n") == 1


def test_settings_name_the_queue_of_a_receiver(make_app: MakeApp) -> None:
    """Prefix, exchange, and that it cannot be exclusive and durable at once."""
    app = make_app(event_queue_prefix="ours", event_exchange="ev", event_queue_ttl=3.0, event_queue_expires=9.0)

    with app.connection_for_read() as connection:
        queue = app.events.Receiver(connection, node_id="me").queue
        assert (queue.name, queue.exchange.name, queue.message_ttl, queue.expires) == ("ours.me", "ev", 3.0, 9.0)
        assert get_exchange(connection).type == "fanout"
        with pytest.raises(ImproperlyConfigured, match="event_queue_exclusive=False"):
            app.events.Receiver(connection, queue_exclusive=True, queue_durable=True)


def test_a_receiver_accepts_its_serializer_and_json(make_app: MakeApp) -> None:
    """`event_serializer` names the one."""
    app = make_app(event_serializer="yaml")

    with app.connection_for_read() as connection, app.events.Dispatcher(connection) as dispatcher:
        assert app.events.Receiver(connection).accept == {"yaml", "json"}
        assert dispatcher.serializer == "yaml"
