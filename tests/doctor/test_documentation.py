"""`docs/doctor.md` says what is there."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from sidekiq_py.doctor import CHECKS
from tests.doctor.conftest import Look, push, python_process, ruby_process
from tests.support.documents import python_examples
from tests.support.redis_server import RedisServer

PAGE = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()


def test_every_check_stands_there() -> None:
    """By the name that `--json` has, and no other."""
    rows = re.findall(r"^\| (`[a-z-]+`(?: `[a-z-]+`)*) \|", PAGE, re.MULTILINE)

    named = [name for row in rows for name in re.findall(r"`([a-z-]+)`", row) if not name.startswith("-")]

    assert sorted(named) == sorted(check.name for check in CHECKS)


def test_the_example_runs(redis_url: str, redis_client: redis.Redis, capsys: pytest.CaptureFixture[str]) -> None:
    """On another Redis."""
    push(redis_client, queue="mailers")

    exec(python_examples("doctor.md").replace("redis://localhost:6379/0", redis_url), {})

    assert "unworked-queues 1 job waits, and no process is running: mailers (1)." in capsys.readouterr().out


def test_the_user_that_it_names_sees_everything(look: Look, new_redis_server: Callable[..., RedisServer]) -> None:
    """And may write nothing."""
    server = new_redis_server()
    client = server.client()
    [command] = re.findall(r"^redis-cli (ACL SETUSER .*)$", PAGE, re.MULTILINE)
    client.execute_command(*shlex.split(command))
    ruby_process(client)
    python_process(client)
    push(client, "Sum")
    client.sadd("paused", "low")
    client.hset("sidekiq_py:owners", "host:1:abc:1", "{}")
    client.zadd("schedule", {"{}": 4e9})
    client.close()

    diagnosis = look(f"redis://doctor:a-password@127.0.0.1:{server.port}/0")

    assert "unseen" not in [finding.level for _, finding in diagnosis.report.findings()]
    assert diagnosis.levels("unserved-classes") == ["warning"]
