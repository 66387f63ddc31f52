"""The real Celery reads our events, and ours reads those of its workers."""

import io
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import redis
from sidekiq_celery import Celery
from sidekiq_celery.events.dumper import Dumper

from tests.compat.events.event_monitor import LONG, listening
from tests.support.child_process import tied_to_this_process
from tests.support.real_celery import python_with_celery
from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess

SCRIPT = Path(__file__).with_name("celery_side.py")


@contextmanager
def real_celery(url: str, what: str) -> Iterator[subprocess.Popen[str]]:
    """A process of the real Celery, gone behind the block."""
    command = tied_to_this_process([python_with_celery(), str(SCRIPT), url, what])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_celery_reads_the_events_of_our_workers(
    start: Callable[..., SidekiqProcess], project: ModuleType, redis_url: str, redis_client: redis.Redis
) -> None:
    """Its receiver and its state see workers and tasks as those of its own."""
    with real_celery(redis_url, "watch") as watching:
        eventually(lambda: redis_client.pubsub_numpat() == 1, LONG)
        worker = start("-P", "threads", "-c", "1", "-E", "-n", "ours@here")
        done, failed = project.add.delay(1, 2), project.fail.delay()
        done.get(timeout=LONG)
        failed.get(timeout=LONG, propagate=False)
        worker.stop(within_seconds=LONG)
        seen = json.loads(watching.communicate(timeout=LONG)[0])

    tasks = {uuid: {"state": task["state"], "name": task["name"]} for uuid, task in seen["tasks"].items()}
    assert tasks == {
        done.id: {"state": "SUCCESS", "name": project.add.name},
        failed.id: {"state": "FAILURE", "name": project.fail.name},
    }
    told = seen["tasks"][done.id]
    assert (told["args"], told["result"], told["worker"]) == ("(1, 2)", "3", "ours@here")
    assert seen["tasks"][failed.id]["exception"] == "ValueError('no')"
    # What tells of the worker is no thread that runs tasks, and may be slower than the first task.
    assert "worker-online" in seen["seen"]


def test_unusual_events_of_celerys_workers_are_heard(app: Celery, redis_url: str, redis_client: redis.Redis) -> None:
    """Ids may be UUIDs or numbers, and a program's own events have any fields and any clock."""
    # A thread that listens would stay behind where the test is skipped.
    python_with_celery()
    state, out, seen = app.events.State(), io.StringIO(), []

    def capture() -> None:
        with app.connection_for_read() as connection:
            receiver = app.events.Receiver(connection)

            def take(event: dict[str, Any]) -> None:
                seen.append((event["type"], str(event.get("uuid"))))
                state.event(event)
                Dumper(out).on_event(dict(event))
                receiver.should_stop = seen[-1] == ("task-succeeded", "reports")

            receiver.handlers["*"] = take
            receiver.capture(timeout=LONG, wakeup=False)

    thread = threading.Thread(target=capture)
    thread.start()
    eventually(lambda: redis_client.pubsub_numpat() == 1, LONG)
    with real_celery(redis_url, "work-oddly"):
        thread.join(LONG)

    called = state.tasks[UUID(int=5)]
    assert (called.state, called.name, called.root_id, called.parent_id) == ("SUCCESS", "proj.add", UUID(int=6), 7)
    assert (state.tasks["reports"].state, list(state.tasks["reports"].children)) == ("SUCCESS", [])
    assert {("task-progress", "reports"), ("order-update", "[1]")} <= set(seen)
    assert "shop [1800000000000.0] order update: " in out.getvalue()


def test_our_events_have_the_form_of_celerys(
    start: Callable[..., SidekiqProcess], project: ModuleType, app: Celery, redis_url: str, redis_client: redis.Redis
) -> None:
    """Each event of a worker of ours has the channel, the headers and the fields of the same of Celery's."""
    start("-P", "threads", "-c", "1", "-E", "-n", "ours@here")
    kinds = ("worker-heartbeat", "task-received", "task-started", "task-succeeded")
    both = {(name, kind) for name in ("real@here", "ours@here") for kind in kinds}
    with listening(redis_url) as monitor:
        ours = project.add.delay(1, 2).id
        with real_celery(redis_url, "work"):
            eventually(lambda: both <= {(event["hostname"], event["type"]) for event in monitor.events}, LONG)
        messages = list(monitor.listen().messages)

    state: Any = app.events.State()
    for event in monitor.events:
        state.event(event | {"local_received": event["timestamp"]})
    assert state.tasks["by-itself"].state == state.tasks[ours].state == "SUCCESS"
    assert set(state.workers) == {"real@here", "ours@here"}
    for kind in kinds:
        forms = [_form(channel, message, kind) for channel, message in messages if _has(message, kind)]
        assert {form[0] for form in forms} == {"real@here", "ours@here"}
        assert len({form[1:] for form in forms}) == 1, forms


def _has(message: dict[str, Any], kind: str) -> bool:
    return any(event["type"] == kind for event in _events(message))


def _form(channel: str, message: dict[str, Any], kind: str) -> tuple[Any, ...]:
    event = next(event for event in _events(message) if event["type"] == kind)
    properties = {**message["properties"], "delivery_tag": None}
    head = (message["content-type"], message["content-encoding"], repr(sorted(properties.items())))
    types = tuple(sorted((name, type(value).__name__) for name, value in event.items()))
    return event["hostname"], channel, isinstance(message["body"], list), head, types


def _events(message: dict[str, Any]) -> list[dict[str, Any]]:
    body = message["body"]
    return body if isinstance(body, list) else [body]
