"""The ledger: a producer that lives, bridges that are killed, and each task once."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery.bridge.transfer import CLAIMED, TOTALS

from tests.compat.bridge.conftest import celery_side
from tests.compat.tasks.worker import TaskWorker
from tests.support.child_process import tail
from tests.support.waiting import eventually
from tests.support.worker_process import SOURCE_ROOTS

# The first one starts a RabbitMQ.
pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]

_SECONDS = 60
_REDIS_STEPS = ("before claiming", "claimed", "before writing", "written", "before forgetting", "forgotten")
_RABBIT_STEPS = ("before writing", "written", "before acknowledging", "acknowledged")


class Bridges:
    """Bridges as processes, which move from one URL to another."""

    def __init__(self, source: str, target: str, log: Path) -> None:
        self._arguments = ["-q", "bridge", "--from", source, "--to", target, "-Q", "celery"]
        self._log = log.open("ab")
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, *more: str, step: str = "never", nth: int = 1) -> subprocess.Popen[bytes]:
        """Start one, which is to die at a step."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))}
        module = "tests.compat.bridge.dying_bridge"
        command = [sys.executable, "-m", module, step, str(nth), *self._arguments, *more]
        process = subprocess.Popen(command, env=environment, stdout=self._log, stderr=self._log)
        self._running.append(process)
        return process

    def die_at(self, step: str, nth: int) -> None:
        """One that dies at a step."""
        assert self.start(step=step, nth=nth).wait(_SECONDS) == -signal.SIGKILL

    def die_after(self, seconds: Sequence[float]) -> None:
        """Some at once, each of which is killed after a time."""
        processes = [self.start() for _ in seconds]
        for process, pause in zip(processes, sorted(seconds), strict=True):
            time.sleep(pause)
            process.kill()
            assert process.wait(_SECONDS) == -signal.SIGKILL

    def finish(self) -> None:
        """One that moves the rest."""
        assert self.start("--once").wait(_SECONDS) == 0

    def close(self) -> None:
        """Nothing is left running."""
        for process in self._running:
            process.kill()
            process.wait()
        self._log.close()


@contextmanager
def _bridges(source: str, target: str, folder: Path) -> Iterator[Bridges]:
    bridges = Bridges(source, target, folder / "log")
    try:
        yield bridges
    except BaseException:
        print(tail(folder / "log"))
        raise
    finally:
        bridges.close()


@contextmanager
def _producer(broker: str, results: str, count: int) -> Iterator[subprocess.Popen[bytes]]:
    """The real Celery, sending so many calls; all of them are sent when the block ends."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = celery_side(broker, results, "many", str(count))
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as producer:
        yield producer
        assert producer.wait(_SECONDS) == 0


def _each_once(app: Celery, url: str, client: redis.Redis, count: int) -> None:
    """Each id is in the queue once, and each task is run once by a worker."""
    found = [json.loads(text) for text in client.lrange("queue:celery", 0, -1)]
    assert Counter(job["args"][0] for job in found) == Counter(range(count))
    assert len({job["jid"] for job in found}) == count
    assert client.hgetall(TOTALS) == {b"forward:celery:moved": str(count).encode()}
    worker = TaskWorker(app, url)
    worker.start()
    try:
        eventually(lambda: len(app.noted) >= count, within_seconds=_SECONDS)
    finally:
        worker.stop()
    assert sorted(app.noted) == list(range(count))


@pytest.mark.parametrize("where", ["within", "across"])
def test_redis_bridges_that_are_killed_lose_nothing_and_move_nothing_twice(
    where: str, app: Celery, redis_url: str, redis_client: redis.Redis, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """At each step between two servers, and at any moment; several at once."""
    source = redis_url if where == "within" else request.getfixturevalue("other_redis").url
    draw = random.Random(7)
    with _bridges(source, redis_url, tmp_path) as bridges:
        with _producer(source, source, 5000):
            for nth, step in enumerate(_REDIS_STEPS if where == "across" else ("before writing", "written")):
                bridges.die_at(step, 1 + nth % 3)
            for _ in range(3):
                bridges.die_after([draw.uniform(0.3, 0.8), draw.uniform(0.0, 0.3)])
        bridges.finish()

    with redis.Redis.from_url(source) as celery:
        assert not celery.exists("celery", f"{CLAIMED}forward")
    _each_once(app, redis_url, redis_client, 5000)


def test_rabbitmq_bridges_that_are_killed_lose_nothing_and_move_nothing_twice(
    app: Celery, rabbit_url: str, redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    """The broker brings again what was not acknowledged, and the mark tells what was written."""
    draw = random.Random(7)
    with _bridges(rabbit_url, redis_url, tmp_path) as bridges:
        with _producer(rabbit_url, redis_url, 1000):
            for nth, step in enumerate(_RABBIT_STEPS):
                bridges.die_at(step, 1 + nth % 3)
            for _ in range(2):
                bridges.die_after([draw.uniform(0.3, 0.8), draw.uniform(0.0, 0.3)])
        # A connection that was cut is closed by the broker a moment later.
        eventually(lambda: (bridges.finish(), redis_client.llen("queue:celery") >= 1000)[1], within_seconds=_SECONDS)

    _each_once(app, redis_url, redis_client, 1000)
