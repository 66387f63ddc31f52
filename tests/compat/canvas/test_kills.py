"""Chords whose workers are killed at any moment."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import redis
from sidekiq_celery import Celery, chord

from tests.support.child_process import tied_to_this_process
from tests.support.in_flight import jobs_in_flight
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY, SOURCE_ROOTS

CHORDS = 200
KILLS = 12
PARTS = 3
SEED = int(os.environ.get("SIDEKIQ_PY_SEED", "20261120"))


def start(url: str) -> subprocess.Popen[bytes]:
    """A worker in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))}
    command = [sys.executable, "-m", "tests.compat.canvas.killed_worker", url]
    return subprocess.Popen(
        tied_to_this_process(command),
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextmanager
def workers(url: str, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Workers, all of which are gone after the block."""
    running = [start(url) for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_each_body_is_enqueued_once_whenever_workers_are_killed(
    app: Celery, tasks: SimpleNamespace, redis_url: str, redis_client: redis.Redis
) -> None:
    """Bodies wait in a queue that nobody serves: each chord has one there in the end, with all its results."""
    draw = random.Random(SEED)
    for number in range(CHORDS):
        body = tasks.same.s().set(queue="bodies", task_id=f"body-{number}")
        chord([tasks.add.s(number, part) for part in range(PARTS)], body).apply_async()

    with workers(redis_url, 2) as running:
        for kill in range(KILLS):
            done = CHORDS * PARTS * kill // (KILLS + 2)
            eventually(lambda done=done: int(redis_client.get("stat:processed") or 0) >= done, within_seconds=60)
            victim = draw.randrange(len(running))
            os.kill(running[victim].pid, signal.SIGKILL)
            running[victim].wait()
            running[victim] = start(redis_url)
        eventually(lambda: redis_client.llen("queue:bodies") >= CHORDS, within_seconds=120)
        eventually(lambda: not redis_client.llen("queue:celery") and not jobs_in_flight(redis_client))

    payloads = [json.loads(raw) for raw in redis_client.lrange("queue:bodies", 0, -1)]
    assert Counter(payload["jid"] for payload in payloads) == Counter(f"body-{number}" for number in range(CHORDS))
    for payload in payloads:
        number = int(payload["jid"].removeprefix("body-"))
        assert payload["args"] == [[number + part for part in range(PARTS)]]


def test_each_chord_comes_to_its_end_whenever_workers_are_killed(
    app: Celery, tasks: SimpleNamespace, redis_url: str, redis_client: redis.Redis
) -> None:
    """Bodies that are chords again, run by the same workers."""
    draw = random.Random(SEED)
    results = [
        (chord([tasks.add.s(n, 0), tasks.add.s(n, 1)], chord([tasks.total.s(), tasks.same.s()], tasks.same.s())))
        .apply_async()
        for n in range(40)
    ]  # fmt: skip

    with workers(redis_url, 2) as running:
        for kill in range(4):
            done = 30 * kill
            eventually(lambda done=done: int(redis_client.get("stat:processed") or 0) >= done, within_seconds=60)
            victim = draw.randrange(len(running))
            os.kill(running[victim].pid, signal.SIGKILL)
            running[victim].wait()
            running[victim] = start(redis_url)

        for n, result in enumerate(results):
            assert result.get(timeout=60) == [2 * n + 1, [n, n + 1]]
