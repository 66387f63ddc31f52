"""Workers and Redis are killed while a tick a second is due: each tick fires once, and none is left out."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.api import CronJobs
from sidekiq_py.extensions.periodic import store
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel
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
KEY = "cron_job:default:each second"
SECONDS = 25.0
WORKERS = 3


class Fleet:
    """
    Two workers that fire the ticks and run them, and note which jobs they ran.

    Args:
        redis_url: Where the test looks.
        worker_url: Where the workers look for Redis.
    """

    def __init__(self, redis_url: str, folder: Path, exits: ExitStack, *, worker_url: str = "") -> None:
        (folder / "timetable.py").write_text(PROGRAM)
        self._ran = folder / "ticks"
        self._ran.touch()
        environment = {"TICKS": str(self._ran), "REDIS_URL": worker_url or redis_url}
        self.workers = []
        for _ in range(2):
            worker = WorkerProcess(
                "timetable",
                redis_url=redis_url,
                arguments=["-q", "ticks"],
                environment=environment,
                python_path=[folder],
            )
            exits.callback(worker.stop)
            exits.callback(worker.print_log_tail)
            self.workers.append(worker.start())

    def fired_since(self, pool: Pool, moment: float) -> list[store.Run]:
        """All ticks that were fired, once there are some behind *moment*."""
        return eventually(lambda: runs if (runs := store.runs(pool, KEY)) and runs[0].tick > moment else None)

    def close(self, pool: Pool, first: int) -> str:
        """Each tick from *first* on has fired once, up to now; its job has run, and none that the books do not name."""
        pushed = {run.jid for run in self.fired_since(pool, time.time() + 1)}
        eventually(lambda: pushed <= set(self._ran.read_text().split()))
        for worker in self.workers:
            worker.kill()
        runs = store.runs(pool, KEY)
        fired, ran = sorted(run.tick for run in runs), Counter(self._ran.read_text().split())
        assert fired == list(range(first, fired[-1] + 1)), "a tick was left out, or fired twice"
        assert len({run.jid for run in runs}) == len(runs)
        assert set(ran) <= {run.jid for run in runs}, "a tick has fired of which Redis knows nothing"
        return f"ticks={len(fired)} ran_again={sum(1 for count in ran.values() if count > 1)}"


@pytest.fixture
def exits() -> Iterator[ExitStack]:
    """What ends with the test."""
    with ExitStack() as stack:
        yield stack


def test_each_tick_fires_once_while_redis_is_killed(
    new_redis_server: Callable[..., RedisServer], tmp_path: Path, exits: ExitStack, report: Callable[[object], None]
) -> None:
    """It keeps what it has answered (AOF), and is away for two seconds each time; what was missed is made up for."""
    server = new_redis_server(appendonly=True)
    pool = Pool(RedisSettings(server.url))
    exits.callback(pool.close)
    fleet = Fleet(server.url, tmp_path, exits)
    first = fleet.fired_since(pool, 0)[-1].tick

    for _ in range(3):
        server.kill()
        killed_at = time.time()
        eventually(lambda killed_at=killed_at: time.time() > killed_at + 2)
        server.start()
        fleet.fired_since(pool, time.time())

    report(fleet.close(pool, first))


def test_each_tick_fires_once_across_a_failover(
    primary: RedisServer,
    replica: RedisServer,
    sentinel: Sentinel,
    tmp_path: Path,
    exits: ExitStack,
    report: Callable[[object], None],
) -> None:
    """The primary is killed when its replica has heard all: a claim that Redis itself forgets nobody can keep."""
    before, pool = Pool(RedisSettings(primary.url)), Pool(RedisSettings(replica.url))
    exits.callback(before.close)
    exits.callback(pool.close)
    fleet = Fleet(primary.url, tmp_path, exits, worker_url=sentinel.url)
    first = fleet.fired_since(before, 0)[-1].tick
    fleet.fired_since(before, first + 1)

    for worker in fleet.workers:
        worker.freeze()
    # What they had sent has been read when the second of these is, and handed on when the third is answered.
    before.command("PING")
    assert before.batch([("SET", "the last", "1"), ("WAIT", 1, 30_000)])[1] == 1
    primary.kill()
    for worker in fleet.workers:
        worker.thaw()

    report(fleet.close(pool, first))


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

    workers = [start() for _ in range(WORKERS)]
    try:
        eventually(lambda: store.runs(pool, KEY))
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
        eventually(lambda: store.runs(pool, KEY)[0].tick >= stopped_at + 1)
        runs = store.runs(pool, KEY)
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

    def clients() -> int:
        return int(redis_client.info("clients")["connected_clients"])

    before = clients()
    assert look(moment).returncode == -signal.SIGKILL
    eventually(lambda: clients() <= before)
    first = redis_client.llen("queue:default")
    second = look("")

    assert second.returncode == 0, second.stderr
    assert first + int(second.stdout) == 1
    assert redis_client.llen("queue:default") == 1
    assert first == (0 if moment == "before" else 1)
