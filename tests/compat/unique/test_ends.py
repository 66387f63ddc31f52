"""How locks of unique tasks are kept while these are there, and released when they have ended."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery.exceptions import Ignore, InvalidTaskError, Reject
from sidekiq_celery.worker.registering import register_tasks

from sidekiq_py.errors import PoisonPillError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path import settle_script
from sidekiq_py.redis_access.job_path.settle_script import Held
from tests.compat.beat.beats import jobs
from tests.compat.tasks.worker import TaskWorker
from tests.support.waiting import eventually

Holders = Callable[[], list[str]]

WAIT_SECONDS = 60


class Gate:
    """Lets a test see that a task has begun, and let it go on."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.may_go_on = threading.Event()
        self.runs: list[str] = []

    def pass_by(self, name: str) -> None:
        """Called by the task."""
        self.runs.append(name)
        self.begun.release()
        assert self.may_go_on.wait(WAIT_SECONDS)

    def wait(self) -> None:
        """Until a task has begun."""
        assert self.begun.acquire(timeout=WAIT_SECONDS)


@pytest.fixture
def gate() -> Gate:
    """Closed."""
    return Gate()


def test_a_running_task_keeps_its_lock_and_a_success_releases_it(
    app: Celery, worker: TaskWorker, gate: Gate, redis_client: redis.Redis, holders: Holders
) -> None:
    """Then the next call is sent."""

    @app.task(name="proj.slow", unique_for=600)
    def slow(number: int) -> int:
        gate.pass_by("slow")
        return number

    worker.start()
    first = slow.delay(1)
    gate.wait()

    assert slow.delay(1).id == first.id
    gate.may_go_on.set()
    assert first.get(timeout=WAIT_SECONDS) == 1

    # Result and lock are written by one script.
    assert holders() == []
    second = slow.delay(1)
    assert second.id != first.id
    assert second.get(timeout=WAIT_SECONDS) == 1
    assert gate.runs == ["slow", "slow"]


def test_tasks_of_all_kinds_release_its_lock(app: Celery, worker: TaskWorker, holders: Holders) -> None:
    """Those that would be acknowledged with others, were it not for that; coroutines; those that run at most once."""

    @app.task(name="proj.quiet", unique_for=600, ignore_result=True)
    def quiet(number: int) -> None:
        """Does nothing."""

    @app.task(name="proj.loop", unique_for=600, ignore_result=True)
    async def on_loop(number: int) -> None:
        """Does nothing, on the event loop."""

    @app.task(name="proj.once", unique_for=600, acks_late=False)
    def at_most_once(number: int) -> None:
        """Does nothing."""

    for number in range(20):
        quiet.delay(number)
        on_loop.delay(number)
        at_most_once.delay(number)
    assert len(holders()) == 60
    worker.start()

    eventually(lambda: holders() == [])


@pytest.mark.parametrize("error", [ValueError("bad"), Ignore("no"), Reject("no", requeue=False)])
def test_whatever_ends_a_task_releases_its_lock(
    app: Celery, worker: TaskWorker, holders: Holders, error: Exception
) -> None:
    """A failure for good, and being ignored or rejected."""

    @app.task(name="proj.ends", unique_for=600)
    def ends() -> None:
        raise error

    ends.delay()
    assert len(holders()) == 1
    worker.start()

    eventually(lambda: holders() == [])


def test_a_task_that_is_not_run_releases_its_lock(app: Celery, worker: TaskWorker, holders: Holders) -> None:
    """It was revoked, or has expired, or is not known."""

    @app.task(name="proj.never", unique_for=600)
    def never(number: int) -> None:
        raise AssertionError("it ran")

    for until in ("success", "start"):
        never.apply_async((1,), unique_until=until).revoke()
        never.apply_async((2,), unique_until=until, expires=-1)
        app.send_task("proj.unknown", unique_for=600, unique_until=until)
    assert len(holders()) == 3
    worker.start()

    eventually(lambda: holders() == [])


def test_a_task_whose_workers_died_of_it_releases_its_lock(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, holders: Holders
) -> None:
    """When the engine moves it to `dead`."""

    @app.task(name="proj.deadly", unique_for=600)
    def deadly() -> None:
        """Is never run here."""

    deadly.delay()
    register_tasks(app, worker.registry, hooks=worker.hooks)
    [job] = jobs(redis_client)
    worker.hooks.announce_death(job, PoisonPillError())

    assert holders() == []


def test_a_retry_keeps_the_lock(app: Celery, worker: TaskWorker, redis_client: redis.Redis, holders: Holders) -> None:
    """It lasts as long again from when the next try is due, also where that has other arguments."""

    @app.task(name="proj.again", bind=True, unique_for=600, max_retries=5)
    def again(self: Any, number: int) -> None:
        if number == 1:
            raise self.retry(args=(2,), countdown=0)
        raise self.retry(countdown=3600)

    first = again.delay(1)
    worker.start()

    eventually(lambda: redis_client.zcard("retry") == 1)
    [key] = redis_client.keys("sidekiq_py:unique:*")
    assert holders() == [first.id]
    assert 3_900_000 < redis_client.pttl(key) <= 4_200_000
    assert again.delay(1).id == first.id


