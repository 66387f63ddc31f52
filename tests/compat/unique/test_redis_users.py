"""Unique tasks as the Redis users of docs/redis.md, with no more rights than these have."""

import redis
from sidekiq_celery import Celery

from tests.compat.revokes.test_redis_users import users
from tests.compat.tasks.worker import TaskWorker
from tests.support.redis_users import Users

__all__ = ("users",)

WAIT_SECONDS = 60
SENDS_UNIQUE_TASKS = (
    *("~sidekiq_py:unique:*", "~sidekiq_py:inflight:"),
    *("+eval", "+evalsha", "+get", "+set", "+hdel", "+type"),
)


def test_unique_tasks_need_what_the_page_says(users: Users, redis_client: redis.Redis) -> None:
    """Who enqueues needs the lock's key and a script; a worker has what it needs."""
    redis_client.execute_command("ACL", "SETUSER", "enqueue", *SENDS_UNIQUE_TASKS)
    client = Celery("proj", broker=users.url("enqueue"), set_as_current=False, fixups=[])
    client.conf.task_ignore_result = True
    url = users.url("worker")
    app = Celery("proj", broker=url, backend=url, set_as_current=False, fixups=[])

    @app.task(name="proj.once", bind=True, unique_for=600)
    def once(self: object, number: int) -> int:
        return number

    sent = [client.send_task("proj.once", (number,), unique_for=600, ignore_result=False) for number in (1, 1, 2)]
    starts = once.apply_async((3,), unique_until="start")
    worker = TaskWorker(app, url)
    worker.start()

    assert [app.AsyncResult(one.id).get(timeout=WAIT_SECONDS) for one in (*sent, starts)] == [1, 1, 2, 3]
    assert len({one.id for one in sent}) == 2
    assert redis_client.keys("sidekiq_py:unique:*") == []
    assert users.refusals() == []
    worker.stop()
    app.close()
    client.close()
