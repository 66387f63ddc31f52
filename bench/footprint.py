"""
How heavy is it?

The time to import the client side, and the memory of an idle worker, each compared with a bare `import redis`.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import redis

from bench import ground

ROUNDS = 11


def import_seconds(statement: str) -> float:
    """The median time that an import takes in a new Python process."""
    env = {**os.environ, "PYTHONPATH": str(ground.ROOT)}
    program = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    command = [sys.executable, "-c", program]
    return ground.median(
        [float(subprocess.run(command, env=env, capture_output=True, check=True).stdout) for _ in range(ROUNDS)]
    )


def rss_mb(pid: int) -> float:
    """The resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


def bare_redis_mb() -> float:
    """The resident memory of a process that has imported redis-py and does nothing else."""
    process = subprocess.Popen([sys.executable, "-c", "import redis; input()"], stdin=subprocess.PIPE)
    time.sleep(1)
    try:
        return rss_mb(process.pid)
    finally:
        process.kill()
        process.wait()


def run() -> list[tuple[str, str]]:
    """The rows of the table."""
    bare_seconds = import_seconds("import redis")
    ours_seconds = import_seconds("from sidekiq_py import Client, job")
    with ground.redis_server() as url, redis.Redis.from_url(url), ground.python_worker(url, "-c", "10") as worker:
        time.sleep(2)
        worker_mb = rss_mb(worker.pid)
    return [
        (
            "from sidekiq_py import Client, job: time beyond import redis",
            f"{(ours_seconds - bare_seconds) * 1e3:.1f} ms",
        ),
        ("an idle worker: memory beyond import redis", f"{worker_mb - bare_redis_mb():.1f} MB"),
    ]


if __name__ == "__main__":
    ground.main(run)
