"""
Is this version slower than an older one?

    python -m bench.beside_revision b23b8db

Processes of both versions run at the same time, each with its own queues, and take turns of some hundredths of a
second, in random order. So changes in the machine's speed affect both. With whole drains one after another, ten pairs
gave ratios from 0.6 to 1.2. Redis has its own core, and both versions use the packages of this Python.

The rows give the median of each side, and the median of the ratios of all turns with the middle half. Above 1, this
version is faster or smaller.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import redis

from bench import ground
from bench.footprint import rss_mb

CALLER = """
import sys, time
import sidekiq_py as sidekiq
from bench import celery_program

sidekiq.configure(redis_url=sys.argv[1], sidekiq_version="7.3.2")
job = sidekiq.ruby_job("Elsewhere", queue="bench:pushed")

def seconds(what, count):
    arguments = [[number, "x"] for number in range(count)]
    call = {"async": job.perform_async, "delay": celery_program.noop.delay}.get(what)
    began = time.perf_counter()
    if call is None:
        job.perform_bulk(arguments)
    else:
        for number in range(count):
            call(number, "x")
    return time.perf_counter() - began

for line in sys.stdin:
    what, count = line.split()
    print(seconds(what, int(count)) / int(count) * 1e6, flush=True)
"""
STARTS = 6
TURNS = 15
JOBS = 10_000
TASKS = 3_000
STAMPS = 20

Rows = dict[str, list[tuple[float, float]]]


class Version:
    """The library's code in *tree*; *name* distinguishes its queues from the other version's."""

    def __init__(self, tree: Path, name: str) -> None:
        self._tree = tree
        self.queue = f"bench:{name}"

    def say(self, words: list[str], url: str) -> str:
        """Run a program of this version, and return what it prints."""
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=self._tree, env=self._environment(url), capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{words} in {self._tree} ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
        return done.stdout.decode()

    @contextmanager
    def caller(self, url: str) -> Iterator[Callable[[str, int], float]]:
        """Yield a function that makes that many calls of a kind, and returns µs per call."""
        command = [sys.executable, "-c", CALLER, url]
        with subprocess.Popen(
            command,
            cwd=self._tree,
            env=self._environment(url),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            asked, replies = process.stdin, process.stdout

            def call(what: str, count: int) -> float:
                print(what, count, file=asked, flush=True)
                return float(replies.readline())

            for what in ("async", "bulk", "delay"):
                call(what, 300)
            yield call
            asked.close()

    @contextmanager
    def worker(self, words: list[str], url: str, **more: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a worker."""
        process = subprocess.Popen(
            [sys.executable, *words], cwd=self._tree, env=self._environment(url) | more, stdout=subprocess.DEVNULL
        )
        try:
            yield process
        finally:
            ground.end(process)

    def _environment(self, url: str) -> dict[str, str]:
        path = os.pathsep.join([str(self._tree), str(self._tree / "compat")])
        known = {"PYTHONPATH": path, "REDIS_URL": url}
        bench = {"BENCH_PACKAGE": "sidekiq_celery", "BENCH_URL": url, "BENCH_QUEUE": self.queue}
        return {**os.environ, **known, **bench}


