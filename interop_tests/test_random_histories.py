"""
Random histories of a few jobs through Ruby's engine and through ours, each on its own database: the same keys, the same
members, the same scores.

Time, job ids and the jitter of retries are the same on both sides, so that little is left to differ: the name of an
error's class, and the lines of its backtrace.

The histories are the same in every run. `SIDEKIQ_PY_DIFFERENTIAL_SEED` draws others, `SIDEKIQ_PY_HISTORIES` more or
fewer of them than 100 for each release.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, Phase, given, seed, settings

from interop_tests.support.histories import Step, histories
from interop_tests.support.ruby import UTF8, RubyRelease
from tests.support.child_process import tied_to_this_process
from tests.support.redis_server import RedisServer

SEED = os.environ.get("SIDEKIQ_PY_DIFFERENTIAL_SEED")
COUNT = int(os.environ.get("SIDEKIQ_PY_HISTORIES", "100"))

_OURS_ALONE = (b"sidekiq_py:", b"fixture:", b"stat:")
_ERROR_CLASS = b'"error_class":"interop_tests.support.python_jobs.FixtureError"'
_BACKTRACE = re.compile(rb'("error_backtrace":)"[^"]*"')


class Engine:
    """A program that lives through histories on a database of its own."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], database: redis.Redis) -> None:
        self.database = database
        self._process = subprocess.Popen(
            tied_to_this_process(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        self._answer()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it; whatever is asked of it afterwards is an error."""
        self._process.kill()
        self._process.communicate()

    def begin(self, history: Sequence[Step]) -> None:
        """Start on an empty database."""
        if self._process.returncode is not None:
            raise AssertionError("the program was killed, as a history was cut off")
        self.database.flushdb()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(history).encode() + b"\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """Wait for the end of the history; what its steps answered."""
        answer: dict[str, Any] = json.loads(self._answer())
        return answer

    def _answer(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError("the program ended; what it said stands above")
        return line


@pytest.fixture(scope="module")
def engines(ruby_release: RubyRelease, redis_server: RedisServer) -> Iterator[tuple[Engine, Engine]]:
    """Ruby's on database 0, ours on database 1."""
    urls = [f"redis://127.0.0.1:{redis_server.port}/{number}" for number in (0, 1)]
    with ExitStack() as exits:
        databases = [exits.enter_context(redis.Redis.from_url(url)) for url in urls]
        ruby = [*ruby_release.ruby, "-W0", str(ruby_release.fixtures / "history.rb")]
        theirs = {**UTF8, **ruby_release.environment, "REDIS_URL": urls[0]}
        python = [sys.executable, "-m", "interop_tests.support.history_engine"]
        ours = {"REDIS_URL": urls[1], "FIXTURE_SIDEKIQ_VERSION": ruby_release.sidekiq_version}
        yield (
            exits.enter_context(Engine(ruby, theirs, databases[0])),
            exits.enter_context(Engine(python, ours, databases[1])),
        )


@pytest.mark.timeout(600)  # a history that fails is made short first
def test_both_engines_leave_the_same_keys(
    engines: tuple[Engine, Engine], ruby_release: RubyRelease, report: Callable[[object], None]
) -> None:
    """Pushes, runs, failures, promotions and actions of the data API, in any order."""
    ruby, python = engines
    lived = steps = runs = failures = 0

    @seed(SEED or 1)
    @settings(
        max_examples=COUNT,
        deadline=None,
        database=None,
        derandomize=SEED is None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(histories())
    def live(history: list[Step]) -> None:
        nonlocal lived, steps, runs, failures
        try:
            for engine in engines:
                engine.begin(history)
            theirs, ours = ruby.end(), python.end()
        except BaseException:
            # Cut off by the test's limit, which hypothesis takes for a failure to make short: with answers that nobody
            # has read, both sides of a pipe waited for each other, and no limit was left that would have ended it.
            for engine in engines:
                engine.kill()
            raise

        assert ours["answers"] == theirs["answers"]
        assert dump(python.database) == dump(ruby.database)
        assert counted(python.database) == (theirs["processed"], theirs["failed"])
        lived, steps = lived + 1, steps + len(history)
        runs, failures = runs + theirs["processed"], failures + theirs["failed"]

    live()
    version = ruby_release.sidekiq_version
    report(f"Sidekiq {version}: {lived} histories, {steps:,} steps, {runs:,} runs, {failures:,} failed, 0 differences")


def dump(database: redis.Redis) -> dict[bytes, Any]:
    """All keys but those that only one side has, without what may differ."""
    readers: dict[bytes, Callable[[bytes], Any]] = {
        b"list": lambda key: [_alike(member) for member in database.lrange(key, 0, -1)],
        b"zset": lambda key: [
            (_alike(member), score) for member, score in database.zrange(key, 0, -1, withscores=True)
        ],
        b"set": lambda key: sorted(database.smembers(key)),
    }
    names = [name for name in sorted(database.scan_iter()) if not name.startswith(_OURS_ALONE)]
    return {name: readers[database.type(name)](name) for name in names}


def counted(database: redis.Redis) -> tuple[int, int]:
    """What stands in the counters of runs and failures, the same in total and by day."""
    totals = []
    for name in ("processed", "failed"):
        by_day = [int(database.get(key) or 0) for key in database.scan_iter(f"stat:{name}:*")]
        totals.append(int(database.get(f"stat:{name}") or 0))
        assert sum(by_day) == totals[-1]
    return totals[0], totals[1]


def _alike(member: bytes) -> bytes:
    return _BACKTRACE.sub(rb'\1"..."', member.replace(_ERROR_CLASS, b'"error_class":"FixtureError"'))
