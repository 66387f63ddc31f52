"""A program whose tasks the dashboard shows."""

import os

import redis
from sidekiq_celery import Celery, group

URL = os.environ["REDIS_URL"]

app = Celery("shop", broker=URL, backend=URL)
app.conf.result_extended = True
app.conf.shop_cache = {"url": "redis://:hunter2@cache:6379/1", "token": "hunter3", "seconds": 60}


@app.task(name="shop.add", rate_limit="100/s")
def add(a: int, b: int) -> int:
    """A sum."""
    return a + b


@app.task(name="shop.refuse")
def refuse(reason: str, **kwargs: str) -> None:
    """Fails."""
    raise ValueError(reason)


@app.task(name="shop.fan_out")
def fan_out(count: int) -> int:
    """Calls a group."""
    group(add.s(number, number) for number in range(count)).apply_async()
    return count


@app.task(name="shop.hold")
def hold(key: str, **kwargs: str) -> None:
    """Runs until the test says so."""
    client = redis.Redis.from_url(URL, socket_timeout=None)
    client.rpush(f"held:{key}", "1")
    client.blpop([f"release:{key}"], timeout=60)
    client.close()
