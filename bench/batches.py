"""
What does a batch cost?

`perform_bulk` of 1,000,000 jobs inside a batch against the same outside, with Python's memory during it; the same for
single pushes; then one worker draining no-op jobs that are members of a batch against plain ones; and Redis's memory
for a batch, without its jobs.

The sides of each comparison take turns on one Redis, and it is reported three times: by wall time, by Python's CPU time
and by Redis's. On a shared machine, the clock alone says little.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import redis

import sidekiq_py as sidekiq
from bench import ground
from bench.push import no_op
from sidekiq_py import program
from sidekiq_py.client.sync_client import Client

PUSHED = 1_000_000
DRAINED = 100_000
SINGLE = 2_000
ROUNDS = 5


class Cost(NamedTuple):
    """The seconds that something took: by wall time, of Python's CPU, and of Redis's CPU."""

    wall: float
    python: float
    redis: float

    @property
    def cpu(self) -> float:
        """The CPU time of both."""
        return self.python + self.redis


def redis_cpu_seconds(client: "redis.Redis[bytes]") -> float:
    """The server's user and system time so far."""
    info = client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def process_cpu_seconds(pid: int) -> float:
    """A process's user and system time so far, in steps of a hundredth."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cost_of(work: Callable[[], None], client: "redis.Redis[bytes]", python_cpu: Callable[[], float]) -> Cost:
    """The cost of *work*."""
    before = (time.perf_counter(), python_cpu(), redis_cpu_seconds(client))
    work()
    after = (time.perf_counter(), python_cpu(), redis_cpu_seconds(client))
    return Cost(*[end - start for start, end in zip(before, after, strict=True)])


def push_cost(client: "redis.Redis[bytes]", push: Callable[[], None], *, is_batch: bool) -> Cost:
    """
    The cost of a push, starting with an empty Redis. In a batch it includes opening and closing it; otherwise it is
    that of a program that has loaded no extension.
    """
    client.flushall()
    program.extensions.clear()
    if is_batch:
        program.extensions.load_installed()

    def work() -> None:
        with sidekiq.Batch().jobs() if is_batch else nullcontext():
            push()

    return cost_of(work, client, time.process_time)


def drain_cost(client: "redis.Redis[bytes]", worker: int, count: int, *, is_batch: bool) -> Cost:
    """The cost of that many jobs for a worker, from when it may begin until the last one has left the queue."""
    client.sadd("paused", "default")
    with sidekiq.Batch().jobs() if is_batch else nullcontext():
        no_op.perform_bulk([number, "x"] for number in range(count))
    time.sleep(1)

    def work() -> None:
        client.srem("paused", "default")
        ground.wait_for(lambda: client.llen(ground.QUEUE) == 0 and not ground.is_in_flight(client), 300, every=0.005)

    return cost_of(work, client, lambda: process_cpu_seconds(worker))


def ratios(inside: list[Cost], outside: list[Cost], *, is_rate: bool = False) -> str:
    """The median ratios of adjacent measurements: by wall time, by all CPU time, and by each part."""

    def ratio(part: Callable[[Cost], float]) -> float:
        found = [part(one) / part(other) for one, other in zip(inside, outside, strict=True)]
        return 1 / ground.median(found) if is_rate else ground.median(found)

    wall, cpu = ratio(lambda one: one.wall), ratio(lambda one: one.cpu)
    python, of_redis = ratio(lambda one: one.python), ratio(lambda one: one.redis)
    return f"{wall:.2f} by wall time, {cpu:.2f} by CPU time (Python {python:.2f}, Redis {of_redis:.2f})"


def peak_kb(url: str, count: int) -> int:
    """The peak memory of a process that pushes that many jobs in a batch, 50,000 per call, and keeps no ids."""
    code = (
        "import sidekiq_py as sidekiq\n"
        "from bench.batches import no_op\n"
        f"sidekiq.configure(redis_url={url!r}, sidekiq_version='7')\n"
        "with sidekiq.Batch().jobs():\n"
        f"    for start in range(0, {count}, 50_000):\n"
        "        no_op.perform_bulk([number, 'x'] for number in range(50_000))\n"
        "print(*[line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ground.ROOT)
    return int(ran.stdout)


def batch_bytes(client: "redis.Redis[bytes]") -> int:
    """The memory that Redis uses for the newest batch, without its jobs."""
    bid = client.zrange("sidekiq_py:batches", -1, -1)[0].decode()
    return sum(client.memory_usage(key, samples=0) for key in client.scan_iter(f"sidekiq_py:batch:{bid}*"))


def push_many(count: int) -> Callable[[], None]:
    """A function that pushes that many jobs in one call."""

    def push() -> None:
        no_op.perform_bulk([number, "x"] for number in range(count))

    return push


def push_singly(count: int) -> Callable[[], None]:
    """A function that pushes that many jobs one by one."""

    def push() -> None:
        for number in range(count):
            no_op.perform_async(number, "x")

    return push


def push_rows(client: "redis.Redis[bytes]", url: str, pushed: int, rounds: int) -> list[tuple[str, str]]:
    """The rows of the table for pushes."""
    rows: list[tuple[str, str]] = []
    for what, push, times in (
        (f"perform_bulk of {pushed:,} in a batch: relative cost", push_many(pushed), rounds),
        ("perform_async in a batch: relative cost", push_singly(SINGLE), 3 * rounds),
    ):
        outside, inside = [], []
        for _ in range(times):
            outside.append(push_cost(client, push, is_batch=False))
            inside.append(push_cost(client, push, is_batch=True))
        rows.append((what, ratios(inside, outside)))
    push_cost(client, push_many(pushed), is_batch=True)
    rows.append(("… Redis's memory of such a batch, per job", f"{batch_bytes(client) / pushed:.3f} bytes"))
    client.flushall()
    few, many = peak_kb(url, 100_000), peak_kb(url, pushed)
    rows.append(
        (f"… Python's memory for {pushed:,} jobs compared with 100,000", f"{many / few:.2f} x {few / 1024:.0f} MB")
    )
    client.flushall()
    return rows


def drain_rows(client: "redis.Redis[bytes]", url: str, drained: int, rounds: int) -> list[tuple[str, str]]:
    """The rows of the table for drains."""
    outside, inside = [], []
    with ground.python_worker(url, "-c", "10", "--no-job-log") as worker:
        drain_cost(client, worker.pid, drained, is_batch=True)
        for _ in range(rounds):
            outside.append(drain_cost(client, worker.pid, drained, is_batch=False))
            inside.append(drain_cost(client, worker.pid, drained, is_batch=True))
    plain = ground.median([drained / one.wall for one in outside])
    used = [ground.median([1e6 * one.cpu / drained for one in costs]) for costs in (inside, outside)]
    return [
        (f"drain {drained:,} no-op jobs of a batch: share of the plain rate", ratios(inside, outside, is_rate=True)),
        (
            "… the plain drain; CPU time per job of worker and Redis, in a batch and plain",
            f"{plain:,.0f}/s; {used[0]:.1f} and {used[1]:.1f} µs",
        ),
        ("… Redis's memory of a batch that has succeeded, per job", f"{batch_bytes(client) / drained:.3f} bytes"),
    ]


def run(pushed: int = PUSHED, drained: int = DRAINED, rounds: int = ROUNDS) -> list[tuple[str, str]]:
    """The rows of the table."""
    with ground.redis_server() as url, redis.Redis.from_url(url) as client:
        sidekiq.configure(redis_url=url, sidekiq_version="7")
        rows = [*push_rows(client, url, pushed, rounds), *drain_rows(client, url, drained, rounds)]
    Client(url).close()
    return rows


if __name__ == "__main__":
    ground.main(run)
