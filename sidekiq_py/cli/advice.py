"""What to do about an error of Redis, for the commands that end with one."""

from sidekiq_py.errors import RedisConnectionError, RedisError, RedisReplyError, SidekiqError

_WHERE_IS_REDIS = "Start Redis, or say where it is: REDIS_URL=redis://host:6379/0"
_OF_REPLIES = {
    "LOADING": "Redis is still reading its data from disk. Try again when it has.",
    # No password was given, or a wrong one, perhaps because it has one of these characters.
    "NOAUTH": "A password is given like this, with @, / and : in it percent-encoded: "
    "REDIS_URL=redis://user:password@host:6379/0",
    "OOM": "Redis is full: raise maxmemory, let workers drain the queues, or make room: "
    "sidekiq-py dead delete --before 30d",
    "READONLY": "This server is a replica. Give the URL of its primary, or try again when a failover is over.",
    "NOPERM": "docs/redis.md lists the rights that each program needs.",
    "WRONGTYPE": "Something else has written this key. To find out which one it is: sidekiq-py doctor",
}


def with_advice(error: SidekiqError) -> str:
    """The error's message, with a line on what to do if Redis does not answer or refuses."""
    text = str(error)
    if not isinstance(error, RedisError) or error.is_advised:
        return text
    if isinstance(error, RedisConnectionError):
        return f"{text}\n{_WHERE_IS_REDIS}"
    advice = _OF_REPLIES.get(error.code) if isinstance(error, RedisReplyError) else None
    return text if advice is None else f"{text}\n{advice}"
