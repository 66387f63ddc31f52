"""
Redis and Valkey are stopped or killed and restarted, with each `appendfsync`, while workers are busy.

The process is killed, not the machine, so a log that is written but not yet synced survives. With `everysec`, a server
with a slow disk delays writes for up to two seconds but replies anyway, so it may forget a push or the end of a job. If
the number of a lost job is nowhere in the server's log, the server has forgotten it, and it counts as dropped.
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
# Otherwise the log would sometimes be a snapshot, in which jobs cannot be found.
PLAIN_LOG = {"aof-use-rdb-preamble": "no", "auto-aof-rewrite-percentage": "0"}


def restarts(stage: Stage) -> set[int]:
    """One combination of server and `appendfsync` per round; the next round takes the next one."""
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
    """That server, or None for the machine's own if it is not available."""
    try:
        return servers.find(name) or servers.fetch(name)
    except RootError:
        return None


CAMPAIGNS: list[tuple[str, str, Callable[[Stage], set[int]], int]] = [
    ("restarts", "Restarts of Redis and Valkey, with each `appendfsync`", restarts, 12),
]
