"""Translates the engine's errors into those that kombu, and programs that use it, expect."""

from collections.abc import Iterator
from contextlib import contextmanager

import redis
from kombu.exceptions import OperationalError

from sidekiq_py.errors import RedisConnectionError, RedisError, ReplyLostError


@contextmanager
def as_kombus(*, may_repeat: bool = True) -> Iterator[None]:
    """
    Raise Redis errors as kombu's own transport does.

    Args:
        may_repeat: True if the block may run twice. Otherwise a lost reply does not count as a connection error,
            because kombu would run the block again.

    Raises:
        redis.ConnectionError: Redis could not be reached. kombu tries again.
        kombu.exceptions.OperationalError: Redis refused, or the outcome is unknown.
    """
    try:
        yield
    except RedisConnectionError as error:
        raise redis.ConnectionError(str(error)) from error
    except ReplyLostError as error:
        if may_repeat:
            raise redis.ConnectionError(str(error)) from error
        raise OperationalError(str(error)) from error
    except RedisError as error:
        raise OperationalError(str(error)) from error
