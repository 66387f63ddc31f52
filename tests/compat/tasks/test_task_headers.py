"""The object `celery` of a payload, as anybody may have written it."""

import json
import sys
from base64 import b64encode
from collections import Counter
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery._send.header_checks import _KINDS, sorted_out

from tests.compat.tasks.worker import TaskWorker
from tests.support.ledger import push_jobs
from tests.support.waiting import eventually

NOT_HERE: list[Any] = ["x", 5]
NO_TEXT: list[Any] = [5, True, [], {}]
NO_ID: list[Any] = [5.5, True, [], {}]
NO_COUNT: list[Any] = ["x", "1", -1, 1.5, True, [], {}]
NO_FLAG: list[Any] = ["x", 1, [], {}]
NO_OBJECT: list[Any] = [5, "x", [1], False]
NO_MOMENT: list[Any] = ["soon", "", 5, [], {}, {"__type__": "datetime", "__value__": "soon"}]
NO_SIGNATURES: list[Any] = [
    5, "x", {}, [5], [{}], [{"task": 5}], [{"task": "a", "args": 5}], [{"task": "a", "kwargs": []}],
    [{"task": "a", "options": "x"}], [{"task": "a", "subtask_type": 5}],
]  # fmt: skip
# Each is to be refused in the place of what Celery puts there.
WRONG: dict[str, list[Any]] = {
    **dict.fromkeys(("retries", "replaced_task_nesting", "group_index"), NO_COUNT),
    **dict.fromkeys(("eta", "expires"), NO_MOMENT),
    "group": NO_TEXT,
    **dict.fromkeys(("root_id", "parent_id", "correlation_id"), NO_ID),
    **dict.fromkeys(("shadow", "reply_to", "origin", "argsrepr", "kwargsrepr"), NO_TEXT),
    **dict.fromkeys(("content_type", "content_encoding", "compression"), NO_TEXT),
    **dict.fromkeys(("kw", "embeds", "slot", "ignore_result"), NO_FLAG),
    **dict.fromkeys(("headers", "properties", "stamps", "delivery_info"), NO_OBJECT),
    **dict.fromkeys(("callbacks", "errbacks"), NO_SIGNATURES),
    "chain": [*NO_SIGNATURES, [{"next": "a"}]],
    "flow": [5, "x", [], {}, {"id": "a"}, {"id": 5, "next": "a"}, {"id": "a", "next": 5}],
    "chord": [5, "x", [], {}, {"part": 0}, {"part": "x", "id": "a"}, {"part": 0, "id": 5}, {"task": 5},
              {"part": 0, "id": "a", "open": 10**9}],
    "priority": ["x", [], {}, True],
    "timelimit": ["x", 5, True, [1], [1, 2, 3], ["x", None], [None, "x"], [[], {}], [-1, None], [1e300, None], {}],
    "stamped_headers": [5, "x", [5], {}],
    "unique": [5, "x", [], {}, {"lock": "a"}, {"lock": 5, "for": 5}, {"lock": "a", "for": -1},
               {"lock": "a", "for": 5, "until": "never"}],
    "body": [*NO_TEXT, "@@@", "x", b64encode(b"5").decode(), b64encode(b"[5, 5]").decode()],
    **dict.fromkeys(("id", "task", "args", "kwargs", "called_directly", "is_eager", "hostname", "utc"), NOT_HERE),
    **dict.fromkeys(("time_limit", "soft_time_limit"), NOT_HERE),
    **dict.fromkeys(("_children", "_next_step", "_own_max_retries", "_protected", "_question"), NOT_HERE),
}  # fmt: skip


def job(number: int, task_headers: Any) -> str:
    return json.dumps(
        {
            "class": "proj.marked",
            "args": [],
            "jid": f"j{number}",
            "queue": "celery",
            "retry": True,
            "celery": task_headers,
        }
    )


