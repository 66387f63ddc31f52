"""Stand-ins for the outside world: a card terminal, and books that record everything."""

import os

import redis


class TerminalBusyError(Exception):
    """Someone else is paying at the terminal."""


class CardTerminal:
    """A terminal that is busy on the first attempt and free on the second."""

    def charge(self, order, cents, attempt):
        if attempt < 2:
            raise TerminalBusyError(f"{order} has to wait")
        return f"receipt for {order} over {cents}"


def note(page, line):
    """Write a line into the books."""
    with redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0")) as client:
        client.rpush(f"books:{page}", line)


def read(page):
    """The lines of a page."""
    with redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), decode_responses=True) as client:
        return client.lrange(f"books:{page}", 0, -1)
