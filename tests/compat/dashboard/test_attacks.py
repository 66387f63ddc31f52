"""What somebody tries who can write to Redis, or runs a worker: nothing executes and no page breaks."""

import json
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("starlette")

import redis
from sidekiq_celery._dashboard.side import side_of
from sidekiq_celery._dashboard.workers import Answer, Worker

from sidekiq_py.redaction import Redaction
from tests.compat.dashboard.conftest import answering
from tests.web.browsing import Visitor
from tests.web.test_attacks import SCRIPT, check, links_of

_PAGES = ("/celery", "/celery/workflows", "/celery/workflows?ended=1", "/celery/workers", "/celery/limits")


def test_scripts_in_results_workflows_and_what_workers_say_stay_text(
    operator: Visitor, redis_client: redis.Redis
) -> None:
    """In each field, of a shape that is right and of one that is not; all links are followed."""
    text = {
        **dict.fromkeys(("name", "worker", "queue", "traceback", "parent_id", "group_id", "date_done"), SCRIPT),
        "status": "FAILURE",
        "result": {"exc_type": SCRIPT, "exc_message": [SCRIPT], "exc_module": SCRIPT},
        "args": [SCRIPT],
        "kwargs": {SCRIPT: SCRIPT},
        "children": [[[SCRIPT, SCRIPT], [[[SCRIPT, None], None]]], [[SCRIPT, None], None], SCRIPT, [[], []], [[1], 2]],
    }
    metas: list[Any] = [
        text,
        {**text, "status": SCRIPT, "result": SCRIPT, "args": SCRIPT, "kwargs": SCRIPT, "children": SCRIPT},
        {**text, "status": "FAILURE", "result": SCRIPT, "children": {SCRIPT: SCRIPT}, "retries": SCRIPT},
        {"status": {SCRIPT: 1}, "result": {"__type__": SCRIPT, "__value__": SCRIPT}},
        {"children": [[["\ud800", None], None], [["x" * 5000, None], None]], "parent_id": "\ud800"},
        [SCRIPT],
        SCRIPT,
        None,
    ]
    for number, meta in enumerate(metas):
        redis_client.set(f"celery-task-meta-{number}", json.dumps(meta))
    redis_client.set(f"celery-task-meta-{SCRIPT}", json.dumps(text))
    redis_client.set(b"celery-task-meta-\xff", SCRIPT)
    redis_client.set("celery-task-meta-junk", b"\xff\x00")
    redis_client.hset("celery-task-meta-hash", "a", "b")
    redis_client.set("celery-taskset-meta-6", json.dumps({"result": [["6", None], SCRIPT]}))
    redis_client.hset(f"sidekiq_py:flow:{SCRIPT}", mapping={SCRIPT: json.dumps({"s": {"task": SCRIPT}, "n": SCRIPT})})
    loop = {"s": {"task": SCRIPT}, "n": {"next": "b", "id": "a"}}
    redis_client.hset("sidekiq_py:flow:loop", mapping={"b": json.dumps(loop), "c": b"\xff", "d": "[1]"})
    redis_client.hset(f"sidekiq_py:chord:{SCRIPT}", mapping={"parts": SCRIPT, "more": "-1", "body": SCRIPT})
    redis_client.hset("sidekiq_py:chord:large", mapping={"parts": "120", "0": SCRIPT})
    task = {"id": SCRIPT, "name": SCRIPT, "args": [SCRIPT], "kwargs": {SCRIPT: SCRIPT}, "time_start": SCRIPT}
    stats = {
        "pool": dict.fromkeys(("implementation", "max-concurrency", "max-tasks-per-child"), SCRIPT),
        **{"pid": SCRIPT, "total": {SCRIPT: 1}, "uptime": SCRIPT, "prefetch_count": SCRIPT},
        "autoscaler": {"min": SCRIPT, "max": SCRIPT},
    }
    worker = Worker(
        SCRIPT,
        stats,
        (SCRIPT,),
        (task, {}),
        {SCRIPT: dict.fromkeys(("rate_limit", "soft_time_limit", "time_limit"), SCRIPT)},
    )
    settings = {SCRIPT: SCRIPT, "x" * 5000: ["x" * 5000], "deep": [[SCRIPT]]}
    details = {
        "reserved": Answer([task, SCRIPT, {}, {"id": "\ud800"}]),
        "scheduled": Answer([{"eta": SCRIPT, "request": task}, SCRIPT, {"eta": "2026-02-14", "request": [SCRIPT]}]),
        "revoked": Answer([SCRIPT, {SCRIPT: 1}, "x" * 5000]),
        "conf": Answer(settings),
    }

    with answering(side_of(None), worker, details):
        seen = set()
        waiting = [*_PAGES, *(f"/celery/task?id={n}" for n in (*range(8), "junk", "hash"))]
        waiting += [f"/celery/workflow?id={n}" for n in (*range(8), "loop", "large", "junk")]
        while waiting:
            path = waiting.pop()
            reply = operator.get(path)
            check(reply)
            seen.add(path)
            waiting += [link for link in links_of(reply) if link not in seen and link not in waiting][:30]
    assert len(seen) > 40


