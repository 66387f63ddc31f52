"""The examples in `docs/data_api.md` run as they stand."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "data_api.md").read_text()


@pytest.fixture
def full_redis(redis_client, payload):
    """A job in each place that the page speaks of."""
    redis_client.sadd("queues", "default", "low")
    redis_client.lpush("queue:default", payload("0123456789abcdef01234567", klass="HardWorker", args=["al", 5]))
    redis_client.lpush("queue:default", payload("b" * 24, klass="HardWorker", args=["bob", 5]))
    for jid, klass in (("a" * 24, "HardWorker"), ("c" * 24, "UserMailer#welcome"), ("d" * 24, "Other")):
        redis_client.zadd("retry", {payload(jid, klass=klass, error_class="NoSuchRecord", retry_count=1): 4e9})
    redis_client.zadd("schedule", {payload("e" * 24): 4e9})
    redis_client.zadd("dead", {payload("f" * 24): 1.7e9, b"raw text": 1.7e9})
    return redis_client


def test_the_examples_in_python_run_in_their_order(pool, full_redis, capsys):
    """Each block after the one before it, in one program."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    program: dict[str, object] = {}

    for block in blocks:
        exec(compile(block, "docs/data_api.md", "exec"), program)

    assert len(blocks) >= 8
    assert b"raw text" in capsys.readouterr().out.encode()
    assert full_redis.zrange("dead", 0, -1) == [b"raw text"]