@pytest.fixture
def runs(app: Celery) -> list[str]:
    """The ids of the tasks that have run."""
    seen: list[str] = []

    @app.task(name="proj.marked", bind=True)
    def marked(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.append(self.request.id)

    return seen


def test_every_key_has_wrong_values_here() -> None:
    """Who adds one to the checks adds it here."""
    assert WRONG.keys() == _KINDS.keys()


def test_a_task_whose_task_headers_are_not_well_made_fails_without_running(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, runs: list[str]
) -> None:
    """With `InvalidTaskError`, which names the key; it is kept in the dead set and not tried again."""
    cases = [{name: value} for name, values in WRONG.items() for value in values]
    wrong = [*({"content_type": "application/json", **case} for case in cases), 5, "x", [], True]
    push_jobs(redis_client, [job(number, task_headers) for number, task_headers in enumerate(wrong)], queue="celery")
    push_jobs(redis_client, [job(len(wrong), {"origin": "sane"})], queue="celery")

    worker.start()
    eventually(lambda: runs)
    eventually(lambda: redis_client.zcard("dead") == len(wrong))

    dead = {entry["jid"]: entry for entry in map(json.loads, redis_client.zrange("dead", 0, -1))}
    assert Counter(entry["error_class"].rpartition(".")[2] for entry in dead.values()) == {
        "InvalidTaskError": len(wrong)
    }
    for number, case in enumerate(cases):
        assert f"celery.{next(iter(case))}" in dead[f"j{number}"]["error_message"], case
    assert runs == [f"j{len(wrong)}"]
    assert redis_client.zcard("retry") == 0
    stored = json.loads(redis_client.get("celery-task-meta-j0") or "{}")
    assert (stored["status"], stored["result"]["exc_type"]) == ("FAILURE", "InvalidTaskError")


def test_a_task_whose_id_is_no_string_fails_without_running(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, runs: list[str]
) -> None:
    """It is kept in the dead set, with an error that names the key."""
    wrong = [["a"], {"a": 1}]
    jobs = [json.dumps({**json.loads(job(0, {})), "jid": jid}) for jid in wrong]
    push_jobs(redis_client, [*jobs, job(1, {})], queue="celery")

    worker.start()
    eventually(lambda: runs == ["j1"] and redis_client.zcard("dead") == len(wrong))

    dead = [json.loads(raw) for raw in redis_client.zrange("dead", 0, -1)]
    assert all(entry["error_class"].endswith("InvalidTaskError") for entry in dead)
    assert {entry["error_message"] for entry in dead} == {
        f"jid is {jid}, where a string should stand" for jid in ("['a']", "{'a': 1}")
    }


def test_ids_may_be_numbers_and_limits_as_long_as_python_can_count(
    worker: TaskWorker, redis_client: redis.Redis, runs: list[str]
) -> None:
    """As in Celery; `sys.maxsize` is often written for no limit."""
    unusual = {"root_id": 7, "parent_id": 8, "correlation_id": 9, "timelimit": [sys.maxsize, sys.maxsize]}
    push_jobs(redis_client, [job(1, unusual)], queue="celery")

    worker.start()

    eventually(lambda: runs == ["j1"])


def test_what_is_well_made_still_holds(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, runs: list[str]
) -> None:
    """The errback of a task that is refused is called, so that nobody waits for it in vain."""
    called: list[str] = []

    @app.task(name="proj.on_error")
    def on_error(task_id: str) -> None:
        called.append(task_id)

    push_jobs(redis_client, [job(0, {"retries": "x", "errbacks": [dict(on_error.s())]})], queue="celery")

    worker.start()

    eventually(lambda: called == ["j0"])
    assert runs == []


def test_task_headers_as_a_caller_writes_them_are_well_made(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, runs: list[str]
) -> None:
    """With every option that leaves one; a null says nothing."""
    task = app.tasks["proj.marked"]
    task.apply_async(
        (1,), {"a": 2}, expires=60, priority=5, headers={"tenant": "a"}, time_limit=9, soft_time_limit=8.5,
        ignore_result=True, shadow="other", reply_to="x", link=task.si(), link_error=task.si(), stamped_headers=["a"],
        a="b", task_id="first",
    )  # fmt: skip
    push_jobs(redis_client, [job(1, dict.fromkeys(WRONG))], queue="celery")

    worker.start()

    eventually(lambda: len(runs) == 3)
    assert {"first", "j1"} <= set(runs)
    assert sorted_out(dict.fromkeys(WRONG)) == ({}, None)
