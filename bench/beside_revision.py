"""
Is this version slower than an older one?

    python -m bench.beside_revision b23b8db --pairs 10

Each pair asks both versions the same questions, one after the other, on a Redis that has a core of its own; who is
first takes turns. Both use the packages of this Python. The rows give the median of each side, and of the ratios of the
pairs the median with the lowest and the highest. Above 1, this version is faster or smaller.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import redis

from bench import ground
from bench.footprint import rss_mb

PUSHES = """
import sys, time
import sidekiq_py as sidekiq
sidekiq.configure(redis_url=sys.argv[1], sidekiq_version="7.3.2")
job = sidekiq.ruby_job("Elsewhere", queue="bench:pushed")
for _ in range(200):
    job.perform_async(1, "x")
began = time.perf_counter()
for number in range(10_000):
    job.perform_async(number, "x")
print((time.perf_counter() - began) / 10_000 * 1e6)
arguments = [[number, "x"] for number in range(100_000)]
began = time.perf_counter()
job.perform_bulk(arguments)
print((time.perf_counter() - began) / 100_000 * 1e6)
"""
TASKS = 20_000
JOBS = 200_000
STAMPS = 300


class Version:
    """The library's code in *tree*, and what it takes for things to do."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree

    def answers(self, url: str) -> dict[str, float]:
        """All questions, on an empty Redis; less is better."""
        with redis.Redis.from_url(url) as client, tempfile.TemporaryDirectory() as folder:
            client.flushall()
            async_us, bulk_us = map(float, self._say(["-c", PUSHES, url], url).split())
            client.flushall()
            found = {"perform_async, µs": async_us, "perform_bulk, µs a job": bulk_us}
            found |= self._worker_answers(url, client, Path(folder) / "stamps")
            client.flushall()
            return found | self._celery_answers(url, client)

    def _worker_answers(self, url: str, client: "redis.Redis[bytes]", stamps: Path) -> dict[str, float]:
        stamps.touch()
        words = ["-m", "sidekiq_py", "worker", "-r", "bench.jobs", "-c", "10", "--no-job-log"]
        with self._running(words, url, BENCH_STAMPS=str(stamps)) as worker:
            ground.wait_for(lambda: client.scard("processes"), 30)
            time.sleep(1)
            start_cpu, memory = _cpu_seconds(worker.pid), rss_mb(worker.pid)
            for _ in range(STAMPS):
                text = b'{"class":"Stamp","jid":"x","retry":true,"queue":"default","args":[%.9f]}' % time.monotonic()
                client.lpush("queue:default", text)
                time.sleep(0.004)
            ground.wait_for(lambda: stamps.read_bytes().count(b"\n") >= STAMPS, 10)
            ground.drain_seconds(client, "NoOp", JOBS // 10)
            before = _cpu_seconds(worker.pid)
            seconds = ground.drain_seconds(client, "NoOp", JOBS)
            cpu = _cpu_seconds(worker.pid) - before
        return {
            "start of a worker, s of CPU": start_cpu,
            "an idle worker, MB": memory,
            "push to perform on it, ms": 1000 * median(float(line) for line in stamps.read_text().split()),
            f"drain of {JOBS:,} no-op jobs, µs a job": 1e6 * seconds / JOBS,
            "… µs of CPU a job": 1e6 * cpu / JOBS,
        }

    def _celery_answers(self, url: str, client: "redis.Redis[bytes]") -> dict[str, float]:
        program = ["-m", "bench.celery_program"]
        found = {"delay(), µs": 1e6 * float(self._say([*program, "delay", "10000"], url)) / 10_000}
        client.flushall()
        self._say([*program, "fill", str(TASKS)], url, BENCH_QUEUE="bench")
        words = [
            "-m",
            "sidekiq_celery",
            "-A",
            "bench.celery_program",
            "worker",
            "-l",
            "WARNING",
            "-P",
            "prefork",
            "-c",
            "2",
        ]
        with self._running(words, url):
            self._say([*program, "chain", "1"], url)
            began = time.perf_counter()
            client.rename("queue:bench", ground.QUEUE)
            ground.wait_for(lambda: not client.llen(ground.QUEUE) and not ground.is_in_flight(client), 300)
            found[f"drain of {TASKS:,} no-op tasks, -P prefork, µs a task"] = (
                1e6 * (time.perf_counter() - began) / TASKS
            )
            for name, size in (("chain", 100), ("chord", 1000)):
                asked = [float(self._say([*program, name, str(size)], url)) for _ in range(3)]
                found[f"a {name} of {size:,}, ms"] = 1000 * median(asked)
        return found

    def _say(self, words: list[str], url: str, **more: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=self.tree, env=self._environment(url, more), capture_output=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{words} in {self.tree} ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
        return done.stdout.decode()

    @contextmanager
    def _running(self, words: list[str], url: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=self.tree, env=self._environment(url, more), stdout=subprocess.DEVNULL
        )
        try:
            yield process
        finally:
            ground.end(process)

    def _environment(self, url: str, more: dict[str, str]) -> dict[str, str]:
        path = os.pathsep.join([str(self.tree), str(self.tree / "compat")])
        known = {"PYTHONPATH": path, "REDIS_URL": url, "BENCH_PACKAGE": "sidekiq_celery", "BENCH_URL": url}
        return {**os.environ, **known, **more}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def checkout(revision: str, folder: Path) -> Path:
    """The files of that commit, compiled as an installed package is."""
    archive = subprocess.run(["git", "archive", revision], cwd=ground.ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "sidekiq_py", "compat", "bench"], cwd=folder, check=True)
    return folder


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.beside_revision", description=__doc__.split("\n\n")[0])
    parser.add_argument("revision", help="the older commit, such as b23b8db")
    parser.add_argument("--pairs", type=int, default=10)
    chosen = parser.parse_args()
    pairs: list[list[dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as old, tempfile.TemporaryDirectory() as new:
        # What is measured is what is committed, so that both stand at a path of the same kind.
        sides = [Version(checkout(chosen.revision, Path(old))), Version(checkout("HEAD", Path(new)))]
        for number in range(chosen.pairs):
            with ground.pinned_redis_server() as url:
                order = [0, 1] if number % 2 else [1, 0]
                found = {side: sides[side].answers(url) for side in order}
            pairs.append([found[0], found[1]])
            print(f"pair {number + 1} of {chosen.pairs}, load average {os.getloadavg()[0]:.0f}", file=sys.stderr)
    print(f"| {ground.machine()} | {chosen.revision} | here | ratio |\n|---|---|---|---|")
    for name in pairs[0][0]:
        older, here = ([pair[side][name] for pair in pairs] for side in (0, 1))
        ratios = [before / now for before, now in zip(older, here, strict=True)]
        spread = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {name} | {median(older):.4g} | {median(here):.4g} | {spread} |")


if __name__ == "__main__":
    main()
