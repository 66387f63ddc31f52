"""Workflows of `sidekiq_celery` under the rights that docs/redis.md gives workers and those who start them."""

import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, _state, chain, chord, group

from tests.compat.canvas.tasks import declare
from tests.compat.results.test_redis_users import documented_rules
from tests.compat.tasks.worker import TaskWorker
from tests.support.redis_server import RedisServer
from tests.support.redis_users import Users, documented_users
from tests.support.worker_process import REPOSITORY

PATIENCE_SECONDS = 60


def rules_of_who_starts_them() -> list[str]:
    """Those that come on top of others."""
    page = (REPOSITORY / "docs" / "redis.md").read_text()
    [rules] = re.findall(r"Programs that start chains, groups and chords need `([^`]+)`", page)
    return str(rules).split()


@pytest.fixture
def users(redis_server: RedisServer, redis_client: redis.Redis) -> Iterator[Users]:
    """Who starts workflows, and a worker; in the end neither may have been refused anything."""
    users = Users(redis_server, redis_client)
    users.create()
    for name, more in {"enqueue": rules_of_who_starts_them(), "worker": []}.items():
        rules = [*documented_users()[name], *documented_rules(), *more]
        redis_client.execute_command("ACL", "SETUSER", name, "reset", *rules)
    yield users
    refused = users.refusals()
    for name in documented_users():
        redis_client.execute_command("ACL", "DELUSER", name)
    assert refused == []


@pytest.fixture
def tasks(users: Users) -> Iterator[SimpleNamespace]:
    """Tasks as who starts them has them, with a worker that runs them."""
    known = dict(_state._on_app_finalizers)
    caller, app = (
        Celery("proj", broker=users.url(name), backend=users.url(name), set_as_current=False, fixups=[])
        for name in ("enqueue", "worker")
    )
    declare(app)
    worker = TaskWorker(app, users.url("worker"))
    worker.start()
    _share_no_tasks(known)
    yield declare(caller)
    worker.stop()
    for one in (caller, app):
        one.backend.close()
        one.close()
    _share_no_tasks(known)


def _share_no_tasks(known: dict[Any, Any]) -> None:
    """What one app has declared is not to be the next one's, too."""
    _state._on_app_finalizers.clear()
    _state._on_app_finalizers.update(known)


WORKFLOWS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "chain": (lambda it: chain(it.same.s(1), it.add.s(2), it.add.s(3)), 6),
    "group": (lambda it: group(it.add.s(1, 1), it.add.s(2, 2)), [2, 4]),
    "chord": (lambda it: chord([it.add.s(1, 1), it.add.s(2, 2)], it.total.s()), 6),
    "chord of chains": (lambda it: chord([it.same.s(1) | it.add.s(1), it.by_another.s(2)], it.total.s()), 104),
    "chain with a chord": (lambda it: it.same.s(1) | group(it.add.s(1), it.add.s(2)) | it.total.s() | it.add.s(1), 6),
    "a chord that grows": (lambda it: chord([it.joins_another.s(1), it.unstable.s(2)], it.total.s()), 1004),
}


@pytest.mark.parametrize("kind", WORKFLOWS)
def test_a_workflow_comes_to_its_end(tasks: SimpleNamespace, kind: str) -> None:
    """Started and waited for by one user, run by another one."""
    make, wanted = WORKFLOWS[kind]

    assert make(tasks).apply_async().get(timeout=PATIENCE_SECONDS) == wanted


def test_a_chord_that_fails_comes_to_its_end(tasks: SimpleNamespace) -> None:
    """Its body is failed."""
    result = chord([tasks.boom.s(), tasks.same.s(1)], tasks.total.s()).apply_async()

    with pytest.raises(Exception, match="boom"):
        result.get(timeout=PATIENCE_SECONDS)
