"""A program with tasks that run until something ends them, as a worker's command line names it."""

import asyncio
import os
import signal
import time
from typing import Any

import redis
from sidekiq_celery import Celery, signals
from sidekiq_celery.exceptions import SoftTimeLimitExceeded

URL = os.environ["REDIS_URL"]

app = Celery("revoked", broker=URL, backend=URL)


def note(key: str, text: Any) -> None:
    """Remember something for the test."""
    client = redis.Redis.from_url(URL)
    client.rpush(f"noted:{key}", str(text))
    client.close()


@signals.task_revoked.connect(weak=False)
def _tell(request: Any = None, terminated: bool = False, signum: Any = None, expired: bool = False, **_: Any) -> None:
    note("revoked", f"{request.id} {terminated} {getattr(signum, 'name', signum)} {expired}")


@app.task
def quick(value: int = 1) -> int:
    """Ends at once."""
    return value


@app.task
def process_id() -> int:
    """Of the process that runs it."""
    return os.getpid()


@app.task
def sleep_long(name: str = "slow") -> None:
    """Runs until something ends it."""
    note(name, os.getpid())
    time.sleep(600)


@app.task(ignore_result=True, acks_late=False)
def sleep_once(name: str = "once") -> None:
    """Runs at most once, and leaves nothing."""
    note(name, os.getpid())
    time.sleep(600)


@app.task(acks_late=False)
def sleep_once_with_result(name: str = "once") -> None:
    """Runs at most once."""
    note(name, os.getpid())
    time.sleep(600)


@app.task
async def sleep_on_loop(name: str = "loop") -> None:
    """A coroutine that runs until something ends it."""
    note(name, os.getpid())
    try:
        await asyncio.sleep(600)
    finally:
        note("cleaned up", name)


@app.task
def tidies_up(name: str = "tidy") -> None:
    """Leaves nothing behind, however it ends."""
    note(name, os.getpid())
    try:
        time.sleep(600)
    except SystemExit:
        note("caught", "SystemExit")
        raise
    finally:
        note("tidied up", name)


@app.task(time_limit=600)
def heeds_signals(*names: str) -> str:
    """Has handlers of its own, and goes on until it has heard as many signals as these."""
    heard: list[str] = []
    for name in names:
        signal.signal(signal.Signals[name], lambda number, _: heard.append(signal.Signals(number).name))
    note("heeds", os.getpid())
    for _ in names:
        while not heard:
            time.sleep(0.01)
        note("heard", heard.pop(0))
    return "heard all"


@app.task(rate_limit="1/h")
def rare(value: int = 1) -> int:
    """Runs once an hour."""
    return value


@app.task(rate_limit="20/s", ignore_result=True)
def steady(number: int) -> None:
    """Notes which it was, and when by the clock of Redis, so that several processes can be compared."""
    client = redis.Redis.from_url(URL)
    seconds, microseconds = client.time()
    client.rpush("noted:steady", f"{number} {seconds + microseconds / 1e6:.6f}")
    client.close()


@app.task
def cleans_up() -> str:
    """Handles the soft limit, which is raised between two steps of Python."""
    try:
        note("cleaning", os.getpid())
        for _ in range(6000):
            time.sleep(0.1)
    except SoftTimeLimitExceeded:
        return "cleaned up"
    return "not ended"
