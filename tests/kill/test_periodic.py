"""Workers are killed while they fire a tick a second: each tick fires once, and none is left out."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.api import CronJobs
from sidekiq_py.extensions.periodic import store
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY, WorkerProcess

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


LOOK = """
import sys

import sidekiq_py as sidekiq
from sidekiq_py.api import CronJobs
from sidekiq_py.extensions.periodic.firing import Firing
from tests.support.kill_worker import Countdown, around_request

url, moment, now = sys.argv[1], sys.argv[2], float(sys.argv[3])
sidekiq.configure(redis_url=url, sidekiq_version="7")
if moment:
    around_request(b"CRON_CLAIM", moment, Countdown(1))
print(len(Firing().look(CronJobs().pool, now, b"1")))
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
# 2030-01-01 12:00 UTC.
NOON = 1893499200


@pytest.mark.parametrize("moment", ["before", "sent", "read"])
def test_a_tick_fires_once_whenever_its_process_is_killed(
    redis_url: str, redis_client: redis.Redis, moment: str
) -> None:
    """Before the claim is sent, while it is on its way, or once its reply has been read."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="7")
    CronJobs().add("* * * * *", "Report", name="report")
    redis_client.hset("sidekiq_py:cron:cron_job:default:report", "since", "0")

    def look(moment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", LOOK, redis_url, moment, str(NOON + 61.0)]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)

    assert look(moment).returncode == -signal.SIGKILL
    eventually(lambda: redis_client.info("clients")["connected_clients"] <= 2)
    first = redis_client.llen("queue:default")
    second = look("")

    assert second.returncode == 0, second.stderr
    assert first + int(second.stdout) == 1
    assert redis_client.llen("queue:default") == 1
    assert first == (0 if moment == "before" else 1)
