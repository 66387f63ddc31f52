"""Kills, freezes, cut connections, forgotten scripts and pauses, all in one load."""

import random
import time
from collections.abc import Callable

import pytest

from tests.kill.conftest import Fleet, KillWorker
from tests.support.cutting_proxy import CuttingProxy
from tests.support.ledger import STARTED, job_text, push_jobs
from tests.support.waiting import eventually

WORKERS = 4
# On a machine where a process starts more slowly than it is killed, the queues would never be empty.
MOST_DEEDS = 40
CAPSULES = {"default": [["default", 2], ["low", 1]], "urgent": [["high", 0]]}


def fill(fleet: Fleet, jobs: int, draw: random.Random) -> None:
    """Queues and the schedule; one job in twelve fails and dies."""
    for number in range(jobs):
        kind = ("boom", {"retry": 0}) if number % 12 == 3 else ("atick" if number % 3 == 1 else "tick", {})
        queue = draw.choice(["high", "default", "low"])
        text = job_text(number, kind[0], [draw.choice([0, 0, 0.002, 0.01])], queue, **kind[1])
        if number % 9 == 4:
            fleet.client.zadd("schedule", {text: time.time() + draw.uniform(0, 8)})
        else:
            push_jobs(fleet.client, [text], queue)


def harass(fleet: Fleet, workers: list[KillWorker], draw: random.Random) -> str:
    """Do one mean thing."""
    index = draw.randrange(WORKERS)
    kind = draw.choice(["kill", "kill", "freeze", "flush", "pause", "stop"])
    if kind == "kill":
        fleet.kill(workers[index])
        workers[index] = fleet.start(wait=False)
    elif kind == "stop":
        workers[index].stop()
        workers[index] = fleet.start(wait=False)
    elif kind == "freeze":
        workers[index].freeze()
        time.sleep(draw.choice([0.1, 0.1, 4]))
        workers[index].thaw()
    elif kind == "flush":
        fleet.client.script_flush()
    else:
        fleet.client.sadd("paused", "low")
        time.sleep(0.1)
        fleet.client.srem("paused", "low")
    return kind


@pytest.mark.parametrize("jobs", [2400, pytest.param(6000, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_nothing_is_lost_in_a_bad_night(
    fleet: Fleet, proxy: CuttingProxy, report: Callable[[object], None], jobs: int
) -> None:
    """Each job runs; twice only if it was in flight in a process that was killed or frozen."""
    seed = time.time_ns() % 1_000_000
    draw = random.Random(seed)
    fleet.worker_url = proxy.url
    fleet.defaults = {
        "lease_seconds": 2,
        "capsules": CAPSULES,
        "concurrency": 3,
        "socket_timeout_seconds": 2,
        "has_async_jobs": True,
    }
    fill(fleet, jobs, draw)
    workers = [fleet.start(wait=False) for _ in range(WORKERS)]
    proxy.cut_at_random(draw, one_in=40)
    deeds: list[str] = []
    while len(deeds) < MOST_DEEDS and fleet.client.llen("queue:low") + fleet.client.llen("queue:default") > 20:
        time.sleep(draw.uniform(0.05, 0.4))
        deeds.append(harass(fleet, workers, draw))

    # On a fast machine all else is done before the last of those comes due that were scheduled.
    eventually(lambda: not fleet.client.zcard("schedule"), within_seconds=60)
    fleet.wait_until_done(60)
    proxy.be_kind()

    books = fleet.books(jobs)
    counts = {kind: deeds.count(kind) for kind in sorted(set(deeds))}
    report(f"{books}; seed={seed} {counts} cuts={sum(proxy.cuts.values())} starts={fleet.ledger.count(STARTED)}")
    assert (books.lost, books.doubled) == ((), ())
    assert books.once + books.again == jobs
    processed, failed = (int(value or 0) for value in fleet.client.mget("stat:processed", "stat:failed"))
    assert fleet.client.zcard("dead") == jobs // 12
    assert failed == jobs // 12
    # A process that is killed takes with it what it had not written yet of the number of its successes.
    assert processed <= jobs
