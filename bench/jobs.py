"""The jobs that the benchmarks run."""

import asyncio
import os
import threading
import time
from functools import cache
from typing import Any

import redis

import sidekiq_py as sidekiq

_stamps = os.open(os.environ["BENCH_STAMPS"], os.O_WRONLY | os.O_APPEND) if "BENCH_STAMPS" in os.environ else None

_of_thread = threading.local()


@sidekiq.job(name="NoOp")
def no_op(number: int, text: str) -> None:
    """Do nothing."""


@sidekiq.job(name="Large")
def large(text: str) -> None:
    """Do nothing with a large argument."""


@sidekiq.job(name="Sleeper")
def sleeper(number: int, text: str) -> None:
    """Sleep for a tenth of a second."""
    time.sleep(0.1)


@sidekiq.job(name="Nap")
def nap(milliseconds: int, text: str) -> None:
    """Sleep for the given time."""
    time.sleep(milliseconds / 1000)


@sidekiq.job(name="Count")
def count(number: int, text: str) -> None:
    """Send one command to Redis."""
    _redis().hincrby("bench:counted", "jobs", 1)


@sidekiq.job(name="CountBare")
def count_bare(number: int, text: str) -> None:
    """Send the same command without what redis-py does around it, which is most of what such a job computes."""
    connection = _connection()
    connection.send_command("HINCRBY", "bench:counted", "jobs", 1)
    connection.read_response()


@cache
def _redis() -> "redis.Redis[bytes]":
    return redis.Redis.from_url(os.environ["REDIS_URL"])


def _connection() -> Any:
    if not hasattr(_of_thread, "connection"):
        _of_thread.connection = _redis().connection_pool.get_connection()
    return _of_thread.connection


@sidekiq.job(name="Stamp")
def stamp(sent: float) -> None:
    """Write down how long the job took to get here."""
    if _stamps is not None:
        os.write(_stamps, b"%.9f\n" % (time.monotonic() - sent))


if os.environ.get("BENCH_ASYNC"):

    @sidekiq.job(name="AsyncSleeper")
    async def async_sleeper(number: int, text: str) -> Any:
        """Sleep for a tenth of a second on the event loop."""
        await asyncio.sleep(0.1)
