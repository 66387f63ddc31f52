"""Workers are killed while they fire a tick a second: each tick fires once, and none is left out."""

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import redis

from sidekiq_py.extensions.periodic import store
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

PROGRAM = """
import os

import sidekiq_py as sidekiq


@sidekiq.periodic("* * * * * *", name="each second", catch_up=120)
@sidekiq.job(name="Tick", queue="ticks")
def tick():
    with open(os.environ["TICKS"], "a") as file:
        file.write(sidekiq.current_job().jid + "\\n")
"""
SECONDS = 25.0
WORKERS = 3


def test_each_tick_fires_once_while_workers_are_killed(
    redis_url: str, redis_client: redis.Redis, tmp_path: Path, report: Callable[[object], None]
) -> None:
    """Whoever maintains is killed, too; the next one makes up for what was missed."""
    draw = random.Random(2030)
    (tmp_path / "timetable.py").write_text(PROGRAM)
    ticks = tmp_path / "ticks"
    ticks.touch()
    pool = Pool(RedisSettings(redis_url))

    def start() -> WorkerProcess:
        return WorkerProcess(
            "timetable",
            redis_url=redis_url,
            arguments=["-q", "ticks"],
            environment={"TICKS": str(ticks)},
            python_path=[tmp_path],
        ).start()

    key = "cron_job:default:each second"
    workers = [start() for _ in range(WORKERS)]
    try:
        eventually(lambda: store.runs(pool, key))
        kills, deadline = 0, time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            time.sleep(draw.uniform(0.3, 1.5))
            # Of the one that maintains a kill is felt.
            holder = redis_client.get("sidekiq_py:poller") or b""
            maintaining = [worker for worker in workers if f":{worker.pid}:".encode() in holder]
            victim = draw.choice(maintaining or workers)
            victim.kill()
            workers[workers.index(victim)] = start()
            kills += 1
        stopped_at = int(time.time())
        eventually(lambda: store.runs(pool, key)[0].tick >= stopped_at + 1)
        runs = store.runs(pool, key)
        jids = [run.jid for run in runs if run.jid is not None and run.tick <= stopped_at]
        eventually(lambda: set(jids) <= set(ticks.read_text().split()))
    finally:
        for worker in workers:
            worker.kill()

    fired = sorted(run.tick for run in runs)
    ran = Counter(ticks.read_text().split())
    again = [jid for jid, count in ran.items() if count > 1]
    report(f"ticks={len(fired)} kills={kills} ran_again={len(again)}")
    assert fired == list(range(fired[0], fired[-1] + 1)), "a tick was left out, or fired twice"
    assert len(fired) >= SECONDS
    assert len(set(jids)) == len(jids)
    # A run that was cut off by a kill comes again, as any job's.
    assert len(again) <= kills
