"""A worker dies at each named step of a job's life: before a request, once it is sent, and when its reply is read."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress

from kill_report.books import Excuse
from kill_report.campaigns.process_kills import QUEUES, finish
from kill_report.stage import Stage
from tests.kill.conftest import Fleet, KillWorker
from tests.support.kill_worker import FAULTS, REQUESTS
from tests.support.ledger import job_text, push_jobs

MOMENTS = ("before", "sent", "read")
STEPS = (
    *("in middleware", "in perform", *FAULTS),
    *(f"{request} {moment}" for request in REQUESTS for moment in MOMENTS),
)
STEPS_PER_ROUND = 15
JOBS_PER_STEP = 400
# A step that has not been reached by then is left for another round.
REACH_SECONDS = 40.0
# The steps that are part of a worker's shutdown.
AT_A_STOP = "give_back"
OUTLASTED = "it ran for longer than its process had time to stop"


def named_steps(stage: Stage) -> set[int]:
    """One worker after another dies at a step, and the next one finds its jobs."""
    fleet = stage.fleet()
    fleet.defaults = {"lease_seconds": 3, "queues": QUEUES}
    wanted = stage.scaled(STEPS_PER_ROUND)
    # Some steps are only reached by chance, so as many again are tried for those that were not reached.
    for fault in stage.draw.sample(STEPS, min(2 * wanted, len(STEPS))):
        if stage.faults.total() >= wanted:
            break
        worker = fleet.start(wait=False, fault=fault, nth=stage.draw.choice([1, 1, 2, 5]), shutdown_timeout_seconds=0.2)
        _lead_to(stage, fleet, worker, fault)
    fleet.start(wait=False)
    return finish(stage, fleet)


def _lead_to(stage: Stage, fleet: Fleet, worker: KillWorker, fault: str) -> None:
    """Give the worker all kinds of work until it has died; sometimes it also has to wait for jobs."""
    stage.push(fleet, stage.scaled(JOBS_PER_STEP))
    give_up_at = time.monotonic() + REACH_SECONDS
    told_at: float | None = None
    while worker.is_running and time.monotonic() < give_up_at:
        _push_one(stage, fleet, seconds=stage.draw.choice([0, 0, 0.006]))
        if fault.startswith(AT_A_STOP) and told_at is None and fleet.in_flight_of(worker.pid):
            for _ in range(10):
                _push_one(stage, fleet, seconds=0.5)
            with suppress(ProcessLookupError):
                worker.send_signal(signal.SIGTERM)
            told_at = time.monotonic()
        time.sleep(0.02)
    pid = worker.pid
    if worker.is_running:
        stage.kill(pid, "worker with threads")
        worker.wait()
    elif worker.wait() == -signal.SIGKILL:
        stage.incidents.deaths[pid] = time.monotonic()
        stage.kinds[pid] = "worker at a named step"
        stage.faults[f"SIGKILL: at a step: {fault}"] += 1
    else:
        stage.notes["steps that were not reached"] += 1
        if told_at is not None:
            # It has stopped as it should, and gave back the jobs that take longer than its shutdown timeout.
            stage.incidents.excuses.append(Excuse(pid, told_at, time.monotonic(), OUTLASTED))


def _push_one(stage: Stage, fleet: Fleet, seconds: float) -> None:
    number = len(stage.expected)
    is_failure = stage.draw.random() < 0.1
    text = job_text(number, "boom" if is_failure else "tick", [seconds], **({"retry": 0} if is_failure else {}))
    if stage.draw.random() < 0.1:
        fleet.client.zadd("schedule", {text: time.time() - 1})
    else:
        push_jobs(fleet.client, [text])
    stage.expected.add(number)


CAMPAIGNS: list[tuple[str, str, Callable[[Stage], set[int]], int]] = [
    ("named-steps", "Workers at each named step of a job's life", named_steps, 14),
]
