"""The bridge as the Redis user of docs/bridge.md, with no more rights than that has."""

import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import redis
from sidekiq_celery import Celery

from sidekiq_py.errors import RedisReplyError
from tests.compat.bridge.conftest import Recorded, RunBridge, jobs
from tests.compat.bridge.test_from_redis import take
from tests.support.redis_server import RedisServer
from tests.support.redis_users import PASSWORD, Users
from tests.support.worker_process import REPOSITORY

MakeUser = Callable[[RedisServer], str]


@pytest.fixture
def as_bridge() -> Iterator[MakeUser]:
    """Makes the user on a server by the very line of the page; where it connects."""
    [line] = re.findall(
        r"^redis-cli (ACL SETUSER .*?)^```", (REPOSITORY / "docs" / "bridge.md").read_text(), re.MULTILINE | re.DOTALL
    )
    with ExitStack() as stack:

        def make(server: RedisServer) -> str:
            client = stack.enter_context(server.client())
            _, _, name, *rules = shlex.split(line.replace("\\\n", " "))
            client.execute_command("ACL", "SETUSER", name, "reset", *rules)
            client.execute_command("ACL", "LOG", "RESET")
            stack.callback(client.execute_command, "ACL", "DELUSER", name)
            return server.url.replace("redis://", f"redis://{name}:{PASSWORD}@")

        yield make


@pytest.mark.parametrize("is_across", [False, True])
def test_it_needs_no_more_rights(
    is_across: bool,
    redis_server: RedisServer,
    redis_client: redis.Redis,
    other_redis: RedisServer,
    as_bridge: MakeUser,
    recorded: Recorded,
    run_bridge: RunBridge,
) -> None:
    """There, back, and what workers have had: nothing is refused."""
    source = other_redis if is_across else redis_server
    app = Celery("ours", broker=as_bridge(redis_server), set_as_current=False)
    url = as_bridge(other_redis) if is_across else None
    with source.client() as celery:
        recorded.replay(celery)
        celery.sadd("_kombu.binding.high", "key\x06\x16\x06\x16high")
        take(celery, "taken", exchange="high", routing_key="key", taken_at=time.time() - 4000)

        run_bridge(app=app, celery_url=url)
        run_bridge(app=app, celery_url=url, unacked_after_seconds=3600)
        assert len(jobs(redis_client)) > 10
        run_bridge(app=app, celery_url=url, is_reverse=True)

        assert celery.llen("celery") > 10
        for server in (redis_server, source):
            assert Users(server, celery).refusals() == []
    app.close()


@pytest.mark.parametrize(("is_across", "command"), [(False, "lpush"), (False, "zadd"), (False, "sadd"), (True, "hset")])
def test_a_command_that_is_missing_costs_no_message(
    is_across: bool,
    command: str,
    redis_server: RedisServer,
    redis_client: redis.Redis,
    other_redis: RedisServer,
    as_bridge: MakeUser,
    run_bridge: RunBridge,
) -> None:
    """One was lost at each start of the bridge: taken from its list before its new form was refused."""
    if redis_client.info("server")["redis_version"].startswith("6."):
        pytest.skip("a script can tell what its user may not run since Redis 7.0")
    source = other_redis if is_across else redis_server
    app = Celery("ours", broker=redis_server.url if is_across else as_bridge(source), set_as_current=False)
    url = as_bridge(source) if is_across else None
    waiting = [b"rubbish", b'{"headers": {"task": "a", "id": "b"}, "body": "", "content-type": "application/x-yaml"}']
    with source.client() as celery:
        celery.execute_command("ACL", "SETUSER", "bridge", f"-{command}")
        celery.rpush("celery", *waiting)

        with pytest.raises(RedisReplyError, match=f"NOPERM this user may not use {command.upper()} on "):
            run_bridge(app=app, celery_url=url)

        assert celery.lrange("celery", 0, -1) == waiting
    app.close()
