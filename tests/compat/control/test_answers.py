"""What workers of each pool answer to those who ask them, by our client and by Celery's own."""

import json
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from resource import struct_rusage
from typing import Any

import kombu
import pytest
from sidekiq_celery.utils.time import maybe_iso8601

from tests.compat.control.conftest import NODE, PROJECT, SECONDS, Asked, running
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

Ask = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module", params=["prefork", "threads", "solo", "asyncio"])
def worker(request: pytest.FixtureRequest, server: RedisServer) -> Iterator[Asked]:
    """One worker for each pool."""
    with running(server, request.param) as asked:
        yield asked


def test_a_ping_is_answered(worker: Asked) -> None:
    """By the node's name."""
    assert worker.inspect("ping") == {"ok": "pong"}
    assert worker.app.control.ping(destination=[NODE], timeout=30) == [{NODE: {"ok": "pong"}}]


def test_celerys_own_client_is_answered(worker: Asked, ask_a_real_client: Ask) -> None:
    """It finds what it finds at its own workers."""
    task_id = worker.send("real")

    shown = ask_a_real_client("inspect", "active", "-j")
    worker.release("real")

    assert shown.returncode == 0, shown.stderr
    [task] = json.loads(shown.stdout)[NODE]
    assert (task["id"], task["name"], task["args"]) == (task_id, f"{PROJECT}.hold", ["real"])


def test_a_running_task_is_active(worker: Asked) -> None:
    """In Celery's shape, with the process that runs it."""
    before = datetime.now(UTC).timestamp()
    task_id = worker.send("runs", day=datetime(2026, 1, 2, tzinfo=UTC))

    [task] = worker.inspect("active")
    [shown] = worker.inspect("active", True)
    where = worker.inspect("query_task", task_id)
    worker.release("runs")

    pid = int(worker.redis.lindex("held:runs", -1))
    assert before - 60 < task.pop("time_start") < before + 600
    assert task == {
        "id": task_id,
        "name": f"{PROJECT}.hold",
        "type": f"{PROJECT}.hold",
        "args": ["runs"],
        "kwargs": {"day": datetime(2026, 1, 2, tzinfo=UTC)},
        "hostname": NODE,
        "acknowledged": False,
        "delivery_info": {"exchange": "", "routing_key": "celery", "priority": 0, "redelivered": False},
        "worker_pid": pid,
    }
    assert shown["args"] == "('runs',)"
    assert where[task_id][0] == "active"
    assert worker.inspect("active") == []


def test_tasks_with_an_eta_are_scheduled(worker: Asked) -> None:
    """They wait in Redis, and belong to no worker; those of others are left out."""
    sent = worker.app.send_task(f"{PROJECT}.add", (1, 2), countdown=3000)
    worker.app.send_task("somebody.elses", countdown=3000)

    scheduled = worker.inspect("scheduled")
    found = worker.inspect("query_task", sent.id, "unknown")

    [entry] = [entry for entry in scheduled if entry["request"]["id"] == sent.id]
    assert {entry["request"]["name"] for entry in scheduled} == {f"{PROJECT}.add"}
    assert entry["request"]["args"] == [1, 2]
    assert (maybe_iso8601(entry["eta"]) - datetime.now(UTC)).total_seconds() > 1000
    assert (list(found), found[sent.id][0]) == ([sent.id], "scheduled")


def test_stats_tell_what_it_is_and_has_done(worker: Asked) -> None:
    """The keys of Celery's, and the numbers that are true."""
    before = worker.inspect("stats")["total"].get(f"{PROJECT}.add", 0)
    for sent in [worker.app.send_task(f"{PROJECT}.add", (1, 1)) for _ in range(5)]:
        assert sent.get(timeout=60) == 2

    def counted() -> Any:
        stats = worker.inspect("stats")
        return stats if stats["total"][f"{PROJECT}.add"] == before + 5 else None

    stats = eventually(counted, within_seconds=SECONDS)
    slots = 1 if worker.pool == "solo" else 2
    assert stats["pid"] == worker.process.pid
    assert 0 <= stats["uptime"] < 3600
    assert int(stats["clock"]) > 0
    assert stats["prefetch_count"] == stats["pool"]["max-concurrency"] == slots
    assert len(stats["pool"]["processes"]) == (2 if worker.pool == "prefork" else 1)
    assert stats["broker"]["transport"] == "redis"
    assert stats["broker"].keys() == kombu.Connection("redis://").info().keys() - {"password"}
    assert stats["rusage"]["maxrss"] > 0
    assert {f"ru_{name}" for name in stats["rusage"]} == {name for name in dir(struct_rusage) if name.startswith("ru_")}
    assert {"total", "pid", "clock", "uptime", "pool", "broker", "prefetch_count", "rusage"} <= stats.keys()
    assert {"max-concurrency", "processes", "max-tasks-per-child", "timeouts"} <= stats["pool"].keys()
    assert {"put-guarded-by-semaphore", "writes"} <= stats["pool"].keys()
    module = worker.pool.removesuffix("s")
    assert stats["pool"]["implementation"] == f"sidekiq_celery.concurrency.{module}:TaskPool"


