"""What to do about an error of Redis, for the commands that end with one."""

from sidekiq_py.errors import RedisConnectionError, RedisReplyError, SidekiqError

_WHERE_IS_REDIS = "Start Redis, or say where it is: REDIS_URL=redis://host:6379/0"
_IS_LOADING = "Redis is still reading its data from disk. Try again when it has."


def with_advice(error: SidekiqError) -> str:
    """The error's message, with a line on what to do if Redis does not answer."""
    if isinstance(error, RedisReplyError) and error.code == "LOADING":
        return f"{error}\n{_IS_LOADING}"
    return f"{error}\n{_WHERE_IS_REDIS}" if isinstance(error, RedisConnectionError) else str(error)
