"""Connections are cut during a request, before a reply and during a reply; they silently drop data and slow down."""

import time
from collections.abc import Callable

from kill_report.campaigns.process_kills import QUEUES
from kill_report.stage import PATIENCE_SECONDS, Stage
from tests.support.cutting_proxy import CuttingProxy

WORKERS = 3
JOBS = 4000
HOLES = 2
HOLE_SECONDS = 2.0
ONE_IN = 15


def connections(stage: Stage) -> set[int]:
    """No process dies, so no job may run twice."""
    server = stage.start_redis()
    proxy = stage.exits.enter_context(CuttingProxy(server.port))
    fleet = stage.fleet(server, proxy.url)
    fleet.defaults = {"queues": QUEUES, "socket_timeout_seconds": 1, "has_async_jobs": True}
    # A worker that cannot reach Redis when it starts exits immediately, as Ruby's does.
    for worker in [fleet.start(wait=False) for _ in range(WORKERS)]:
        worker.wait_until_ready(within_seconds=PATIENCE_SECONDS)
    proxy.cut_at_random(stage.draw, ONE_IN)
    for _ in range(stage.scaled(HOLES)):
        stage.push(fleet, stage.scaled(JOBS) // stage.scaled(HOLES), ["tick", "tick", "atick", "boom"])
        time.sleep(stage.draw.uniform(0, 2))
        proxy.swallow(True)
        time.sleep(HOLE_SECONDS * min(1.0, stage.scale))
        proxy.swallow(False)
        stage.faults["all connections swallow everything"] += 1
        proxy.delay_seconds = stage.draw.choice([0.0, 0.01])
    stage.wait_until_done(fleet)
    proxy.be_kind()
    for where, count in proxy.cuts.items():
        stage.faults[f"connection cut {where}"] += count
    return stage.standing(fleet.client)


CAMPAIGNS: list[tuple[str, str, Callable[[Stage], set[int]], int]] = [
    ("connections", "Broken connections", connections, 8),
]
