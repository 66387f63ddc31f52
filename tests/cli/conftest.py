"""Runs the program `sidekiq-py` in this process, on an empty server."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from sidekiq_py import program
from sidekiq_py.cli import main
from sidekiq_py.client import sync_client
from tests.support.declared_jobs import no_jobs_declared

_PAYLOADS = Path(__file__).parents[2] / "ruby_fixtures" / "payloads"


@pytest.fixture
def as_ruby_wrote_it(redis_client: redis.Redis) -> Callable[..., bytes]:
    """
    Puts what a release of Ruby's Sidekiq left in a situation where that release put it, and returns its bytes:
    `as_ruby_wrote_it("first_failure")`.
    """

    def put(situation: str, release: str = "8.1.7", score: float | None = None) -> bytes:
        recorded = json.loads((_PAYLOADS / release / f"{situation}.json").read_text())
        [member] = [text.encode() for text in recorded["members"]]
        if recorded["type"] == "zset":
            redis_client.zadd(recorded["key"], {member: recorded["scores"][0] if score is None else score})
        else:
            redis_client.sadd("queues", recorded["key"].removeprefix("queue:"))
            redis_client.lpush(recorded["key"], member)
        return member

    return put


@pytest.fixture
def run(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    """Runs a command line: `run("push", "HardWorker", input="…")`."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.delenv("REDIS_PROVIDER", raising=False)
    program.reset()

    def invoke(*arguments: str, **options: Any) -> Result:
        result = CliRunner().invoke(main, arguments, prog_name="sidekiq-py", **options)
        sync_client.current().close()
        return result

    with no_jobs_declared():
        yield invoke
    program.reset()
