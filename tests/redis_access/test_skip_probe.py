"""The question whether a server skips replies, asked while Redis refuses commands."""

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
import redis

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import SKIP_PROBE, Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually


def ask(link: Link) -> bool:
    """What a fetcher sends: the question, and a move that waits for long."""
    link.connect()
    link.send(link.pack([*SKIP_PROBE, ("BLMOVE", "queue:empty", "inbox", "RIGHT", "LEFT", "20")]))
    return link.receive_skip_probe()


@pytest.mark.parametrize(("right", "is_skipped"), [("+ping", True), ("-client|reply", False), ("-ping", None)])
def test_a_refusal_is_not_waited_for(
    redis_client: redis.Redis, redis_url: str, right: str, is_skipped: bool | None
) -> None:
    """Whether CLIENT or PING is refused. Otherwise the reply to the move would be waited for, for seconds."""
    redis_client.execute_command("ACL", "SETUSER", "clerk", "on", ">pw", "~*", "+@all", right)
    pool = Pool(RedisSettings(redis_url.replace("://", "://clerk:pw@")))
    link = pool.new_link(timeout_seconds=3.0)
    try:
        if is_skipped is None:
            with pytest.raises(RedisReplyError, match="NOPERM"):
                ask(link)
            assert not link.is_open
        else:
            assert ask(link) is is_skipped
    finally:
        link.close()
        pool.close()
        redis_client.acl_deluser("clerk")


def test_a_server_that_does_not_know_the_command_skips_no_replies(
    new_redis_server: Callable[..., RedisServer],
) -> None:
    """As some proxies and managed servers. A worker that took this for an outage would pause after each job."""
    pool = Pool(RedisSettings(new_redis_server(config={"rename-command": 'CLIENT ""'}).url))
    link = pool.new_link(timeout_seconds=3.0)

    assert not ask(link)
    assert link.is_open

    link.close()
    pool.close()


def test_a_busy_redis_is_not_waited_for(redis_client: redis.Redis, redis_url: str) -> None:
    """Its refusal is raised at once."""
    redis_client.config_set("lua-time-limit", 10)
    pool = Pool(RedisSettings(redis_url))
    link = pool.new_link(timeout_seconds=3.0)
    link.connect()

    def occupy() -> None:
        with suppress(redis.RedisError), redis.Redis.from_url(redis_url) as client:
            client.eval("while true do end", 0)

    def is_busy() -> bool:
        try:
            redis_client.ping()
        except redis.ResponseError:
            return True
        return False

    thread = threading.Thread(target=occupy)
    thread.start()
    try:
        eventually(is_busy)
        with pytest.raises(RedisReplyError, match="BUSY"):
            ask(link)
    finally:
        redis_client.script_kill()
        thread.join()
        redis_client.config_set("lua-time-limit", 5000)
        link.close()
        pool.close()
