"""
Redis and Valkey are stopped or killed and start again, under each `appendfsync`, while workers are at work.

The process is killed, not the machine. A log that is written and not yet synced outlives that; under `everysec` a
server whose disk is slow holds writes back for up to two seconds and answers all the same, so it may forget a push or
the end of a job. A lost job whose number stands nowhere in the server's log was forgotten by the server, and counts
as dropped.
"""

import itertools
import time
from collections.abc import Callable
from pathlib import Path

from interop_tests import servers
from interop_tests.roots import RootError
from interop_tests.servers import RedisProgram
from kill_report.campaigns.process_kills import QUEUES, finish
from kill_report.stage import PATIENCE_SECONDS, Stage, numbers_in_log

WORKERS = 3
JOBS = 6000
RESTARTS = 6
PROGRAMS = ("redis-7.0", "redis-newest", "valkey-8.1", "valkey-newest")
FSYNCS = ("always", "everysec", "no")
# Else the log would be a snapshot at times, and jobs could not be looked up in it.
PLAIN_LOG = {"aof-use-rdb-preamble": "no", "auto-aof-rewrite-percentage": "0"}


def restarts(stage: Stage) -> set[int]:
    """One server and one `appendfsync` a round; the next round takes the next two."""
    name, fsync = stage.turn(list(itertools.product(PROGRAMS, FSYNCS)))
    program = _program(name)
    server = stage.start_redis(appendonly=True, program=program, config={"appendfsync": fsync, **PLAIN_LOG})
    fleet = stage.fleet(server)
    fleet.defaults = {"queues": QUEUES}
    workers = [fleet.start(wait=False) for _ in range(WORKERS)]
    for worker in workers:
        worker.wait_until_ready(within_seconds=PATIENCE_SECONDS)
    count = stage.scaled(RESTARTS)
    for _ in range(count):
        stage.push(fleet, stage.scaled(JOBS) // count)
        time.sleep(stage.draw.uniform(0.1, 1.5))
        is_kill = stage.draw.random() < 0.7
        began = time.monotonic()
        server.restart(kill=is_kill)
        product = program.product if program else "Redis"
        stage.faults[f"{product} {'killed' if is_kill else 'stopped'}, appendfsync {fsync}"] += 1
        if fsync != "always" and is_kill:
            stage.excuse(None, began - 2, time.monotonic(), f"its server was killed under appendfsync {fsync}")
    standing = finish(stage, fleet)
    if not all(worker.is_running for worker in workers):
        raise AssertionError("a worker ended by itself")
    forgotten = stage.missing(standing) - numbers_in_log(Path(server.directory)) if fsync != "always" else set()
    stage.drop(forgotten, f"the server was killed under appendfsync {fsync}")
    return standing


def _program(name: str) -> RedisProgram | None:
    """That server, or the machine's own where it cannot be had."""
    try:
        return servers.find(name) or servers.fetch(name)
    except RootError:
        return None


CAMPAIGNS: list[tuple[str, str, Callable[[Stage], set[int]], int]] = [
    ("restarts", "Redis and Valkey that restart, under each `appendfsync`", restarts, 12),
]
