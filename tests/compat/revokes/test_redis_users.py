"""Revokes and rate limits as the Redis users of docs/redis.md, with no more rights than these have."""

from collections.abc import Iterator

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery._admission import rate_limits, revokes
from sidekiq_celery.exceptions import TaskRevokedError

from tests.compat.revokes.conftest import let_go
from tests.compat.tasks.worker import TaskWorker
from tests.support.redis_server import RedisServer
from tests.support.redis_users import Users, documented_users

WAIT_SECONDS = 60
RESULTS = ("~celery-task*", "&celery-task*", "~sidekiq_py:inflight:", "+eval", "+evalsha", "+hdel", "+get", "+mget",
           "+set", "+setex", "+getrange", "+strlen", "+del", "+publish", "+subscribe", "+unsubscribe")  # fmt: skip


@pytest.fixture
def users(redis_server: RedisServer, redis_client: redis.Redis) -> Iterator[Users]:
    """The documented users; the worker's stores results, and has what a rate limit needs."""
    made = Users(redis_server, redis_client)
    made.create()
    redis_client.execute_command("ACL", "SETUSER", "worker", *RESULTS, "+time")
    yield made
    for name in documented_users():
        redis_client.execute_command("ACL", "DELUSER", name)


def test_revokes_and_rate_limits_need_what_the_page_says(users: Users, redis_client: redis.Redis) -> None:
    """A worker, and who tells it; nothing is refused."""
    url = users.url("worker")
    app = Celery("proj", broker=url, backend=url, set_as_current=False, fixups=[])

    @app.task(name="proj.limited", rate_limit="50/s")
    def limited(number: int) -> int:
        return number

    redis_client.execute_command("ACL", "SETUSER", "worker", "+zrevrange", "+zrange", "+zcard", "+hvals", "+hlen")
    later = limited.apply_async((1,), countdown=3600)
    revokes.revoke(app, later.id)
    revokes.revoke_stamped(app, {"customer": "4"})
    rate_limits.set_rate_limit(app, "proj.limited", "100/s")
    results = [limited.delay(number) for number in range(3)]
    worker = TaskWorker(app, url)
    worker.start()

    assert [result.get(timeout=WAIT_SECONDS) for result in results] == [0, 1, 2]
    with pytest.raises(TaskRevokedError):
        later.get(timeout=WAIT_SECONDS)
    assert users.refusals() == []
    worker.stop()
    let_go(app)
    app.close()


def test_a_worker_heeds_revokes_without_more_rights(users: Users, redis_client: redis.Redis) -> None:
    """What others have revoked and set is looked up with what any worker may."""
    url = users.url("worker")
    app = Celery("proj", broker=url, backend=url, set_as_current=False, fixups=[])
    redis_client.zadd("sidekiq_py:revoked", {"bad": 9e9})
    redis_client.zadd(revokes.STAMPS_KEY, {'["customer", "4"]': 9e9})
    redis_client.incr("sidekiq_py:orders")

    @app.task(name="proj.free")
    def free() -> str:
        return "ran"

    results = [free.apply_async(task_id="bad"), free.apply_async(stamped_headers=["customer"], customer="4")]
    good = free.delay()
    worker = TaskWorker(app, url)
    worker.start()

    assert good.get(timeout=WAIT_SECONDS) == "ran"
    for result in results:
        with pytest.raises(TaskRevokedError):
            result.get(timeout=WAIT_SECONDS)
    assert users.refusals() == []
    worker.stop()
    let_go(app)
    app.close()
