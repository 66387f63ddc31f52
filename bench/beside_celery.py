"""
How does `sidekiq_celery` compare with the real Celery, with the same program on the same Redis?

Each side has one worker with default reliability. Celery's drain is that of its best pool of `prefork`, `threads` and
`solo`; everything else runs with `prefork`, the default of both sides, with as many children as there are processors.
Each side uses only its own package's dependencies, so Celery runs without hiredis unless its Python has it. Read the
ratios: above 1 is faster than Celery. Without Celery (`pip install celery`, or `SIDEKIQ_PY_CELERY_PYTHON` set to a
Python that has it) there are no rows.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import redis

from bench import ground

# A workflow takes only a fraction of a second, and the machine's speed varies from moment to moment.
_WORKFLOW_ROUNDS = 9
_POOLS = (("prefork", os.cpu_count() or 1), ("threads", 10), ("solo", 1))


@dataclass(frozen=True, slots=True)
class Side:
    """
    One of the two packages, with its own database.

    Attributes:
        package: The package's name, which is also that of its command-line module.
        python: The Python that has it.
        url: The URL of its broker and results.
    """

    package: str
    python: str
    url: str

    def environment(self) -> dict[str, str]:
        """The environment of its processes."""
        path = os.pathsep.join([str(ground.ROOT), str(ground.ROOT / "compat")])
        return {**os.environ, "PYTHONPATH": path, "BENCH_PACKAGE": self.package, "BENCH_URL": self.url}

    def ask(self, question: str, count: int) -> float:
        """Run a measurement with its client. Returns seconds."""
        command = [self.python, "-m", "bench.celery_program", question, str(count)]
        done = subprocess.run(
            command, cwd=ground.ROOT, env=self.environment(), capture_output=True, text=True, check=True
        )
        return float(done.stdout)

    @contextmanager
    def worker(self, pool: str, concurrency: int) -> Iterator[subprocess.Popen[bytes]]:
        """Run a worker; it has run a first task when this yields."""
        command = [self.python, "-m", self.package, "-A", "bench.celery_program", "worker", "-l", "WARNING"]
        command += ["-P", pool, "-c", str(concurrency)]
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(command, cwd=ground.ROOT, env=self.environment(), stdout=log, stderr=log)
            try:
                self.ask("chain", 1)
                yield process
            finally:
                ground.end(process)


def celery_python() -> str | None:
    """A Python that has the real Celery."""
    return os.environ.get("SIDEKIQ_PY_CELERY_PYTHON") or (sys.executable if find_spec("celery") else None)


def drain_rate(side: Side, client: "redis.Redis[bytes]", count: int) -> float:
    """Tasks per second until nothing waits, and nothing is unacknowledged or in flight."""
    paused = f"bench:{side.package}"
    # Filled outside the queue that the worker waits on, and moved there all at once.
    subprocess.run(
        [side.python, "-m", "bench.celery_program", "fill", str(count)],
        cwd=ground.ROOT,
        env={**side.environment(), "BENCH_QUEUE": paused},
        check=True,
        capture_output=True,
    )
    source = f"queue:{paused}" if side.package == "sidekiq_celery" else paused
    target = "queue:default" if side.package == "sidekiq_celery" else "default"
    began = time.perf_counter()
    client.rename(source, target)
    ground.wait_for(lambda: not client.llen(target) and not _unfinished(client), 300)
    return count / (time.perf_counter() - began)


def _unfinished(client: "redis.Redis[bytes]") -> bool:
    owners = client.hkeys("sidekiq_py:owners")
    return bool(client.hlen("unacked")) or any(client.hlen(b"sidekiq_py:inflight:" + owner) for owner in owners)


def best_drain(side: Side, client: "redis.Redis[bytes]", count: int) -> tuple[float, str]:
    """The rate of the fastest pool, and its name."""
    found = []
    for pool, concurrency in _POOLS:
        with side.worker(pool, concurrency):
            drain_rate(side, client, count // 10)
            found.append((drain_rate(side, client, count), pool))
        client.flushdb()
    return max(found)


def growth_kb(side: Side, count: int) -> int:
    """How much a worker's processes grow while that many tasks with an ETA in an hour are waiting."""
    with side.worker("prefork", 2) as process:
        before = _family_kb(process.pid)
        side.ask("later", count)
        # A worker that holds future tasks in memory has fetched them by now; others have nothing to fetch.
        time.sleep(5)
        return _family_kb(process.pid) - before


def _family_kb(pid: int) -> int:
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    own = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4
    return own + sum(_family_kb(child) for child in children)


def run(count: int = 20_000, rounds: int = 3) -> list[tuple[str, str]]:
    """The rows of the table."""
    python = celery_python()
    if python is None:
        return []
    with ground.redis_server() as url:
        base = url.rsplit("/", 1)[0]
        ours = Side("sidekiq_celery", sys.executable, f"{base}/0")
        theirs = Side("celery", python, f"{base}/1")
        with redis.Redis.from_url(ours.url) as our_client, redis.Redis.from_url(theirs.url) as their_client:
            rows = _drain_rows(ours, theirs, our_client, their_client, count)
            rows += _client_rows(ours, theirs, count, rounds)
            our_client.flushdb()
            their_client.flushdb()
            rows += _growth_rows(ours, theirs)
    return rows


def _drain_rows(
    ours: Side, theirs: Side, our_client: "redis.Redis[bytes]", their_client: "redis.Redis[bytes]", count: int
) -> list[tuple[str, str]]:
    rate, pool = best_drain(theirs, their_client, count)
    rows = []
    for name, concurrency in _POOLS[:2]:
        with ours.worker(name, concurrency):
            drain_rate(ours, our_client, count // 10)
            mine = drain_rate(ours, our_client, count)
        our_client.flushdb()
        row = f"Celery API: drain {count:,} no-op tasks, -P {name}"
        rows.append((row, f"{mine / rate:.1f} x {rate:,.0f}/s of Celery's best pool ({pool}) (goal: 20)"))
    return rows


def _client_rows(ours: Side, theirs: Side, count: int, rounds: int) -> list[tuple[str, str]]:
    rows = []
    questions = (("delay", count, "3"), ("chord", 1000, "5"), ("chain", 100, "5"))
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name, _, _ in questions}
    with ours.worker("prefork", os.cpu_count() or 1), theirs.worker("prefork", os.cpu_count() or 1):
        for name, size, _ in questions[1:]:
            for _ in range(_WORKFLOW_ROUNDS):
                found[name][0].append(ours.ask(name, size))
                found[name][1].append(theirs.ask(name, size))
    for _ in range(rounds):
        found["delay"][0].append(ours.ask("delay", count))
        found["delay"][1].append(theirs.ask("delay", count))
    for name, size, wanted in questions:
        mine, other = (ground.median(values) for values in found[name])
        what = f"delay(), {size / mine:,.0f}/s" if name == "delay" else f"a {name} of {size:,}, {mine:.3f} s"
        rows.append((f"Celery API: {what}", f"{other / mine:.1f} x Celery (goal: {wanted})"))
    return rows


def _growth_rows(ours: Side, theirs: Side, count: int = 100_000) -> list[tuple[str, str]]:
    mine, other = (growth_kb(side, size) for side, size in ((ours, count), (theirs, count // 5)))
    what = f"Celery API: {count:,} tasks with an ETA in an hour, growth of a worker"
    return [(what, f"{mine / 1024:.1f} MB (Celery's at {count // 5:,}: {other / 1024:.1f} MB)")]


if __name__ == "__main__":
    ground.main(run)
