"""What to do about an error of Redis, for the commands that end with one."""

from sidekiq_py.errors import RedisConnectionError, RedisReplyError, SidekiqError

_WHERE_IS_REDIS = "Start Redis, or say where it is: REDIS_URL=redis://host:6379/0"
# What the errors of pushes and of single queues say themselves.
_ADVISED = ("docs/redis.md", "in the URL of Redis", "the URL of the primary", "This Redis is full")
_OF_REPLIES = {
    "LOADING": "Redis is still reading its data from disk. Try again when it has.",
    # No password was given, or a wrong one, perhaps because it has one of these characters.
    "NOAUTH": "A password is given like this, with @, / and : in it percent-encoded: "
    "REDIS_URL=redis://user:password@host:6379/0",
    "OOM": "Redis is full: raise maxmemory, let workers drain the queues, or make room: "
    "sidekiq-py dead delete --before 30d",
    "READONLY": "This server is a replica. Give the URL of its primary, or try again when a failover is over.",
    "NOPERM": "docs/redis.md lists the rights that each program needs.",
}


def with_advice(error: SidekiqError) -> str:
    """The error's message, with a line on what to do if Redis does not answer or refuses."""
    text = str(error)
    if isinstance(error, RedisConnectionError):
        # A server was found, and the error says what to do.
        return text if "maxclients" in text or "not a sentinel" in text else f"{text}\n{_WHERE_IS_REDIS}"
    advice = _OF_REPLIES.get(error.code) if isinstance(error, RedisReplyError) else None
    is_advised = any(advised in text for advised in _ADVISED)
    return text if advice is None or is_advised else f"{text}\n{advice}"
