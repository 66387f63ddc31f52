"""Rate limits that all workers keep together."""

import json
import time
from itertools import pairwise
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery._admission import rate_limits, revokes
from sidekiq_celery.exceptions import TaskRevokedError

from tests.compat.tasks.worker import TaskWorker
from tests.support.waiting import eventually

WAIT_SECONDS = 60


def declare(app: Celery, started: list[float], **options: Any) -> Any:
    """A task that notes when it ran."""

    @app.task(name="proj.limited", **options)
    def limited(number: int = 0) -> int:
        started.append(time.monotonic())
        return number

    return limited


def test_two_workers_keep_one_rate(app: Celery, worker: TaskWorker, redis_url: str, redis_client: redis.Redis) -> None:
    """None is lost, none runs twice, and the slots are free meanwhile."""
    started: list[float] = []
    limited = declare(app, started, rate_limit="40/s", ignore_result=True)
    other = TaskWorker(app, redis_url)
    for number in range(100):
        limited.delay(number)

    worker.start()
    other.start()
    try:
        eventually(lambda: len(started) == 100)
    finally:
        other.stop()

    # A quarter of a second is the slack, in which late starts are made up for.
    most = max(sum(1 for moment in started if start <= moment < start + 1.0) for start in started)
    assert most <= 40 * 1.25 + 6
    assert started[-1] - started[0] > 2.0
    assert redis_client.zcard("schedule") == 0


def test_a_task_over_its_limit_waits_in_the_schedule(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """Where Ruby's page shows it; others of its queue run, and nothing is counted that did not start."""
    started: list[float] = []
    limited = declare(app, started, rate_limit="2/h")

    @app.task(name="proj.free")
    def free() -> str:
        return "ran"

    ids = [limited.delay(number).id for number in range(5)]
    behind = free.delay()
    worker.start()

    assert behind.get(timeout=WAIT_SECONDS) == "ran"
    waiting = eventually(lambda: len(found := redis_client.zrange("schedule", 0, -1, withscores=True)) == 4 and found)
    assert {json.loads(member)["jid"] for member, _ in waiting} < set(ids)
    # Some slack for what was late, at the start.
    gaps = [after[1] - before[1] for before, after in pairwise(waiting)]
    assert gaps == pytest.approx([1800, 1800, 1800], abs=2)
    eventually(lambda: int(redis_client.get("stat:processed") or 0) == 2)
    assert len(started) == 1


def test_what_waits_is_the_same_job(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """But for the mark of its appointment; its arguments, headers and the rest are untouched."""
    limited = declare(app, [], rate_limit="1/h")
    for number in range(2):
        limited.apply_async((number,), headers={"by": "me"}, expires=9999)
    jobs = [json.loads(job) for job in redis_client.lrange("queue:celery", 0, -1)]
    worker.start()

    [member] = eventually(lambda: redis_client.zrange("schedule", 0, -1))

    after = json.loads(member)
    assert after["celery"].pop("slot") is True
    assert after in jobs


def test_a_task_runs_at_its_appointment(app: Celery, worker: TaskWorker) -> None:
    """With its arguments, and its result."""
    limited = declare(app, [], rate_limit="5/s")
    results = [limited.delay(number) for number in range(4)]

    worker.start()

    assert [result.get(timeout=WAIT_SECONDS) for result in results] == [0, 1, 2, 3]


def test_a_full_redis_keeps_the_limits(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """If the times of starts could not be stored, tasks would run at any rate."""
    started: list[float] = []
    limited = declare(app, started, rate_limit="2/h")
    for number in range(3):
        limited.delay(number)
    redis_client.config_set("maxmemory", 1)
    try:
        worker.start()
        eventually(lambda: len(started) == 1 and redis_client.zcard("schedule") == 2)
    finally:
        redis_client.config_set("maxmemory", 0)

    assert len(started) == 1
    assert "is not applied" not in caplog.text


def test_a_coroutine_is_limited_too(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """The loop goes on meanwhile."""
    ran: list[int] = []

    @app.task(name="proj.coroutine", rate_limit="1/h")
    async def coroutine(number: int) -> None:
        ran.append(number)

    for number in range(3):
        coroutine.delay(number)
    worker.start()

    eventually(lambda: redis_client.zcard("schedule") == 2)
    eventually(lambda: len(ran) == 1)


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"rate_limit": "1/h"}, {"worker_disable_rate_limits": True}),
        ({"rate_limit": 0}, {"task_default_rate_limit": "1/h"}),
    ],
    ids=["none", "disabled", "zero"],
)
def test_what_has_no_limit_runs(
    app: Celery, worker: TaskWorker, options: dict[str, Any], settings: dict[str, Any]
) -> None:
    """Nothing is asked."""
    app.conf.update(settings)
    limited = declare(app, [], **options)
    results = [limited.delay() for _ in range(3)]

    worker.start()

    for result in results:
        result.get(timeout=WAIT_SECONDS)


