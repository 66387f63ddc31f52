"""The doctor on the emptied server, and short ways to bring about what it is to find."""

import json
import shlex
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from sidekiq_py import program
from sidekiq_py.cli import main
from sidekiq_py.client import sync_client
from sidekiq_py.doctor import Finding, Level, Report, examine
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings


class Diagnosis:
    """A report that is easy to ask."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def __repr__(self) -> str:
        return "\n".join(f"{check.name}: {finding}" for check, finding in self.report.findings())

    def __getitem__(self, check_name: str) -> list[Finding]:
        """What one check found, but for what is in order."""
        return [
            finding
            for check, finding in self.report.findings()
            if check.name == check_name and finding.level is not Level.OK
        ]

    def levels(self, check_name: str) -> list[str]:
        """How bad each of that is."""
        return [str(finding.level) for finding in self[check_name]]

    def the(self, check_name: str) -> Finding:
        """The one thing that a check found."""
        [finding] = self[check_name]
        return finding


Look = Callable[..., Diagnosis]


@pytest.fixture
def look(redis_url: str) -> Iterator[Look]:
    """Examines the test's server, or that of `url=`."""
    program.reset()
    pools = []

    def examined(url: str = redis_url, **options: Any) -> Diagnosis:
        pools.append(Pool(RedisSettings(url)))
        return Diagnosis(examine(pool=pools[-1], **options))

    yield examined
    for pool in pools:
        pool.close()
    program.reset()


# In one step: were the time asked for before, whatever stalls in between would put the process's clock off.
_BEAT = """
local time = redis.call('TIME')
local beat = string.format('%.6f', time[1] + time[2] / 1000000 + ARGV[3])
redis.call('SADD', KEYS[1], KEYS[2])
redis.call('HSET', KEYS[2], 'info', ARGV[1], 'busy', 0, 'beat', beat, 'rtt_us', 100, 'quiet', ARGV[2], 'rss', 1)
redis.call('EXPIRE', KEYS[2], 60)
"""


def payload(job_class: str = "HardWorker", queue: str = "default", **more: Any) -> dict[str, Any]:
    """A job as Sidekiq 7 writes it."""
    now = time.time()
    head = {"retry": True, "queue": queue, "args": [], "class": job_class, "jid": "b4a577edbccf1d805744efa9"}
    return {**head, "created_at": now, "enqueued_at": now, **more}


def push(client: redis.Redis, job_class: str = "HardWorker", queue: str = "default", **more: Any) -> None:
    """Enqueue one."""
    client.sadd("queues", queue)
    client.lpush(f"queue:{queue}", json.dumps(payload(job_class, queue, **more)))


def ruby_process(
    client: redis.Redis,
    identity: str = "web:7:0123456789ab",
    *,
    version: str | None = "7.3.2",
    queues: tuple[str, ...] = ("default",),
    ahead_seconds: float = 0.0,
    is_quiet: bool = False,
    labels: tuple[str, ...] = (),
    tag: str = "",
) -> str:
    """A heartbeat as a Ruby process writes it, all at one instant by Redis's clock; returns the identity."""
    info: dict[str, Any] = {"hostname": "web", "started_at": time.time(), "pid": 7, "tag": tag, "concurrency": 5}
    info |= {"queues": list(queues), "labels": list(labels), "identity": identity}
    if version is not None:
        info["version"] = version
    client.eval(_BEAT, 2, "processes", identity, json.dumps(info), str(is_quiet).lower(), ahead_seconds)
    return identity


def python_process(
    client: redis.Redis,
    identity: str = "app:9:ba9876543210",
    *,
    classes: tuple[str, ...] | None = (),
    **options: Any,
) -> str:
    """A heartbeat as a Python process writes it, with the classes that it declares."""
    ruby_process(client, identity, labels=("sidekiq_py",), **options)
    if classes is not None:
        client.set(f"sidekiq_py:declared:{identity}", json.dumps(classes), ex=60)
    return identity


def run_advice(advice: str, redis_url: str, *more: str) -> Result:
    """Run the command that stands behind the colon of an advice, as somebody who copies it to a shell."""
    name, *words = shlex.split(advice.rpartition(": ")[2])
    assert name == "sidekiq-py"
    end = words.index("--") if "--" in words else len(words)
    program.reset()
    result = CliRunner().invoke(main, [*words[:end], "-u", redis_url, *more, *words[end:]])
    sync_client.current().close()
    program.reset()
    assert result.exit_code == 0, result.output
    return result
