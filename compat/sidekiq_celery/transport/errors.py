"""The engine's errors as kombu and the programs on it know them."""

from collections.abc import Iterator
from contextlib import contextmanager

import redis
from kombu.exceptions import OperationalError

from sidekiq_py.errors import RedisConnectionError, RedisError, ReplyLostError

__all__ = ("as_kombus",)


@contextmanager
def as_kombus(*, may_repeat: bool = True) -> Iterator[None]:
    """
    Raise errors of Redis as kombu's own transport does.

    Args:
        may_repeat: What the block does may be done twice. Else a lost reply is no error of the connection, after which
            kombu would do it again.

    Raises:
        redis.ConnectionError: Redis was not reached; kombu tries again.
        kombu.exceptions.OperationalError: It refused, or what it did is not known.
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
