"""
What reading and writing results raises where Redis is away, or refuses: ours, redis-py's and kombu's at once.

Programs that come from Celery catch `redis.exceptions.ConnectionError`, or kombu's `OperationalError`, around
`result.state` and `result.get()`. The module is imported when something has failed, as kombu is imported with it.
"""

import redis
from kombu.exceptions import OperationalError

from sidekiq_py.errors import RedisConnectionError, RedisError, RedisReplyError, ReplyLostError

__all__ = ("BackendConnectionError", "BackendReplyError", "BackendReplyLostError", "as_redis_pys")


class BackendConnectionError(RedisConnectionError, redis.ConnectionError, OperationalError):
    """Redis was not reached."""

    # redis-py's leaves out the text.
    __repr__ = Exception.__repr__


class BackendReplyLostError(ReplyLostError, redis.ConnectionError, redis.TimeoutError, OperationalError):
    """The connection broke, or nothing came in time, after the command was sent."""

    __repr__ = Exception.__repr__


class BackendReplyError(RedisReplyError, redis.ResponseError, OperationalError):
    """Redis answered with an error; `code` is its first word."""

    __repr__ = Exception.__repr__


def as_redis_pys(error: RedisError) -> RedisError:
    """*error* as the class above that it belongs to; a server that still loads its data cannot be reached, as there."""
    if isinstance(error, RedisReplyError) and error.code == "LOADING":
        return BackendConnectionError(str(error))
    for kind, wanted in (
        (RedisConnectionError, BackendConnectionError),
        (ReplyLostError, BackendReplyLostError),
        (RedisReplyError, BackendReplyError),
    ):
        if isinstance(error, kind):
            return error if isinstance(error, wanted) else wanted(str(error))
    return error
