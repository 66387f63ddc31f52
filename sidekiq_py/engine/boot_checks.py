"""
Checks Redis before a worker starts: does it support what is needed, and will it keep the jobs?

Source: Sidekiq 8.1.7, cli.rb, `run`.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from sidekiq_py.client.detection import dialect_of
from sidekiq_py.errors import ConfigError, RedisError, RedisReplyError, UnsupportedRedisError, rights_hint
from sidekiq_py.logs import log
from sidekiq_py.redis_access.connection import server_info
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.server_info import OLDEST_REDIS, ServerInfo
from sidekiq_py.redis_access.connection.settings import place
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.redis_access.reads import versions
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import version_text

_SHARED_KEYS = (
    keys.QUEUES,
    keys.PAUSED,
    keys.SCHEDULE,
    keys.RETRY,
    keys.DEAD,
    keys.PROCESSES,
    keys.STAT_PROCESSED,
    keys.STAT_FAILED,
)
# The keys that an ACL has to allow for a worker; docs/redis.md lists the commands one by one.
ACL_KEYS = (
    "~queue* ~paused ~schedule ~retry ~dead ~process* ~stat:* ~it-* ~sidekiq_py:* "
    "~*:[0-9]*:????????????* ~j|* ~h|* ~*-[0-9][0-9]-[0-9]*:*"
)

_A_URL = "A URL is redis://user:password@host:port/database"

# A worker may serve thousands of queues; their names mostly fall under one rule.
_MOST_QUEUES = 20


def check_redis(pool: Pool, *, queues: Sequence[str] = ("default",), keeps_in_flight: bool = True) -> ServerInfo:
    """
    Reject a server that a worker cannot use, and warn about one that may lose jobs.

    Args:
        queues: The names of the queues that the worker serves, at least one.
        keeps_in_flight: Whether the worker writes keys of ours, as the reliable fetcher does.

    Raises:
        ConfigError: The server does not let this user in, lacks the database, or forbids something a worker needs.
        UnsupportedRedisError: The server is too old, a Cluster, a Sentinel, or runs no scripts.
        RedisError: The server is unreachable.
    """
    url = place(pool.settings)
    try:
        server = server_info.read(pool)
    except RedisReplyError as error:
        # A server that runs a long script refuses to select a database, but not for long.
        if error.may_pass_at_start:
            raise
        reason = str(error).rstrip(".")
        lacks_rights = reason.startswith("NOPERM")
        advice = "docs/redis.md lists the rights that a worker needs" if lacks_rights else _A_URL
        raise ConfigError(f"{url} does not let this worker in: {reason}. {advice}") from error
    refuse_unsupported(server, url)
    if unknown := server_info.unknown_script_commands(pool):
        raise UnsupportedRedisError(
            f"{url} does not know {' and '.join(unknown)}, which a worker needs to run its scripts. "
            "Remove that `rename-command` from the server's configuration, or point REDIS_URL at another server"
        )
    _check_rights(pool, url, queues[:_MOST_QUEUES], keeps_in_flight=keeps_in_flight)
    policy = server.maxmemory_policy
    if policy is not None and policy != "noeviction":
        log.warning(
            "this Redis throws data away when its memory is full (maxmemory-policy %s): jobs or batches can vanish. "
            "Set maxmemory-policy to noeviction, and keep caches on another server",
            policy,
        )
    if server.is_replica:
        log.warning(
            "%s is a replica. As long as it refuses writes, this worker runs no jobs: give the URL of the primary, or "
            "wait until the failover is over",
            url,
        )
    log.info("Working on %s at %s", server, url)
    if pool.settings.namespace:
        warn_of_ruby_outside(pool)
    return server


def warn_of_ruby_outside(pool: Pool) -> None:
    """
    Warn if the Ruby side seems to have left the namespace, as it must for Sidekiq 7.

    If several programs share a Redis, another one may run outside the namespace. So nothing is logged while a Ruby
    process is seen within it.
    """
    try:
        if dialect_of(versions.infos(pool)) is not None:
            return
        with closing(Pool(replace(pool.settings, namespace=""))) as bare:
            outside = dialect_of(versions.infos(bare))
    except RedisError:
        # An ACL may confine this user to the namespace.
        return
    if outside is not None and not outside.knows_namespaces:
        log.warning(
            "No Ruby process uses the namespace %s, but one of Sidekiq %s works on the same Redis without a namespace. "
            "Sidekiq 7 and later have no namespaces: if it should share jobs with this worker, remove the namespace",
            pool.settings.namespace,
            version_text(outside.version),
        )


def _check_rights(pool: Pool, url: str, queues: Sequence[str], *, keeps_in_flight: bool) -> None:
    """
    Raise if this user may not use a worker's keys or run scripts, and warn if it may not count jobs. Nothing is
    written.
    """
    names = [*map(keys.queue, queues), *_SHARED_KEYS]
    inbox = keys.inbox("", queues[0])
    # No owner has the empty name, so its inbox is empty. A job that could be moved but not removed would run again and
    # again.
    owned = [("LMOVE", inbox, inbox, "RIGHT", "LEFT"), ("LPOS", inbox, ""), ("LREM", inbox, -1, "")]
    if keeps_in_flight:
        names += [keys.OWNERS, keys.in_flight(""), keys.lease("")]
    # A user who may count is told that this is no number.
    count = ("INCRBY", keys.STAT_PROCESSED, "none")
    *replies, counted = pool.replies([("EXISTS", *names), *(owned if keeps_in_flight else ()), count])
    refusals = [reply for reply in replies if isinstance(reply, RedisReplyError)]
    if keeps_in_flight:
        try:
            # Nothing is renewed.
            pool.run(lambda link: in_flight.renew(link, "", "", 1))
        except RedisReplyError as refusal:
            refusals.append(refusal)
    for lasting in refusals:
        # Any other error may be temporary, and hides none that lasts: in a failover, a replica refuses LMOVE to all.
        if lasting.code == "NOPERM":
            raise ConfigError(
                f"{url} forbids this user something that a worker needs: {lasting}. Allow the keys {_acl_keys(pool)} "
                "and the commands +@all -@dangerous, or those that docs/redis.md lists one by one"
            ) from lasting
    if isinstance(counted, RedisReplyError) and counted.code == "NOPERM":
        # A script that counts jobs skips what is refused, so nothing else would tell.
        log.warning(
            "the jobs that this worker runs are not counted as processed or failed: %s%s", counted, rights_hint(counted)
        )


def _acl_keys(pool: Pool) -> str:
    namespace = pool.settings.namespace
    return f"~{namespace}:*" if namespace else ACL_KEYS


def refuse_unsupported(server: ServerInfo, url: str) -> None:
    """
    Raise if a worker cannot use *server*.

    Args:
        url: The URL for the message, without a password.
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
        needed = version_text(OLDEST_REDIS)
        raise UnsupportedRedisError(
            f"{url} is {server}; Redis {needed} or later is needed (or Valkey, or a Dragonfly compatible with it). "
            "Upgrade the server, or point REDIS_URL at another one"
        )
