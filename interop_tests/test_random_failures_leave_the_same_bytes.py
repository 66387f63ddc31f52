"""Random payloads whose jobs raise, through Ruby's retry code and through ours: the same members, scores and deaths."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from interop_tests import servers
from interop_tests.record import RECORDED_ON
from interop_tests.support.random_failures import RandomFailures
from interop_tests.support.ruby import RUN_TIMEOUT_SECONDS, UTF8, RubyRelease
from sidekiq_py.config import Config
from sidekiq_py.engine.run import retry
from sidekiq_py.engine.run.retry import Failure, after_failure
from sidekiq_py.outcome import Outcome
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.json_dialect import dumps, loads
from tests.engine.failing import FailingJob
from tests.support.redis_server import RedisServer

PAYLOADS = 300
SEED = int(os.environ.get("FIXTURE_SEED", "8"))
# What Ruby's `rand` gives there, and between which bounds it would lie.
DREW = 7
BOUNDS = {"rand30": 30, "rand_times": 10, "rand_range": 10}


def by_hundreds(count: int, _error: BaseException, _payload: dict[str, Any]) -> int:
    """As Ruby's RetryInJob."""
    return (count + 1) * 100


JOBS = {
    "FixtureJob": FailingJob(),
    "RetryThreeJob": FailingJob(options={"retry": 3}),
    "RetryFalseJob": FailingJob(options={"retry": False}),
    "NeverDeadJob": FailingJob(options={"retry": 0, "dead": False}),
    "RetryInJob": FailingJob(retry_in_block=by_hundreds),
}


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """An empty server; Ruby flushes it for each payload."""
    with RedisServer(program=servers.find(RECORDED_ON)) as started:
        yield started


def test_the_same_failures_leave_the_same_bytes(
    ruby_release: RubyRelease, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts at every limit, options of every kind, keys in any order. `FIXTURE_SEED` selects other payloads."""
    dialect = Dialect.pinned(ruby_release.sidekiq_version)
    source = RandomFailures(SEED, milliseconds=dialect.millisecond_times)
    raws = [dumps(source.payload(), dialect.float_text) for _ in range(PAYLOADS)]

    theirs = in_ruby(ruby_release, raws, server.url)

    different = []
    for raw, recorded in zip(raws, theirs, strict=True):
        monkeypatch.setattr(retry, "backtrace_lines", lambda error, recorded=recorded: recorded["error"]["backtrace"])
        ours = in_python(raw, recorded, dialect)
        sets = {name: recorded[name] for name in ("retry", "dead")}
        if (written(ours), ours.announce_death) != (sets, bool(recorded["deaths"])):
            different.append((raw, ours, recorded))
    assert different == []


def in_ruby(release: RubyRelease, raws: list[bytes], redis_url: str) -> list[dict[str, Any]]:
    """What became of each payload."""
    ran = subprocess.run(
        [*release.ruby, str(release.fixtures / "run_failures.rb")],
        input="".join(json.dumps(raw.decode()) + "\n" for raw in raws),
        capture_output=True,
        check=True,
        timeout=RUN_TIMEOUT_SECONDS,
        encoding="utf-8",
        env={**os.environ, **UTF8, **release.environment, "REDIS_URL": redis_url},
    )
    return [json.loads(line) for line in ran.stdout.split("\n") if line]


def in_python(raw: bytes, recorded: dict[str, Any], dialect: Dialect) -> Outcome:
    """What ours decides, at the same time and with the same draw."""
    payload = loads(raw)
    error = type(recorded["error"]["class"], (Exception,), {"__module__": "builtins"})(recorded["error"]["message"])
    count = payload.get("retry_count")
    scaled = (0 if count is None else count + 1) + 1 if dialect.jitter == "rand_range" else 1
    failure = Failure(
        raw,
        queue="default",
        error=error,
        job=JOBS[payload["class"]],
        config=Config(),
        dialect=dialect,
        now=recorded["now"],
        draw=lambda: (DREW + 0.5) / (BOUNDS[dialect.jitter] * scaled),
        report=lambda problem, context: None,
    )
    return after_failure(failure)


def written(outcome: Outcome) -> dict[str, list[list[str]]]:
    """The members that an outcome adds, with the texts of their scores."""
    sets: dict[str, list[list[str]]] = {"retry": [], "dead": []}
    for effect in outcome.vital:
        assert isinstance(effect, tuple)
        command, name, score, member = effect
        assert command == "ZADD"
        sets[str(name)].append([bytes(member).decode(), str(score)])
    return sets