def test_it_tells_the_rate_limit_that_was_set_at_run_time(worker: Asked) -> None:
    """As in Celery, until the program's is set again."""
    worker.broadcast("rate_limit", task_name=f"{PROJECT}.hold", rate_limit="7/m")
    reply = worker.inspect("registered")
    worker.broadcast("rate_limit", task_name=f"{PROJECT}.hold", rate_limit="5/s")

    assert reply == [f"{PROJECT}.add", f"{PROJECT}.hold [rate_limit=7/m]"]
    assert worker.inspect("registered")[1] == f"{PROJECT}.hold [rate_limit=5/s]"


def test_it_tells_what_it_knows_and_serves(worker: Asked) -> None:
    """Tasks, queues, settings without secrets, and more that people ask for."""
    assert worker.inspect("registered") == [f"{PROJECT}.add", f"{PROJECT}.hold [rate_limit=5/s]"]
    assert worker.inspect("registered", "name")[0] == f"{PROJECT}.add [name={PROJECT}.add]"
    assert [queue["name"] for queue in worker.inspect("active_queues")] == ["celery"]
    assert worker.inspect("conf")["redis_password"] == "********"
    assert worker.inspect("conf", True)["task_default_queue"] == "celery"
    assert "sidekiq" in worker.inspect("report")["ok"]
    assert worker.inspect("clock")["clock"] > 0
    assert worker.inspect("hello", "other@there")["clock"] > 0
    assert worker.inspect("reserved") == []
    sample = worker.inspect("memsample")
    assert float(sample.removesuffix("MB")) > 1
    assert sample in worker.inspect("memdump")


def test_commands_of_the_program_are_answered(worker: Asked) -> None:
    """They are given a state that they may keep things in; an alias is as good as the name."""
    assert worker.broadcast("remember", n=4)["ok"]["numbers"][-1] == 4
    reply = worker.broadcast("remember", n=5)["ok"]
    assert (reply["numbers"][-2:], reply["host"], reply["app"]) == ([4, 5], NODE, "project")

    odd = worker.broadcast("dump_odd")
    assert (odd["object"], odd["bytes"], odd["5"]) == ("<Odd>", "b'\\xff'", [1, "<Odd>"])
    assert "state.remote_control" in worker.broadcast("wants_a_consumer")["error"]


def test_what_cannot_be_done_is_said(worker: Asked) -> None:
    """In Celery's words where it has some."""
    assert worker.broadcast("no_such_command") == {"error": "KeyError('no_such_command')"}
    assert "unexpected keyword argument" in worker.broadcast("remember", wrong=1)["error"]
    assert "objgraph" in worker.inspect("objgraph")["error"]


def test_names_and_patterns_choose_workers(worker: Asked) -> None:
    """Another name's message is none of this worker's."""
    control = worker.app.control

    assert control.broadcast("ping", reply=True, limit=1, timeout=60, pattern="w?@*", matcher="glob") == [
        {NODE: {"ok": "pong"}}
    ]
    assert control.inspect(destination=NODE, timeout=60).ping() == {"ok": "pong"}
    reply = worker.broadcast("remember", n=1)["ok"]["numbers"]
    control.broadcast("remember", arguments={"n": 77}, destination=["w2@here"])
    control.broadcast("remember", arguments={"n": 78}, pattern="v*", matcher="glob")
    assert worker.broadcast("remember", n=2)["ok"]["numbers"] == [*reply, 2]


@pytest.mark.parametrize(
    "message",
    [
        b"\xff\xfe no JSON",
        b"[]",
        b'"text"',
        pytest.param(b"[" * 200_000, id="deep"),
        b"{}",
        b'{"body": 5, "properties": {}, "headers": null}',
        pytest.param(
            json.dumps({"body": "[" * 200_000, "content-type": "application/json", "content-encoding": "utf-8"}),
            id="deep body",
        ),
        json.dumps({"body": "e30=", "content-type": "application/x-python-serialize", "content-encoding": "binary"}),
    ],
)
def test_what_is_no_message_harms_nobody(worker: Asked, message: bytes) -> None:
    """Whatever somebody publishes, the next one is answered."""
    assert worker.redis.publish("/0.celery.pidbox", message) >= 1

    assert worker.inspect("ping") == {"ok": "pong"}


