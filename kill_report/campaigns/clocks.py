"""Workers' clocks jump by up to a day, forward and back, while they run jobs and are killed."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from kill_report.campaigns.process_kills import JOBS_PER_KILL, QUEUES, finish
from kill_report.programs.wrong_clock import set_clock
from kill_report.stage import Stage
from tests.kill.conftest import Fleet
from tests.support.worker_process import REPOSITORY, SidekiqProcess

WORKERS = 3
JUMPS = 30
JUMP_SECONDS = (-86_400.0, -3600.0, -31.0, -2.0, 0.0, 2.0, 31.0, 3600.0, 86_400.0)


def jumps(stage: Stage) -> set[int]:
    """Each worker has its own clock; jobs are scheduled by this process's clock, which is correct."""
    fleet = stage.fleet()
    names = [f"clock-{number}" for number in range(WORKERS)]
    for name in names:
        set_clock(stage.folder / name, 0.0)
    workers = [_start(stage, fleet, name) for name in names]
    for number in range(stage.scaled(JUMPS)):
        stage.push(fleet, stage.scaled(JOBS_PER_KILL // 2))
        time.sleep(stage.draw.uniform(0, 0.5))
        at = stage.draw.randrange(WORKERS)
        set_clock(stage.folder / names[at], stage.draw.choice(JUMP_SECONDS))
        stage.faults["clock of a worker jumped"] += 1
        if number % 3 == 2:
            stage.kill(workers[at].pid, "worker with threads")
            workers[at].wait()
            workers[at] = _start(stage, fleet, names[at])
    for name in names:
        set_clock(stage.folder / name, 0.0)
    return finish(stage, fleet)


def _start(stage: Stage, fleet: Fleet, name: str) -> SidekiqProcess:
    settings: dict[str, Any] = {
        "redis_url": fleet.redis_url,
        "ledger": str(stage.ledger.path),
        "lease_seconds": 6,
        "queues": QUEUES,
    }
    command = [sys.executable, "-m", "kill_report.programs.wrong_clock", str(stage.folder / name), json.dumps(settings)]
    worker = SidekiqProcess(command, redis_url=fleet.redis_url, environment={"PYTHONPATH": str(REPOSITORY)}).start()
    stage.exits.callback(worker.stop)
    return worker


CAMPAIGNS: list[tuple[str, str, Callable[[Stage], set[int]], int]] = [
    ("clocks", "Clock jumps", jumps, 4),
]
