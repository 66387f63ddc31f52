"""What a user of Redis may not read is an error: shown as empty, it would look as if there was nothing."""

import re
import time

import pytest

from sidekiq_py.api import BulkRuns, Metrics, ProfileSet, Stats
from sidekiq_py.errors import RedisReplyError


@pytest.mark.parametrize(
    ("command", "read"),
    [
        ("hscan", lambda url: Metrics(pool=url).totals(minutes=5)),
        ("hmget", lambda url: Metrics(pool=url).for_job("HardJob", minutes=5)),
        ("bitfield_ro", lambda url: Metrics(pool=url).for_job("HardJob", minutes=5)),
        ("hgetall", lambda url: BulkRuns(pool=url).latest()),
        ("hmget", lambda url: list(ProfileSet(pool=url))),
        ("hkeys", lambda url: Stats(pool=url).in_flight),
        ("llen", lambda url: Stats(pool=url).in_flight),
    ],
)
def test_a_refused_read_is_no_empty_answer(pool, redis_client, redis_url, command, read):
    """Each of them names the command."""
    redis_client.zadd("profiles", {"a-profile": time.time() + 100})
    redis_client.zadd("sidekiq_py:bulk_runs", {"a-run": 1})
    redis_client.hset("sidekiq_py:owners", "host:1:abc:1", '{"queues":["default"]}')
    redis_client.execute_command("ACL", "SETUSER", "half", "reset", "on", ">pw", "~*", "+@all", f"-{command}")
    try:
        with pytest.raises(RedisReplyError, match=rf"NOPERM .*{re.escape(command)}"):
            read(redis_url.replace("://", "://half:pw@"))
    finally:
        redis_client.execute_command("ACL", "DELUSER", "half")
