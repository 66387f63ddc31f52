"""What a worker tells monitors."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest
import redis
from sidekiq_celery import Celery, chord
from sidekiq_celery.contrib.testing.worker import start_worker

from sidekiq_py import redaction
from tests.compat.events.event_monitor import LONG, EventMonitor
from tests.support.celery_program import wait_for_an_answer
from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess

StartWorker = Callable[..., SidekiqProcess]


def test_a_chords_body_is_sent_once(
    start: StartWorker, project: ModuleType, monitor: EventMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part has it ready, should it be the last; monitors hear of the one that is sent."""
    monkeypatch.setenv("PROJECT_TELLS_OF_SENT_TASKS", "1")
    start("-P", "prefork", "-c", "2", "-E", processes=2)

    body = chord([project.add.s(number, number) for number in range(9)], project.total.s()).apply_async()

    assert body.get(timeout=LONG) == 72
    monitor.wait_for("task-succeeded", body.id)
    assert [event["type"] for event in monitor.of(body.id)].count("task-sent") == 1


def test_monitors_and_the_log_see_no_hidden_value(
    start: StartWorker, project: ModuleType, monitor: EventMonitor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Arguments from the call on, the result, and the errors of hooks and of what the task logs."""
    policy = tmp_path / "redaction.yml"
    policy.write_text("jobs: {'*.stumble': ['args[0]', result, error_message]}")
    monkeypatch.setenv("SIDEKIQ_REDACTION", str(policy))
    monkeypatch.setattr(redaction, "_current", None)
    project.app.conf.task_send_sent_event = True
    worker = start("-E", "-c", "1", "-l", "info", SIDEKIQ_REDACTION=str(policy))

    task_id = project.stumble.delay("hunter2").id
    sent, succeeded = (monitor.wait_for(kind, task_id) for kind in ("task-sent", "task-succeeded"))
    eventually(lambda: "the program's own line" in worker.log and "LookupError: [redacted]" in worker.log)

    assert (sent["args"], succeeded["result"]) == ("[redacted]", "'[redacted]'")
    assert "on_success raised: ValueError('[redacted]')" in worker.log
    assert "hunter2" not in worker.log + json.dumps(monitor.events)


def test_tasks_are_told_of_from_receiving_to_their_end(
    start: StartWorker, project: ModuleType, monitor: EventMonitor
) -> None:
    """Each state has its event, with Celery's fields, from the process that ran the task."""
    start("-P", "prefork", "-c", "2", "-E", processes=2)

    done, failed = project.add.delay(1, 2).id, project.fail.delay().id
    again, rejected = project.again.delay().id, project.reject.delay().id
    early = project.reject_early.delay().id
    expired = project.add.apply_async((3, 4), expires=-1).id
    shadowed = project.add.apply_async((5, 6), shadow="proj.shown").id

    succeeded = monitor.wait_for("task-succeeded", done)
    assert (succeeded["result"], succeeded["runtime"] > 0) == ("3", True)
    assert monitor.kinds(done) == ["task-received", "task-started", "task-succeeded"]
    received = monitor.of(done)[0]
    assert {key: received[key] for key in ("name", "args", "kwargs", "retries", "eta", "expires", "parent_id")} == {
        "name": "tests.compat.events.project.add",
        "args": "(1, 2)",
        "kwargs": "{}",
        "retries": 0,
        "eta": None,
        "expires": None,
        "parent_id": None,
    }
    assert monitor.wait_for("task-received", shadowed)["name"] == "proj.shown"
    failure = monitor.wait_for("task-failed", failed)
    assert failure["exception"] == "ValueError('no')"
    assert "in fail" in failure["traceback"]
    monitor.wait_for("task-failed", again)
    tried = ["task-received", "task-started"]
    # The two tries may have been those of two processes, of which the one may tell what the other has told already.
    assert monitor.wait_for("task-retried", again)["exception"] == "KeyError('again')"
    assert monitor.kinds(again) == [*tried, "task-retried", *tried, "task-failed"]
    assert monitor.wait_for("task-rejected", rejected)["requeue"] is False
    assert monitor.kinds(rejected) == [*tried, "task-failed", "task-rejected"]
    monitor.wait_for("task-failed", early)
    revoked = monitor.wait_for("task-revoked", expired)
    assert (revoked["expired"], revoked["terminated"], revoked["signum"]) == (True, False, None)
    # Without acks_late, Celery has acknowledged the task by then, so it is not rejected.
    assert monitor.kinds(early) == [*tried, "task-failed"]


def test_a_receiver_hears_a_worker_and_its_tasks(start: StartWorker, project: ModuleType) -> None:
    """A worker's clock is that of the day, in milliseconds, and far ahead of one that only counts."""
    start("-P", "threads", "-c", "1", "-E", "-n", "ours@here")
    state = project.app.events.State()

    with project.app.connection_for_read() as connection:
        receiver = project.app.events.Receiver(connection, handlers={"*": state.event})
        with closing(receiver.itercapture(timeout=LONG)) as messages:
            next(messages)
            done = project.add.delay(1, 2)
            while done.id not in state.tasks or state.tasks[done.id].state != "SUCCESS":
                next(messages)
            # One that has sent no heartbeat for a moment, as on a busy machine, is alive again with the next one.
            while not (alive := [worker.hostname for worker in state.alive_workers()]):
                next(messages)

    assert alive == ["ours@here"]
    assert state.tasks[done.id].result == "3"


def test_a_terminated_task_is_told_of_with_its_signal(
    start: StartWorker, project: ModuleType, monitor: EventMonitor
) -> None:
    """As a number, as in Celery."""
    start("-P", "prefork", "-c", "2", "-E", processes=2)

    running = project.wait.delay()
    monitor.wait_for("task-started", running.id)
    wait_for_an_answer(project.app, limit=1)
    running.revoke(terminate=True, signal="KILL")

    revoked = monitor.wait_for("task-revoked", running.id)
    assert (revoked["expired"], revoked["terminated"], revoked["signum"]) == (False, True, signal.SIGKILL)


def test_a_task_that_is_not_registered_never_started(
    start: StartWorker, project: ModuleType, monitor: EventMonitor
) -> None:
    """Monitors hear that it arrived and failed, in Celery's words."""
    start("-P", "threads", "-c", "1", "-E")

    unknown = project.app.send_task("proj.nowhere").id

    failed = monitor.wait_for("task-failed", unknown)
    assert (failed["exception"], "traceback" in failed) == ("NotRegistered('proj.nowhere')", False)
    assert monitor.kinds(unknown) == ["task-received", "task-failed"]


def test_events_go_out_in_lists_under_the_workers_name(
    start: StartWorker, project: ModuleType, monitor: EventMonitor
) -> None:
    """As a worker of Celery sends them: `task.multi`, with one header, and times that rise."""
    start("-P", "threads", "-c", "1", "-E", "-n", "w1@here")

    ended = monitor.wait_for("task-succeeded", project.add.delay(1, 2).id)

    lists = [(channel, message) for channel, message in monitor.messages if isinstance(message["body"], list)]
    channel, message = next(one for one in lists if ended in one[1]["body"])
    assert (channel, message["headers"]) == ("/0.celeryev/task.multi", {"hostname": "w1@here"})
    assert message["properties"]["delivery_info"] == {"exchange": "celeryev", "routing_key": "task.multi"}
    events = monitor.of(ended["uuid"])
    assert all({"clock", "timestamp", "utcoffset", "pid"} <= event.keys() for event in events)
    assert {event["hostname"] for event in events} == {"w1@here"}
    assert [event["clock"] for event in events] == sorted({event["clock"] for event in events})


def test_a_worker_tells_that_it_starts_lives_and_ends(
    start: StartWorker, project: ModuleType, monitor: EventMonitor
) -> None:
    """Also without -E; a heartbeat says how many tasks have run."""
    worker = start("-P", "prefork", "-c", "1", "-n", "w1@here")
    project.add.delay(1, 2).get(timeout=LONG)

    online = monitor.wait_for("worker-online")
    assert (online["hostname"], online["pid"], online["freq"]) == ("w1@here", worker.pid, 2.0)
    assert (online["sw_ident"], len(online["loadavg"])) == ("sidekiq-py", 3)
    eventually(lambda: monitor.wait_for("worker-heartbeat") and monitor.events[-1].get("processed") == 1, LONG)
    worker.stop(within_seconds=LONG)
    monitor.wait_for("worker-offline")
    assert [event["type"] for event in monitor.events if event["type"].startswith("task-")] == []


def test_a_test_worker_tells_nothing_of_itself_unless_asked(monitor: EventMonitor, redis_url: str) -> None:
    """As in Celery: suites of exporters count a task's events, and turn heartbeats on where they want them."""
    app = Celery("proj", broker=redis_url, backend=redis_url, set_as_current=False)

    with start_worker(app, perform_ping_check=False, hostname="silent@here"):
        pass
    with start_worker(app, perform_ping_check=False, hostname="heard@here", without_heartbeat=False):
        pass

    monitor.wait_for("worker-offline")
    assert {event["hostname"] for event in monitor.events} == {"heard@here"}


def test_who_listens_to_heartbeats_is_given_the_workers_dispatcher(start: StartWorker, monitor: EventMonitor) -> None:
    """JumpServer names the file of its liveness probe by `sender.eventer.hostname`."""
    start("-P", "solo", "-n", "w1@here")

    heard = monitor.wait_for("heart-heard")

    assert (heard["of"], heard["hostname"]) == ("w1@here", "w1@here")


def test_events_of_the_workers_dispatcher_are_sent_after_an_outage(
    start: StartWorker, monitor: EventMonitor, redis_client: redis.Redis
) -> None:
    """As in Celery. Otherwise they would stay in the worker for ever."""
    start("-P", "solo", "-n", "w1@here")
    monitor.wait_for("heart-heard")
    redis_client.config_resetstat()
    redis_client.acl_setuser("default", enabled=True, commands=["-publish"])
    try:
        # The heartbeat itself, and the event before it.
        eventually(
            lambda: redis_client.info("commandstats").get("cmdstat_publish", {}).get("rejected_calls", 0) >= 2, LONG
        )
    finally:
        redis_client.acl_setuser("default", enabled=True, commands=["+publish"])

    def numbers() -> list[int]:
        return sorted(event["number"] for event in monitor.events if event["type"] == "heart-heard")

    eventually(lambda: len(numbers()) >= 4, LONG)
    assert numbers() == list(range(len(numbers())))


def test_events_are_switched_on_and_off_while_a_worker_runs(
    start: StartWorker, project: ModuleType, monitor: EventMonitor
) -> None:
    """`enable_events` and `disable_events` reach all processes, also those that start later."""
    worker = start("-P", "prefork", "-c", "1", "-n", "w1@here")
    control = project.app.control
    # It has listened by then.
    monitor.wait_for("worker-heartbeat")

    assert control.enable_events(reply=True, timeout=LONG, limit=1) == [{"w1@here": {"ok": "task events enabled"}}]
    eventually(lambda: project.add.delay(1, 2) and _told_of_any(monitor), LONG, every_seconds=0.2)
    reply = control.enable_events(reply=True, timeout=LONG, limit=1)
    assert reply == [{"w1@here": {"ok": "task events already enabled"}}]
    _kill_children(worker)
    worker.wait_until_ready(within_seconds=LONG)
    monitor.wait_for("task-succeeded", project.add.delay(3, 4).id)
    reply = control.disable_events(reply=True, timeout=LONG, limit=1)
    assert reply == [{"w1@here": {"ok": "task events disabled"}}]


def test_tasks_of_their_own_mind_are_heard(start: StartWorker, project: ModuleType, monitor: EventMonitor) -> None:
    """`send_event` goes under its own key, a long result is cut, and `send_events=False` says nothing."""
    start("-P", "threads", "-c", "1", "-E")

    silent, ignored = project.silent.delay(), project.ignore.delay().id
    own = project.progress.delay().id

    assert monitor.wait_for("task-progress", own)["done"] == 3
    result = monitor.wait_for("task-succeeded", own)["result"]
    assert (len(result), result[-3:]) == (1029, "..'")
    assert monitor.kinds(ignored) == ["task-received", "task-started"]
    assert monitor.of(silent.id) == []


def test_coroutines_are_told_of(start: StartWorker, project: ModuleType, monitor: EventMonitor) -> None:
    """They run on the loop, side by side."""
    start("-P", "asyncio", "-c", "5", "-E")

    ids = [project.coroutine.delay().id for _ in range(5)]

    for task_id in ids:
        monitor.wait_for("task-succeeded", task_id)
        assert monitor.kinds(task_id) == ["task-received", "task-started", "task-succeeded"]


def test_what_ran_last_is_told_before_a_worker_ends(
    start: StartWorker, project: ModuleType, monitor: EventMonitor
) -> None:
    """A child sends what it has not sent yet before it goes."""
    worker = start("-P", "prefork", "-c", "1", "-E")
    last = project.add.delay(1, 2)
    last.get(timeout=LONG)

    worker.stop(within_seconds=LONG)

    monitor.wait_for("task-succeeded", last.id)
    monitor.wait_for("worker-offline")


def test_a_worker_whose_user_may_not_publish_works_on(
    start: StartWorker, project: ModuleType, redis_client: redis.Redis, redis_url: str, request: pytest.FixtureRequest
) -> None:
    """It warns once, with what to allow, and its tasks run."""
    redis_client.execute_command("ACL", "SETUSER", "mute", "reset", "on", ">secret", "~*", "&*", "+@all", "-publish")
    request.addfinalizer(lambda: redis_client.acl_deluser("mute"))
    worker = start("-P", "threads", "-c", "1", "-E", url=redis_url.replace("://", "://mute:secret@", 1))

    ids = [project.later.delay().id for _ in range(3)]

    eventually(lambda: redis_client.zcard("retry") == 3, LONG)
    eventually(lambda: "may not publish events" in worker.log, LONG)
    assert {json.loads(job)["jid"] for job in redis_client.zrange("retry", 0, -1)} == set(ids)
    assert worker.log.count("may not publish events") == 1


def _told_of_any(monitor: EventMonitor) -> bool:
    return any(event["type"] == "task-succeeded" for event in monitor.events)


def _kill_children(worker: SidekiqProcess) -> None:
    for identity in worker.identities():
        os.kill(int(identity.split(":")[1]), signal.SIGKILL)
