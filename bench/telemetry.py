"""
What do metrics and traces cost a job that does nothing?

The same drain of no-op jobs under workers that differ in one thing: nothing attached, `--probe-port` (metrics), and
OpenTelemetry with traces of which none is kept. A round runs each of them, in a random order. The answers: how much
more CPU a job used, kernel included, than under the round's worker with nothing attached (the median of all rounds, the
middle half of them in brackets), and how much longer the drain took. A second worker with nothing attached shows how
far two equal ones differ: an answer is worth no more than that, and where it is above a hundredth, the table says
noisy. Wanted: at most 3 % with metrics, and 15 % with traces.
"""

import random
import subprocess
from pathlib import Path
from typing import NamedTuple

import redis

from bench import ground

JOBS = 100_000
ROUNDS = 7
_NOISY = 0.01

PLAIN, AGAIN, METRICS, TRACES = "nothing attached", "nothing attached, again", "metrics", "traces, none kept"


def _arguments(side: str) -> list[str]:
    if side == METRICS:
        return ["--probe-port", str(ground.free_port())]
    return ["-r", "bench.traced"] if side == TRACES else []


class Cost(NamedTuple):
    """Of one job, in microseconds."""

    drain_us: float
    cpu_us: float


def cost(url: str, client: "redis.Redis[bytes]", side: str) -> Cost:
    """Of a fresh worker, after a drain that warms it up."""
    client.flushall()
    with ground.python_worker(url, "-c", "10", "--no-job-log", *_arguments(side)) as worker:
        ground.drain_seconds(client, "NoOp", JOBS // 5)
        before = _cpu_seconds(worker)
        seconds = ground.drain_seconds(client, "NoOp", JOBS)
        return Cost(seconds / JOBS * 1e6, (_cpu_seconds(worker) - before) / JOBS * 1e6)


def _cpu_seconds(worker: "subprocess.Popen[bytes]") -> float:
    # Of each thread in nanoseconds; the process's own figure is in hundredths of a second, a hundredth of a drain.
    threads = Path(f"/proc/{worker.pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def run() -> list[tuple[str, str]]:
    """The rows of the table."""
    rounds: list[dict[str, Cost]] = []
    with ground.redis_server() as url, redis.Redis.from_url(url) as client:
        for _ in range(ROUNDS):
            sides = [PLAIN, AGAIN, METRICS, TRACES]
            random.shuffle(sides)
            rounds.append({side: cost(url, client, side) for side in sides})
    noise = ground.median([abs(one[AGAIN].cpu_us / one[PLAIN].cpu_us - 1) for one in rounds])
    mark = f"; noisy: two equal workers differ by {noise:.1%}" if noise > _NOISY else ""
    drain_us = ground.median([one[PLAIN].drain_us for one in rounds])
    cpu_us = ground.median([one[PLAIN].cpu_us for one in rounds])
    rows = [(f"telemetry: a no-op job, {PLAIN}", f"{drain_us:.1f} µs, {cpu_us:.1f} µs of CPU")]
    for side, wanted in ((METRICS, 3), (TRACES, 15)):
        longer = ground.median([one[side].drain_us / one[PLAIN].drain_us - 1 for one in rounds])
        more = sorted(one[side].cpu_us / one[PLAIN].cpu_us - 1 for one in rounds)
        middle = f"{more[len(more) // 4]:+.1%} to {more[-1 - len(more) // 4]:+.1%}"
        cpu = f"{ground.median(more):+.1%} of CPU ({middle}; wanted: {wanted} %)"
        rows.append((f"… {side}", f"{cpu}, the drain {longer:+.1%}{mark}"))
    return rows


if __name__ == "__main__":
    for name, value in run():
        print(f"{name:60} {value}")