class Comparison:
    """Measures both versions on one Redis."""

    def __init__(self, older: Version, here: Version, url: str, client: "redis.Redis[bytes]") -> None:
        self._older, self._here = older, here
        self._url, self._client = url, client
        self.rows: Rows = {}

    def _take(self, name: str, ask: Callable[[Version], float], turns: int = TURNS) -> None:
        """Measure both versions, that many times."""
        for _ in range(turns):
            first, second = random.sample([self._older, self._here], 2)
            seconds = {first: ask(first), second: ask(second)}
            self.rows.setdefault(name, []).append((seconds[self._older], seconds[self._here]))

    def pushes(self) -> None:
        """Measure calls while no worker is running."""
        self._client.flushall()
        with self._older.caller(self._url) as older, self._here.caller(self._url) as here:
            callers = {self._older: older, self._here: here}
            self._take("perform_async, µs", lambda side: callers[side]("async", 300))
            self._take("perform_bulk, µs a job", lambda side: callers[side]("bulk", 5_000))
            self._take("delay(), µs", lambda side: callers[side]("delay", 100))

    def starts(self) -> None:
        """Measure the start of one worker at a time."""
        memory: dict[Version, float] = {}

        def start_cpu(side: Version) -> float:
            self._client.flushall()
            with side.worker(_words(side), self._url) as worker:
                ground.wait_for(lambda: self._client.scard("processes"), 30)
                time.sleep(1)
                memory[side] = rss_mb(worker.pid)
                return _cpu_seconds([worker.pid])

        self._take("start of a worker, s of CPU", start_cpu, turns=2)
        self.rows.setdefault("an idle worker, MB", []).append((memory[self._older], memory[self._here]))

    def jobs(self) -> None:
        """Measure workers with jobs that do nothing."""
        self._client.flushall()
        ground.load(self._client, "NoOp", JOBS, "bench:prepared")
        with ExitStack() as living, tempfile.TemporaryDirectory() as folder:
            stamps = {side: Path(folder) / side.queue for side in (self._older, self._here)}
            for path in stamps.values():
                path.touch()
            workers = {
                side: living.enter_context(side.worker(_words(side), self._url, BENCH_STAMPS=str(path)))
                for side, path in stamps.items()
            }
            ground.wait_for(lambda: self._client.scard("processes") == len(workers), 30)
            self._take("push to perform on an idle worker, ms", lambda side: self._latency_ms(side, stamps[side]))
            pids = {side: [worker.pid] for side, worker in workers.items()}
            self._drains("no-op jobs", pids, lambda side: "bench:prepared", JOBS)

    def tasks(self) -> None:
        """Measure the same for tasks of the Celery API, and its workflows."""
        self._client.flushall()
        sides = (self._older, self._here)
        for side in sides:
            side.say(["-m", "bench.celery_program", "fill", str(TASKS)], self._url)
            self._client.rename(f"queue:{side.queue}", f"prepared:{side.queue}")
        program = ["-m", "sidekiq_celery", "-A", "bench.celery_program"]
        words = [*program, "worker", "-l", "WARNING", "-P", "prefork", "-c", "2"]
        with ExitStack() as living:
            workers = {side: living.enter_context(side.worker(words, self._url)) for side in sides}
            for name, size in (("chain", 100), ("chord", 1000)):
                for side in sides:
                    side.say(["-m", "bench.celery_program", name, "1"], self._url)
                self._take(f"a {name} of {size:,}, ms", partial(self._canvas_ms, name, size), turns=3)
            pids = {side: [worker.pid, *_children(worker.pid)] for side, worker in workers.items()}
            self._drains("no-op tasks, -P prefork", pids, lambda side: f"prepared:{side.queue}", TASKS)

    def _drains(
        self, what: str, pids: dict[Version, list[int]], prepared: Callable[[Version], str], count: int
    ) -> None:
        cpu_us: dict[Version, float] = {}

        def drain(side: Version) -> float:
            before, began = _cpu_seconds(pids[side]), time.perf_counter()
            self._client.copy(prepared(side), f"queue:{side.queue}")
            ground.wait_for(lambda: self._is_drained(side), 300)
            seconds = time.perf_counter() - began
            cpu_us[side] = (_cpu_seconds(pids[side]) - before) / count * 1e6
            return seconds / count * 1e6

        for side in pids:
            drain(side)
        for _ in range(TURNS):
            self._take(f"drain of {what}, µs each", drain, turns=1)
            self.rows.setdefault(f"… {what}, µs of CPU each", []).append((cpu_us[self._older], cpu_us[self._here]))

    def _is_drained(self, side: Version) -> bool:
        return not self._client.exists(f"queue:{side.queue}") and not ground.is_in_flight(self._client)

    def _latency_ms(self, side: Version, stamps: Path) -> float:
        stamps.write_bytes(b"")
        for _ in range(STAMPS):
            text = b'{"class":"Stamp","jid":"x","retry":true,"queue":"q","args":[%.9f]}' % time.monotonic()
            self._client.lpush(f"queue:{side.queue}", text)
            time.sleep(0.004)
        ground.wait_for(lambda: stamps.read_bytes().count(b"\n") >= STAMPS, 10)
        return 1000 * median(float(line) for line in stamps.read_text().split())

    def _canvas_ms(self, name: str, size: int, side: Version) -> float:
        return 1000 * float(side.say(["-m", "bench.celery_program", name, str(size)], self._url))


def _words(side: Version) -> list[str]:
    return ["-m", "sidekiq_py", "worker", "-r", "bench.jobs", "-c", "10", "-q", side.queue, "--no-job-log"]


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _cpu_seconds(pids: Iterable[int]) -> float:
    # From each thread, in nanoseconds: a process's own figure is in hundredths of a second.
    threads = (thread for pid in pids for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def checkout(revision: str, folder: Path) -> Path:
    """Extract the files of that commit, and compile them as in an installed package."""
    archive = subprocess.run(["git", "archive", revision], cwd=ground.ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "sidekiq_py", "compat", "bench"], cwd=folder, check=True)
    return folder


def main() -> None:
    """Run the comparison and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.beside_revision", description=__doc__.split("\n\n")[0])
    parser.add_argument("revision", help="the older commit, such as b23b8db")
    parser.add_argument("--starts", type=int, default=STARTS, help="how often all processes are started anew")
    chosen = parser.parse_args()
    rows: Rows = {}
    with tempfile.TemporaryDirectory() as old, tempfile.TemporaryDirectory() as new:
        # Committed code is measured, so that both versions are at the same kind of path.
        older, here = Version(checkout(chosen.revision, Path(old)), "old"), Version(checkout("HEAD", Path(new)), "new")
        for number in range(chosen.starts):
            with ground.pinned_redis_server() as url, redis.Redis.from_url(url) as client:
                comparison = Comparison(older, here, url, client)
                for question in (comparison.pushes, comparison.starts, comparison.jobs, comparison.tasks):
                    question()
            for name, pairs in comparison.rows.items():
                rows.setdefault(name, []).extend(pairs)
            print(f"{number + 1} of {chosen.starts}, load average {os.getloadavg()[0]:.0f}", file=sys.stderr)
    print(f"| {ground.machine()} | {chosen.revision} | here | ratio |\n|---|---|---|---|")
    for name, pairs in rows.items():
        ratios = sorted(before / now for before, now in pairs)
        middle = f"{ratios[len(ratios) // 4]:.2f} to {ratios[-1 - len(ratios) // 4]:.2f}"
        sides = " | ".join(f"{median(side):.4g}" for side in zip(*pairs, strict=True))
        print(f"| {name} | {sides} | {median(ratios):.2f} ({middle}) |")


if __name__ == "__main__":
    main()
