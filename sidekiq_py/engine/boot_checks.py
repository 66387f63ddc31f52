"""
What a worker looks at before it starts: can this Redis do what is needed, and will it keep what it is given?

Source: Sidekiq 8.1.7, cli.rb, `run`.
"""

import logging

from sidekiq_py.errors import UnsupportedRedisError
from sidekiq_py.redis_access import server_info
from sidekiq_py.redis_access.pool import Pool, redact
from sidekiq_py.redis_access.server_info import ServerInfo

# LMOVE and BLMOVE, by which a job is never in no place at all.
OLDEST_REDIS = (6, 2)

_log = logging.getLogger("sidekiq")


def check_redis(pool: Pool) -> ServerInfo:
    """
    Refuse a server that cannot serve, warn of one that may lose jobs.

    Raises:
        UnsupportedRedisError: It is too old, a Cluster or a Sentinel.
        RedisError: It is out of reach.
    """
    server = server_info.read(pool)
    refuse_unsupported(server, redact(pool.settings.url))
    policy = server.maxmemory_policy
    if policy is not None and policy != "noeviction":
        _log.warning(
            "this Redis throws data away when its memory is full (maxmemory-policy %s): jobs can vanish. "
            "Set maxmemory-policy to noeviction, and keep caches on another server",
            policy,
        )
    _log.info("Working on %s at %s", server, redact(pool.settings.url))
    return server


def refuse_unsupported(server: ServerInfo, url: str) -> None:
    """
    Raise if *server* cannot serve.

    Args:
        url: For the message, without a password.
    """
    if server.mode == "cluster":
        raise UnsupportedRedisError(
            f"{url} is a Cluster, which cannot move a job from one key to another in one step. "
            "Use a single primary; for failover, Sentinel: redis+sentinel://host:26379/mymaster"
        )
    if server.mode == "sentinel":
        raise UnsupportedRedisError(
            f"{url} is a Sentinel, which holds no data. Name the service and it is asked for the primary: "
            "redis+sentinel://host:26379/mymaster"
        )
    if server.redis_version is not None and server.redis_version < OLDEST_REDIS:
        needed = ".".join(map(str, OLDEST_REDIS))
        raise UnsupportedRedisError(
            f"{url} is {server}; Redis {needed} or later is needed (or Valkey, or a Dragonfly compatible with it). "
            "Upgrade the server, or point REDIS_URL at another one"
        )