def test_parameters_that_are_none_stay_text(operator: Visitor) -> None:
    """Cursors, pages, ids and names of any kind."""
    for path in ("/celery", "/celery/task", "/celery/workflows", "/celery/workflow", "/celery/worker"):
        for name in ("after", "id", "group", "from", "name", "state", "worker"):
            for value in ("%3Cscript%3E", "-1", "99999999999999999999999", "%ff%00", "%ed%a0%80", "x" * 5000):
                check(operator.get(f"{path}?{name}={value}"))
                check(operator.get(f"{path}?id=a&{name}={value}"))


def test_a_result_of_megabytes_makes_no_page_of_megabytes(operator: Visitor, redis_client: redis.Redis) -> None:
    """Nor do names, errors and ids."""
    long = "x" * 3_000_000
    meta = {"status": "FAILURE", "name": long, "worker": long, "queue": long, "traceback": long, "parent_id": long}
    about = {"result": {"exc_type": long, "exc_message": long}, "args": [long], "group_id": long}
    redis_client.set("celery-task-meta-a", json.dumps({**meta, **about, "children": [[[long, None], None]]}))
    redis_client.set("celery-task-meta-b", json.dumps({"status": long, "result": [long]}))

    for path in ("/celery", "/celery/task?id=a", "/celery/task?id=b", "/celery/workflow?id=a", "/celery/workflow?id=b"):
        reply = operator.get(path)
        check(reply)
        assert len(reply.text) < 400_000, path


@pytest.mark.parametrize(
    "text",
    [
        b'{"status": "SUCCESS", "result": {"__type__": "datetime", "__value__": "2026-02-14T09:30:00"}}',
        b'{"status": "SUCCESS", "result": ' + b"[" * 700 + b"]" * 700 + b"}",
        b'{"status": "SUCCESS", "args": ' + b'{"a":' * 400 + b"1" + b"}" * 400 + b"}",
        b"\x00celery-compressed\x00application/x-gzip\x00not gzip",
        b"\x00celery-compressed\x00no-such-method\x00text",
    ],
    ids=["a time", "deep", "deep arguments", "cut off", "unknown method"],
)
@pytest.mark.parametrize("redaction", [None, Redaction.none()], ids=["usual", "hides nothing"])
def test_a_result_that_is_hard_to_show_does_not_hide_the_others(
    visitor: Callable[..., Visitor], redis_client: redis.Redis, text: bytes, redaction: Redaction | None
) -> None:
    """One of them, such as a time, must not make the list of all tasks fail."""
    redis_client.set("celery-task-meta-hard", text)
    redis_client.set("celery-task-meta-easy", json.dumps({"status": "SUCCESS", "result": "as usual"}))
    viewer = visitor("viewer", redaction=redaction)

    for path in ("/celery", "/celery/task?id=hard", "/celery/workflow?id=hard", "/celery/workflows?ended=1"):
        check(viewer.get(path))
    assert "as usual" in viewer.get("/celery").shown


@pytest.mark.parametrize("times", [1, 2])
def test_a_compressed_result_is_not_decompressed_beyond_a_bound(
    operator: Visitor, redis_client: redis.Redis, times: int
) -> None:
    """1 kB may become a gigabyte, and the list of all tasks reads fifty results at once."""
    text = b'{"status": "SUCCESS", "result": "' + b"x" * 100_000_000 + b'"}'
    for _ in range(times):
        text = b"\x00celery-compressed\x00application/x-gzip\x00" + zlib.compress(text, 1)
    redis_client.set("celery-task-meta-bomb", text)

    tracemalloc.start()
    reply = operator.get("/celery/task?id=bomb")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    check(reply)
    assert ("more than 8,388,608 bytes" if times == 1 else "compressed twice") in reply.shown
    assert peak < 50_000_000