def test_autoretry_keeps_the_lock_until_no_try_is_left(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, holders: Holders
) -> None:
    """The last failure releases it; the job in the dead set owns nothing any more."""
    seen: list[list[str]] = []

    @app.task(
        name="proj.tries", bind=True, unique_for=600, autoretry_for=(ValueError,), max_retries=2, default_retry_delay=0
    )
    def tries(self: Any) -> None:
        seen.append(holders())
        raise ValueError("bad")

    first = tries.delay()
    worker.start()

    eventually(lambda: redis_client.zcard("dead") == 1)
    assert seen == [[first.id]] * 3
    assert holders() == []


def test_a_task_given_back_keeps_its_lock(app: Celery, worker: TaskWorker, holders: Holders) -> None:
    """`Reject(requeue=True)` is no end."""
    seen: list[list[str]] = []

    @app.task(name="proj.back", bind=True, unique_for=600)
    def back(self: Any) -> None:
        seen.append(holders())
        if not self.request.delivery_info["redelivered"]:
            raise Reject("later", requeue=True)

    first = back.delay()
    worker.start()

    eventually(lambda: len(seen) == 2 and holders() == [])
    assert seen == [[first.id]] * 2


def test_until_start_releases_the_lock_as_the_run_begins(
    app: Celery, worker: TaskWorker, gate: Gate, redis_client: redis.Redis, holders: Holders
) -> None:
    """So one may run while one more waits; the end leaves the lock of that one alone."""

    @app.task(name="proj.starts", bind=True, unique_for=600, unique_until="start")
    def starts(self: Any) -> None:
        gate.pass_by(self.request.id)

    first = starts.delay()
    assert starts.delay().id == first.id
    worker.start()
    gate.wait()
    assert holders() == []

    later = starts.apply_async(countdown=3600)
    assert later.id != first.id
    gate.may_go_on.set()
    first.get(timeout=WAIT_SECONDS)

    assert holders() == [later.id]


def test_the_lock_of_a_later_owner_is_left_alone(
    app: Celery, worker: TaskWorker, gate: Gate, redis_client: redis.Redis, holders: Holders
) -> None:
    """The first one has run for longer than its lock lasted."""

    @app.task(name="proj.long", unique_for=600)
    def long() -> None:
        gate.pass_by("long")

    first = long.delay()
    worker.start()
    gate.wait()
    redis_client.delete(*redis_client.keys("sidekiq_py:unique:*"))
    second = long.apply_async(countdown=3600)
    gate.may_go_on.set()
    first.get(timeout=WAIT_SECONDS)

    assert holders() == [second.id]


def test_a_task_that_replaces_itself_releases_its_lock(app: Celery, worker: TaskWorker, holders: Holders) -> None:
    """What goes on in its place is a workflow's."""

    @app.task(name="proj.other")
    def other() -> str:
        return "done"

    @app.task(name="proj.first", bind=True, unique_for=600)
    def first(self: Any) -> Any:
        return self.replace(other.s())

    worker.start()

    assert first.delay().get(timeout=WAIT_SECONDS) == "done"
    assert holders() == []


def test_a_task_may_call_itself_once_more(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, holders: Holders
) -> None:
    """It is there already, so nothing is sent, and it is no child of its own."""

    @app.task(name="proj.self", bind=True, unique_for=600)
    def call_again(self: Any) -> str:
        return str(self.delay().id)

    worker.start()
    result = call_again.delay()

    assert result.get(timeout=WAIT_SECONDS) == result.id
    assert json.loads(redis_client.get(f"celery-task-meta-{result.id}") or b"{}")["children"] == []


@pytest.mark.parametrize(
    "mark", ["odd", {}, {"lock": 1, "for": 1}, {"lock": "x", "for": "1"}, {"lock": "x", "for": -1}, 7]
)
def test_a_mark_that_is_none_is_refused(app: Celery, worker: TaskWorker, redis_client: redis.Redis, mark: Any) -> None:
    """Whoever has written it; the task does not run."""

    @app.task(name="proj.plain")
    def plain() -> str:
        return "ran"

    job = {"class": "proj.plain", "args": [], "jid": "a" * 24, "queue": "celery", "celery": {"unique": mark}}
    redis_client.lpush("queue:celery", json.dumps(job))
    worker.start()

    with pytest.raises(InvalidTaskError, match=r"celery\.unique"):
        app.AsyncResult("a" * 24).get(timeout=WAIT_SECONDS)


def test_a_lock_that_is_no_text_is_left_alone(redis_url: str, redis_client: redis.Redis) -> None:
    """In the script that ends a job, as one command of several and by itself."""
    pool = Pool(RedisSettings(redis_url))
    redis_client.lpush("odd", "x")
    redis_client.set("mine", "me")
    delete = [Held("odd", "me", (("DEL", "odd"),)), Held("mine", "me", (("DEL", "mine"), ("INCR", "both")))]

    pool.run(
        lambda link: settle_script.write(link, [*delete, ("SET", "more", 1)], [Held("more", "2", (("DEL", "more"),))])
    )

    assert redis_client.mget("mine", "both", "more") == [None, b"1", b"1"]
    assert redis_client.llen("odd") == 1
    pool.close()


def test_the_clock_of_a_lock_is_that_of_redis(app: Celery, redis_client: redis.Redis, holders: Holders) -> None:
    """A lock is never without an expiry, and goes by itself."""

    @app.task(name="proj.brief", unique_for=0.05)
    def brief() -> None:
        """Does nothing."""

    first = brief.delay()
    eventually(lambda: holders() == [])

    assert brief.delay().id != first.id
