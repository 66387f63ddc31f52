"""Pushes to a primary that sentinels know."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

import sidekiq_py as sidekiq
from tests.support.child_process import tied_to_this_process
from tests.support.redis_server import RedisServer, find_server_program
from tests.support.waiting import eventually


@pytest.fixture
def primary(new_redis_server: Callable[..., RedisServer]) -> RedisServer:
    """The server that takes writes."""
    return new_redis_server()


@pytest.fixture
def sentinel_url(primary: RedisServer, new_redis_server: Callable[..., RedisServer], tmp_path: Path) -> Iterator[str]:
    """Where a sentinel of that server can be asked."""
    # Another server finds a free port, and leaves it.
    holder = new_redis_server()
    holder.stop()
    configuration = tmp_path / "sentinel.conf"
    configuration.write_text(f"port {holder.port}\nsentinel monitor jobs 127.0.0.1 {primary.port} 1\n")
    program = find_server_program()
    assert program is not None
    process = subprocess.Popen(
        tied_to_this_process([program, str(configuration), "--sentinel"]), stdout=subprocess.DEVNULL, cwd=tmp_path
    )
    asked = redis.Redis(port=holder.port)

    def knows_the_primary() -> bool:
        try:
            return bool(asked.sentinel_get_master_addr_by_name("jobs"))
        except redis.ConnectionError:
            return False

    eventually(knows_the_primary)
    yield f"redis+sentinel://127.0.0.1:{holder.port}/jobs/0"
    asked.close()
    process.terminate()
    process.wait()


def test_both_clients_find_the_primary(sentinel_url: str, primary: RedisServer) -> None:
    """By asking, at each new connection."""
    sidekiq.configure(redis_url=sentinel_url, sidekiq_version="7")
    job = sidekiq.ruby_job("A")

    jids = [job.perform_async(1), asyncio.run(job.aperform_async(2))]

    stored = primary.client()
    assert [json.loads(raw)["jid"] for raw in reversed(stored.lrange("queue:default", 0, -1))] == jids
    stored.close()
