"""Tells errors of Redis that a worker or beat waits out when it starts from those that someone has to fix."""

from sidekiq_py.errors import RedisError, RedisReplyError

# Where a server was found, the error says what to do. One that hangs up at once, as a proxy does whose Redis is not up
# yet, may have no connection free, and that advice names the limit. Sentinels may start later, or be in a failover.
_MAY_PASS = ("maxclients", "no sentinel knows a primary")


def passes_by_itself(error: RedisError) -> bool:
    """
    Whether Redis may let this program in later, with no change to its settings: it is starting, loading, or full.

    A password, a user or a database that is wrong stays wrong, and so does TLS on one side alone.
    """
    if isinstance(error, RedisReplyError):
        return not error.is_lasting and error.code != "NOAUTH"
    return not error.is_lasting and (not error.is_advised or any(sign in str(error) for sign in _MAY_PASS))
