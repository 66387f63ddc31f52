"""What docs/delivery.md tells those who leave works as it stands."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tests.support.missing_tools import skip_or_fail
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY, WorkerProcess

PAGE = (REPOSITORY / "docs" / "delivery.md").read_text()

JOBS = """
import time
import sidekiq_py as sidekiq

@sidekiq.job(name="Slow", queue="a:b-c")
def slow(number):
    time.sleep(60)
"""


@pytest.fixture
def killed_worker(tmp_path: Path, redis_client: redis.Redis, start_worker: Callable[..., WorkerProcess]) -> list[bytes]:
    """The bytes of two jobs that were running when their worker was killed."""
    (tmp_path / "slow_jobs.py").write_text(JOBS)
    worker = start_worker("slow_jobs", arguments=["-q", "a:b-c", "-c", "2"])
    jobs = [json.dumps({"class": "Slow", "args": [n], "queue": "a:b-c", "jid": f"{n:024}"}).encode() for n in (1, 2)]
    redis_client.lpush("queue:a:b-c", *jobs)
    eventually(lambda: worker.log.count("start") >= 2)
    worker.kill()
    assert redis_client.llen("queue:a:b-c") == 0
    return jobs


def test_the_recipe_for_redis_cli_gives_every_job_back(
    killed_worker: list[bytes], redis_client: redis.Redis, redis_url: str
) -> None:
    """Byte for byte, from the in-flight hash and from an inbox; of ours only leases are left, which run out."""
    if shutil.which("redis-cli") is None:
        skip_or_fail("no redis-cli; on Debian: apt-get install redis-tools", switch="SIDEKIQ_PY_REQUIRE_REDIS")
    [owner] = redis_client.hkeys("sidekiq_py:owners")
    redis_client.lpush(f"sidekiq_py:inbox:{owner.decode()}:a:b-c", b"late")
    [recipe] = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

    ran = subprocess.run(
        ["sh", "-c", recipe.replace("redis-cli", f"redis-cli -u {redis_url}")],
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.strip() == "3"
    assert sorted(redis_client.lrange("queue:a:b-c", 0, -1)) == sorted([*killed_worker, b"late"])
    left = [key for key in redis_client.keys("sidekiq_py:*") if redis_client.ttl(key) == -1]
    assert left == []


def test_recover_gives_every_job_back(killed_worker: list[bytes], redis_client: redis.Redis, redis_url: str) -> None:
    """With no worker of ours running; it says how many they were."""
    [command] = re.findall(r"^\$ (sidekiq-py recover)\b", PAGE, re.MULTILINE)

    ran = subprocess.run(
        [sys.executable, "-m", "sidekiq_py", *command.split()[1:], "--redis-url", redis_url],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.startswith("2 jobs returned")
    assert sorted(redis_client.lrange("queue:a:b-c", 0, -1)) == sorted(killed_worker)
