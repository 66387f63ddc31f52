"""
What does a batch cost?

`perform_bulk` of 1,000,000 jobs inside a batch against the same outside, and Python's memory while it does; single
pushes likewise; then one worker's drain of no-op jobs that are members against that of plain ones, side by side in one
run; and Redis's memory for a batch, beside its jobs.
"""

import subprocess
import sys
import time

import redis

import sidekiq_py as sidekiq
from bench import ground
from bench.push import no_op
from sidekiq_py.client.sync_client import Client

PUSHED = 1_000_000
DRAINED = 100_000
SINGLE = 2_000
ROUNDS = 3


def bulk_seconds(client: "redis.Redis[bytes]", count: int, *, is_batch: bool) -> float:
    """How long it takes to push so many."""
    client.flushall()
    jobs = ([number, "x"] for number in range(count))
    began = time.perf_counter()
    if is_batch:
        with sidekiq.Batch().jobs():
            no_op.perform_bulk(jobs)
    else:
        no_op.perform_bulk(jobs)
    return time.perf_counter() - began


def single_seconds(*, is_batch: bool) -> float:
    """How long it takes to push some one by one."""

    def push() -> float:
        began = time.perf_counter()
        for number in range(SINGLE):
            no_op.perform_async(number, "x")
        return time.perf_counter() - began

    if not is_batch:
        return push()
    with sidekiq.Batch().jobs():
        return push()


def peak_kb(url: str, count: int) -> int:
    """Most memory of a process that pushes so many in a batch, and keeps none of their ids."""
    code = (
        "import resource, sidekiq_py as sidekiq\n"
        "from bench.batches import no_op\n"
        f"sidekiq.configure(redis_url={url!r}, sidekiq_version='7')\n"
        "with sidekiq.Batch().jobs():\n"
        f"    for start in range(0, {count}, 50_000):\n"
        "        no_op.perform_bulk([number, 'x'] for number in range(50_000))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ground.ROOT)
    return int(ran.stdout)


def drain_seconds(client: "redis.Redis[bytes]", count: int, *, is_batch: bool) -> float:
    """How long the worker takes for so many, from when it may begin."""
    client.sadd("paused", "default")
    if is_batch:
        with sidekiq.Batch().jobs():
            no_op.perform_bulk([number, "x"] for number in range(count))
    else:
        no_op.perform_bulk([number, "x"] for number in range(count))
    time.sleep(1)
    began = time.perf_counter()
    client.srem("paused", "default")
    while client.llen("queue:default"):
        time.sleep(0.002)
    return time.perf_counter() - began


def run(pushed: int = PUSHED, drained: int = DRAINED, rounds: int = ROUNDS) -> list[tuple[str, str]]:
    """The rows of the table."""
    rows: list[tuple[str, str]] = []
    with ground.redis_server() as url, redis.Redis.from_url(url) as client:
        sidekiq.configure(redis_url=url, sidekiq_version="7")
        ratios = []
        for _ in range(rounds):
            plain = bulk_seconds(client, pushed, is_batch=False)
            ratios.append(bulk_seconds(client, pushed, is_batch=True) / plain)
        rows.append(
            (f"perform_bulk of {pushed:,} in a batch against outside", f"{ground.median(ratios):.2f} x the time")
        )
        used = [client.memory_usage(key) for key in client.scan_iter("sidekiq_py:batch*")]
        rows.append(("… Redis's memory of that batch, per job", f"{sum(used) / pushed:.2f} bytes"))
        client.flushall()
        few, many = peak_kb(url, 100_000), peak_kb(url, pushed)
        rows.append((f"… Python's memory for {pushed:,} against 100,000", f"{many / few:.2f} x {few / 1024:.0f} MB"))
        client.flushall()
        singles = [single_seconds(is_batch=True) / single_seconds(is_batch=False) for _ in range(5 * rounds)]
        rows.append(("perform_async in a batch against outside", f"{ground.median(singles):.2f} x the time"))
        client.flushall()
        with ground.python_worker(url, "-c", "10", "--no-job-log"):
            drain_seconds(client, drained, is_batch=True)
            plains, members = [], []
            for _ in range(rounds):
                plains.append(drained / drain_seconds(client, drained, is_batch=False))
                members.append(drained / drain_seconds(client, drained, is_batch=True))
        share = ground.median([member / plain for member, plain in zip(members, plains, strict=True)])
        rows.append(
            (f"drain {drained:,} no-op jobs of a batch", f"{share:.2f} of the plain {ground.median(plains):,.0f}/s")
        )
        bid = client.zrange("sidekiq_py:batches", -1, -1)[0].decode()
        used = [client.memory_usage(key) for key in client.scan_iter(f"sidekiq_py:batch:{bid}*")]
        rows.append(("… Redis's memory of a batch that has succeeded", f"{sum(used) / drained:.2f} bytes a job"))
    Client(url).close()
    return rows


if __name__ == "__main__":
    sizes = [int(word) for word in sys.argv[1:]]
    for name, value in run(*sizes):
        print(f"{name:60} {value}")
