"""
How soon does an idle worker start a job that is pushed to it?

Ours against a bare consumer that waits in BRPOP, alternately, with the same pusher. Redis has its own core; the pusher
and the consumers share the other one. Read the ratio of the medians.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import redis

from bench import ground

PUSHES = 400
BARE_CONSUMER = """
import os, sys, time, orjson
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
link = Pool(RedisSettings(sys.argv[1])).new_link(timeout_seconds=30)
out = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
link.command("SADD", "processes", "bare")
while True:
    found = link.command("BRPOP", "queue:bare", 20)
    if found:
        os.write(out, b"%.9f\\n" % (time.monotonic() - orjson.loads(found[1])["args"][0]))
"""


def push_and_read(client: "redis.Redis[bytes]", key: str, stamps: Path) -> list[float]:
    """The seconds from push to perform for `PUSHES` pushes, with pauses between them."""
    stamps.write_bytes(b"")
    for _ in range(PUSHES):
        client.lpush(
            key, b'{"class":"Stamp","jid":"x","retry":true,"queue":"default","args":[%.9f]}' % time.monotonic()
        )
        time.sleep(0.004)
    ground.wait_for(lambda: stamps.read_bytes().count(b"\n") >= PUSHES, 10)
    return [float(line) for line in stamps.read_text().split()]


def idle_redis_cpu(url: str, client: "redis.Redis[bytes]", workers: int) -> float:
    """The share of a core that Redis uses while that many of our workers are idle."""
    if workers == 0:
        return _redis_cpu_share(client)
    with ground.python_worker(url, "-c", "10"):
        return idle_redis_cpu(url, client, workers - 1)


def _redis_cpu_share(client: "redis.Redis[bytes]") -> float:
    def used() -> float:
        cpu = client.info("cpu")
        return float(cpu["used_cpu_sys"]) + float(cpu["used_cpu_user"])

    time.sleep(1)
    before, began = used(), time.monotonic()
    time.sleep(5)
    return (used() - before) / (time.monotonic() - began)


def run() -> list[tuple[str, str]]:
    """The rows of the table."""
    ours: list[float] = []
    bare: list[float] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        ground.pinned_redis_server() as url,
        redis.Redis.from_url(url) as client,
    ):
        stamps, bare_stamps = Path(folder, "ours"), Path(folder, "bare")
        stamps.touch()
        bare_stamps.touch()
        env = {**os.environ, "PYTHONPATH": str(ground.ROOT)}
        consumer = subprocess.Popen([sys.executable, "-c", BARE_CONSUMER, url, str(bare_stamps)], env=env)
        try:
            with ground.python_worker(url, "-c", "10", "--no-job-log", env={"BENCH_STAMPS": str(stamps)}):
                push_and_read(client, ground.QUEUE, stamps)
                for _ in range(5):
                    bare += push_and_read(client, "queue:bare", bare_stamps)
                    ours += push_and_read(client, ground.QUEUE, stamps)
        finally:
            consumer.kill()
            consumer.wait()
        client.flushall()
        alone = _redis_cpu_share(client)
        with_ten = idle_redis_cpu(url, client, 10)

    def show(values: list[float]) -> str:
        return f"{ground.median(values) * 1e3:.3f} ms, p99 {sorted(values)[int(len(values) * 0.99)] * 1e3:.2f} ms"

    return [
        ("from push to perform on an idle worker: ours", show(ours)),
        ("… a bare BRPOP consumer", show(bare)),
        ("… ratio of the medians", f"{ground.median(ours) / ground.median(bare):.2f}"),
        ("Redis CPU: alone, with ten idle workers", f"{alone:.1%}, {with_ten:.1%} of a core"),
    ]


if __name__ == "__main__":
    ground.main(run)
