"""
Errors of reading and writing results when Redis is down or refuses: each is ours, redis-py's and kombu's at once.

Programs that come from Celery catch `redis.exceptions.ConnectionError`, or kombu's `OperationalError`, around
`result.state` and `result.get()`. This module imports kombu, so it is only imported once something has failed.
"""

import redis
from kombu.exceptions import OperationalError

from sidekiq_py.errors import RedisConnectionError, RedisError, RedisReplyError, ReplyLostError


class BackendConnectionError(RedisConnectionError, redis.ConnectionError, OperationalError):
    """Redis could not be reached."""

    # redis-py's __repr__ omits the text.
    __repr__ = Exception.__repr__


class BackendReplyLostError(ReplyLostError, redis.ConnectionError, redis.TimeoutError, OperationalError):
    """The connection broke, or no reply came in time, after the command was sent."""

    __repr__ = Exception.__repr__


class BackendReplyError(RedisReplyError, redis.ResponseError, OperationalError):
    """Redis answered with an error; `code` is its first word."""

    __repr__ = Exception.__repr__


def as_redis_pys(error: RedisError) -> RedisError:
    """Convert *error* to a class above. As in redis-py, a server that is still loading counts as unreachable."""
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