def test_the_settings_give_a_default(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """As `task_default_rate_limit` says."""
    app.conf.task_default_rate_limit = "1/h"
    limited = declare(app, [])
    for _ in range(3):
        limited.delay()

    worker.start()

    eventually(lambda: redis_client.zcard("schedule") == 2)


def test_a_new_limit_reaches_workers_and_those_who_wait(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """Who waited by the old one is called up."""
    started: list[float] = []
    limited = declare(app, started, rate_limit="1/h")
    for _ in range(5):
        limited.delay()
    worker.start()
    eventually(lambda: redis_client.zcard("schedule") == 4)

    assert rate_limits.set_rate_limit(app, "proj.limited", "20/s")

    eventually(lambda: len(started) == 5)
    assert not rate_limits.set_rate_limit(app, "proj.limited", "20/s")
    assert redis_client.zcard("schedule") == 0


def test_a_task_without_a_limit_gets_one(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """The worker that runs hears of it with the next job."""
    limited = declare(app, [])
    worker.start()
    assert limited.delay(7).get(timeout=WAIT_SECONDS) == 7

    rate_limits.set_rate_limit(app, "proj.limited", "1/h")
    for number in range(4):
        limited.delay(number)

    eventually(lambda: redis_client.zcard("schedule") == 3)


def test_a_limit_holds_until_the_program_declares_another(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """Also for workers that start later; a deploy with a new limit is not overruled by last year's order."""
    limited = declare(app, [], rate_limit="1/h")
    rate_limits.set_rate_limit(app, "proj.limited", 0)
    app.tasks["proj.limited"].rate_limit = "2/h"
    for _ in range(3):
        limited.delay()

    worker.start()

    eventually(lambda: redis_client.zcard("schedule") == 2)


def test_a_revoked_task_need_not_wait_for_its_turn(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """It takes nobody's start, and its result says soon what became of it."""
    limited = declare(app, [], rate_limit="1/h")
    results = [limited.delay() for _ in range(3)]
    worker.start()
    members = eventually(lambda: len(found := redis_client.zrange("schedule", 0, -1)) == 2 and found)
    [one, *_] = [result for result in results if result.id == json.loads(members[0])["jid"]]

    revokes.revoke(app, one.id)

    with pytest.raises(TaskRevokedError):
        one.get(timeout=WAIT_SECONDS)
    assert redis_client.zcard("schedule") == 1


def test_a_retry_asks_anew(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """The appointment was for the try before."""

    @app.task(name="proj.again", bind=True, rate_limit="4/s", max_retries=1)
    def again(self: Any) -> None:
        raise self.retry(countdown=3600)

    again.delay()
    again.delay()
    worker.start()

    members = eventually(lambda: len(found := redis_client.zrange("retry", 0, -1)) == 2 and found)
    assert all("slot" not in json.loads(member).get("celery", {}) for member in members)


def test_a_limit_that_cannot_be_counted_stops_nobody(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """Something else has written to the key; the log says so."""
    redis_client.set("sidekiq_py:rate:proj.limited", "odd")
    limited = declare(app, [], rate_limit="1/h")
    results = [limited.delay(number) for number in range(2)]

    worker.start()

    assert [result.get(timeout=WAIT_SECONDS) for result in results] == [0, 1]


def test_rates_that_nobody_can_read_are_passed_over(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs run all the same, tasks keep their own limits, and the other rates hold."""
    limited = declare(app, [])

    @app.task(name="proj.odd")
    def odd() -> str:
        return "ran"

    bad = {
        "proj.odd": b'["abc", null]',
        "a": b"\xff garbage",
        "b": b"[" * 5000,
        "c": b'["nan/s", null]',
        "d": b"[[1], 1]",
    }
    redis_client.hset("sidekiq_py:rate_limits", mapping=bad)
    redis_client.hset("sidekiq_py:rate_limits", "proj.limited", b'["1/h", null]')
    redis_client.incr("sidekiq_py:orders")
    for number in range(3):
        limited.delay(number)

    worker.start()

    assert odd.delay().get(timeout=WAIT_SECONDS) == "ran"
    eventually(lambda: redis_client.zcard("schedule") == 2)
    assert sum("is no rate limit for" in message for message in caplog.messages) == len(bad)


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        *[("-1/s", ValueError), ("often", ValueError), ("1/y", KeyError), ("nan/s", ValueError), ("inf", ValueError)],
        *[("1e-300/s", ValueError), ("1e9/s", ValueError), (10**400, ValueError), ([1], ValueError)],
    ],
)
def test_what_is_no_rate_is_refused(app: Celery, redis_client: redis.Redis, limit: Any, error: type[Exception]) -> None:
    """Nothing is set."""
    declare(app, [])

    with pytest.raises(error):
        rate_limits.set_rate_limit(app, "proj.limited", limit)
    assert not redis_client.exists("sidekiq_py:rate_limits")


@pytest.mark.parametrize("limit", ["1000000/s", "1/h", "0.01/h", 0, None, ""])
def test_what_redis_can_count_is_taken(app: Celery, redis_client: redis.Redis, limit: Any) -> None:
    """From one in months to one in a microsecond."""
    declare(app, [])

    assert rate_limits.set_rate_limit(app, "proj.limited", limit)
    assert redis_client.hlen("sidekiq_py:rate_limits") == 1
