"""Steps of the timetable for a Redis user who may not use one of their commands: refused or written as a whole."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.api import CronJobs
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extensions.periodic import store, verbs
from sidekiq_py.extensions.periodic.firing import Firing
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.extensions.periodic.conftest import NOON

Start = Callable[..., None]
COMMANDS = sorted({name for verb in verbs.ALL for name in re.findall(r"redis\.p?call\(\s*'(\w+)'", verb.source)})


@pytest.fixture(params=COMMANDS)
def clerk(redis_client: redis.Redis, redis_url: str, request: pytest.FixtureRequest) -> Iterator[Pool]:
    """The connections of a user who may not use one command."""
    if int(redis_client.info("server")["redis_version"].split(".")[0]) < 7:
        pytest.skip("a script can tell what its user may not run since Redis 7.0")
    redis_client.execute_command("ACL", "SETUSER", "clerk", "on", ">pw", "~*", "&*", "+@all", f"-{request.param}")
    pool = Pool(RedisSettings(redis_url.replace("://", "://clerk:pw@")))
    yield pool
    pool.close()
    redis_client.acl_deluser("clerk")


@pytest.mark.parametrize("policy", [{}, {"jitter": 1}], ids=["plain", "planted"])
def test_a_tick_that_is_refused_is_fired_later(
    start: Start, pool: Pool, clerk: Pool, redis_client: redis.Redis, policy: dict[str, Any]
) -> None:
    """A tick that was claimed before the refused command would never have its job pushed."""
    sidekiq.periodic("* * * * *", sidekiq.ruby_job("Report"), name="report", **policy)
    start()

    with suppress(RedisReplyError):
        Firing().look(clerk, NOON + 61.5, b"1")
    for seconds in (62, 121.5):
        Firing().look(pool, NOON + seconds, b"1")

    assert len(redis_client.lrange("queue:default", 0, -1)) == 2
    job = CronJobs().find("report")
    assert job is not None
    assert [run.tick for run in job.runs()] == [NOON + 120, NOON + 60]


@pytest.mark.parametrize("clerk", ["LRANGE", "LSET"], indirect=True)
def test_a_job_ends_although_its_history_may_not_be_written(
    start: Start, pool: Pool, clerk: Pool, redis_client: redis.Redis
) -> None:
    """Otherwise it would stay in flight until the right is given back."""
    sidekiq.periodic("* * * * *", sidekiq.ruby_job("Report"), name="report", overlap="skip")
    start()
    [jid] = Firing().look(pool, NOON + 61.5, b"1")

    store.write(clerk, (verbs.ENDED.name, "sidekiq_py:cron:cron_job:default:report", jid, "success", "1", "1"))

    assert not redis_client.hexists("sidekiq_py:cron:cron_job:default:report", "running")
