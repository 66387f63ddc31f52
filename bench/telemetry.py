"""
What do metrics and traces cost a job that does nothing?

Workers that differ in one thing drain the same no-op jobs: nothing attached, `--probe-port` (metrics), and
OpenTelemetry with traces of which none is kept. All of them run at the same time, each with its own queue, and take
turns with slices of a tenth of a second, so that changes in the machine's speed affect all of them. Whole drains one
after another could not show 3 %, because two equal workers differed by 13 %. The workers are restarted for some of the
rounds, because one process may be faster than its equal for its whole life. The rows show how much more CPU a job used,
including the kernel's, than in the same round under the worker with nothing attached (the median of all rounds, with
the middle half in brackets), and how much longer the slice took. A second worker with nothing attached shows how much
two equal ones differ: smaller differences mean nothing. Wanted: a drain that takes at most 3 % longer with metrics, and
15 % longer with traces.
"""

import random
import subprocess
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import redis

from bench import ground

SLICE = 10_000
ROUNDS = 25
STARTS = 6

PLAIN, AGAIN, METRICS, TRACES = "nothing attached", "nothing attached, again", "metrics", "traces, none kept"
_SIDES = {PLAIN: "plain", AGAIN: "again", METRICS: "metrics", TRACES: "traces"}
_PREPARED = "bench:prepared"


def _arguments(side: str) -> list[str]:
    if side == METRICS:
        return ["--probe-port", str(ground.free_port())]
    return ["-r", "bench.traced"] if side == TRACES else []


class Cost(NamedTuple):
    """The cost of one job, in microseconds."""

    drain_us: float
    cpu_us: float


def costs(url: str, client: "redis.Redis[bytes]") -> list[dict[str, Cost]]:
    """The costs of each round with freshly started workers."""
    client.flushall()
    ground.load(client, "NoOp", SLICE, _PREPARED)
    with ExitStack() as living:
        workers = {side: living.enter_context(_worker(url, side)) for side in _SIDES}
        for side, worker in workers.items():
            _slice(client, side, worker)
        rounds = []
        for _ in range(ROUNDS):
            turns = random.sample(list(workers), len(workers))
            rounds.append({side: _slice(client, side, workers[side]) for side in turns})
        return rounds


def _worker(url: str, side: str) -> "AbstractContextManager[subprocess.Popen[bytes]]":
    return ground.python_worker(url, "-c", "10", "-q", _SIDES[side], "--no-job-log", *_arguments(side))


def _slice(client: "redis.Redis[bytes]", side: str, worker: "subprocess.Popen[bytes]") -> Cost:
    queue = f"queue:{_SIDES[side]}"
    before = _cpu_seconds(worker)
    began = perf_counter()
    client.copy(_PREPARED, queue)
    ground.wait_for(lambda: not client.exists(queue) and not ground.is_in_flight(client), 300)
    return Cost((perf_counter() - began) / SLICE * 1e6, (_cpu_seconds(worker) - before) / SLICE * 1e6)


def _cpu_seconds(worker: "subprocess.Popen[bytes]") -> float:
    # From each thread, in nanoseconds: the process's own figure is in hundredths of a second, a tenth of a slice.
    threads = Path(f"/proc/{worker.pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def run() -> list[tuple[str, str]]:
    """The rows of the table."""
    with ground.redis_server() as url, redis.Redis.from_url(url) as client:
        rounds = [one for _ in range(STARTS) for one in costs(url, client)]
    drain_us = ground.median([one[PLAIN].drain_us for one in rounds])
    cpu_us = ground.median([one[PLAIN].cpu_us for one in rounds])
    rows = [(f"telemetry: a no-op job, {PLAIN}", f"{drain_us:.1f} µs, {cpu_us:.1f} µs of CPU")]
    for side, wanted in ((AGAIN, ""), (METRICS, " (goal: 3 %)"), (TRACES, " (goal: 15 %)")):
        longer = ground.median([one[side].drain_us / one[PLAIN].drain_us - 1 for one in rounds])
        more = sorted(one[side].cpu_us / one[PLAIN].cpu_us - 1 for one in rounds)
        middle = f"{more[len(more) // 4]:+.1%} to {more[-1 - len(more) // 4]:+.1%}"
        rows.append((f"… {side}", f"drain time {longer:+.1%}{wanted}, {ground.median(more):+.1%} of CPU ({middle})"))
    return rows


if __name__ == "__main__":
    ground.main(run)