def _published(worker: Asked, body: Any, serializer: str = "json") -> None:
    with worker.app.connection_for_write() as connection:
        exchange = worker.app.control.mailbox.exchange
        producer = connection.Producer(serializer=serializer)
        producer.publish(body, exchange=exchange, declare=[exchange], routing_key="")


@pytest.mark.parametrize(
    "body",
    [
        [],
        "text",
        {},
        {"method": ["ping"]},
        {"method": "ping", "arguments": [1]},
        {"method": "ping", "nonsense": 1},
        {"method": "ping", "reply_to": {"no": "exchange"}},
        {"method": "ping", "destination": 5},
        {"method": "remember", "arguments": {"state": 1}},
        {"method": "ping", "pattern": "(((", "matcher": "pcre"},
        {"method": "ping", "pattern": "w*", "matcher": "regex"},
        {"method": "ping", "pattern": ".?" * 120 + "#", "matcher": "pcre"},
    ],
)
def test_commands_that_make_no_sense_harm_nobody(worker: Asked, body: Any) -> None:
    """They are logged, and that is all."""
    _published(worker, body)

    assert worker.inspect("ping") == {"ok": "pong"}


@pytest.mark.parametrize(("pattern", "is_answered"), [(r"\w+@|nobody", True), (r"other\d+@", False)])
def test_who_fits_a_regular_expression_is_asked(worker: Asked, pattern: str, is_answered: bool) -> None:
    """And the others keep quiet."""
    replies = worker.app.control.ping(pattern=pattern, matcher="pcre", timeout=30 if is_answered else 0.5, limit=1)

    assert replies == ([{NODE: {"ok": "pong"}}] if is_answered else [])


def test_a_reply_that_redis_refuses_harms_nobody(worker: Asked) -> None:
    """Its place is of another type; later commands are answered."""
    binding = "taken\x06\x16\x06\x16taken.reply"
    worker.redis.sadd("_kombu.binding.reply.taken.pidbox", binding)
    worker.redis.set("taken.reply", "no list")

    reply_to = {"exchange": "reply.taken.pidbox", "routing_key": "taken"}
    _published(worker, {"method": "ping", "reply_to": reply_to, "ticket": "t"})

    assert worker.inspect("ping") == {"ok": "pong"}
    worker.redis.delete("taken.reply", "_kombu.binding.reply.taken.pidbox")


def test_pickled_commands_are_refused(worker: Asked) -> None:
    """They could run anything."""
    _published(worker, {"method": "remember", "arguments": {"n": 666}}, serializer="pickle")

    assert 666 not in worker.broadcast("remember", n=1)["ok"]["numbers"]
    assert "cannot be read, and is ignored" in worker.process.log


def test_names_in_commands_forge_no_line_of_the_log(worker: Asked) -> None:
    """Whoever may send a command could otherwise write what looks like the worker's own."""
    forged = "q\n[2030-01-01 00:00:00,000: CRITICAL/MainProcess] forged"

    worker.broadcast("add_consumer", queue=forged)
    worker.broadcast("cancel_consumer", queue=forged)
    worker.broadcast("time_limit", task_name=forged, soft=1)

    shown = forged.replace("\n", "\\n")
    assert f"Started consuming from {shown}\n" in worker.process.log
    assert f"Canceling queue {shown}\n" in worker.process.log
    assert f"unknown task {shown}\n" in worker.process.log
    assert forged not in worker.process.log


def test_replies_do_not_pile_up(worker: Asked) -> None:
    """Those that were read are gone; those that nobody reads go by themselves."""
    worker.inspect("ping")
    eventually(
        lambda: all(b"_kombu" in key for key in worker.redis.keys("*reply.celery.pidbox*")), within_seconds=2 * SECONDS
    )

    # A client that was killed has left its binding behind.
    binding = "gone\x06\x16\x06\x16gone.reply.celery.pidbox"
    worker.redis.sadd("_kombu.binding.reply.celery.pidbox", binding)
    reply_to = {"exchange": "reply.celery.pidbox", "routing_key": "gone"}
    _published(worker, {"method": "ping", "destination": [NODE], "reply_to": reply_to, "ticket": "t"})

    eventually(lambda: worker.redis.ttl("gone.reply.celery.pidbox") > 0, within_seconds=SECONDS)
    worker.redis.srem("_kombu.binding.reply.celery.pidbox", binding)
    worker.redis.delete("gone.reply.celery.pidbox")
