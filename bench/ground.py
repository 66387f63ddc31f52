"""What all benchmarks share: a private Redis, workers in both languages, and jobs to drain."""

import argparse
import inspect
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

ROOT = Path(__file__).resolve().parent.parent
QUEUE = "queue:default"
SERVER_CORE, OTHER_CORE = 0, 1
_CORES = os.sched_getaffinity(0)


def main(run: Callable[..., Iterable[tuple[str, ...]]]) -> None:
    """Run one benchmark as a program, with the sizes that its command line gives, and print its rows."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{Path(sys.argv[0]).stem}",
        description=sys.modules[run.__module__].__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for size in inspect.signature(run).parameters.values():
        kind = type(size.default)
        parser.add_argument(size.name, nargs="?", type=kind, default=size.default, help=f"{size.default:,} if left out")
    for name, *values in run(**vars(parser.parse_args())):
        print(f"{name:60} {' | '.join(values)}", flush=True)


def free_port() -> int:
    """A free port on this machine."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def redis_server(*runner: str) -> Iterator[str]:
    """Run a server without persistence, started by the command *runner* if one is given; yields its URL."""
    port = free_port()
    command = [*runner, "redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
    # In its own session: Linux divides a core among sessions (`sched_autogroup`), and a server alone on a core only
    # gets a share that matches its part of the session's load. Beside 60 workers on the other core of a busy machine it
    # ran for 2 s of 250, and waited for its core the rest of the time: clients ran into their timeouts of 5 s.
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    client = redis.Redis(port=port)
    try:
        wait_for(lambda: _answers(client), 10)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        client.close()
        server.kill()
        server.wait()


@contextmanager
def pinned_redis_server(*runner: str) -> Iterator[str]:
    """
    Run a `redis_server` on its own core. This process, and everything it starts from now on, stays on the other one.

    Unpinned, a round trip takes half or twice as long, depending on whether server and client happen to share a core.
    `perform_async` came out anywhere between 32 % and 110 % of a bare loop's rate; pinned, between 92 % and 94 %.
    """
    mine = os.sched_getaffinity(0)
    with redis_server(*runner) as url, redis.Redis.from_url(url) as client:
        try:
            if {SERVER_CORE, OTHER_CORE} <= _CORES:
                os.sched_setaffinity(client.info("server")["process_id"], {SERVER_CORE})
                os.sched_setaffinity(0, {OTHER_CORE})
            yield url
        finally:
            os.sched_setaffinity(0, mine)


def _answers(client: "redis.Redis[bytes]") -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def wait_for(check: Callable[[], object], seconds: float, every: float = 0.002) -> None:
    """Wait until *check* returns a true value."""
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing came of {check} in {seconds} s")
        time.sleep(every)


def load(client: "redis.Redis[bytes]", job_class: str, count: int, key: str = QUEUE) -> None:
    """Fill the default queue, or another list, with payloads in the format of Sidekiq 6.4.1."""
    client.sadd("queues", "default")
    for start in range(0, count, 1000):
        client.lpush(
            key,
            *[
                b'{"retry":true,"queue":"default","args":[%d,"x"],"class":"%s","jid":"0123456789abcdef%08x",'
                b'"created_at":1700000000.1234567,"enqueued_at":1700000000.1235678}' % (i, job_class.encode(), i)
                for i in range(start, min(count, start + 1000))
            ],
        )


@contextmanager
def python_worker(url: str, *arguments: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run our worker with `bench.jobs`; it is ready to fetch when this yields."""
    command = [sys.executable, "-m", "sidekiq_py", "worker", "-r", "bench.jobs", *arguments]
    with _worker(command, url, env or {}) as process:
        yield process


@contextmanager
def ruby_worker(url: str, *arguments: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run the real Sidekiq with `bench/jobs.rb`."""
    command = ["sidekiq", "-r", str(ROOT / "bench" / "jobs.rb"), *arguments]
    with _worker(command, url, env or {}) as process:
        yield process


def has_ruby() -> bool:
    """Whether the real Sidekiq is installed."""
    return shutil.which("sidekiq") is not None


@contextmanager
def _worker(command: list[str], url: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "REDIS_URL": url, "PYTHONPATH": str(ROOT), **env},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        client = redis.Redis.from_url(url)
        try:
            wait_for(lambda: client.scard("processes") or process.poll() is not None, 30)
            if process.poll() is not None:
                log.seek(0)
                raise RuntimeError(f"{command[0]} ended at once: {log.read().decode(errors='replace')[-2000:]}")
            yield process
        finally:
            client.close()
            end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Stop a worker, and kill it if it does not stop."""
    process.terminate()
    try:
        process.wait(40)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def drain_seconds(client: "redis.Redis[bytes]", job_class: str, count: int) -> float:
    """Fill the queue at once under a running worker. Returns the seconds until nothing is queued or in flight."""
    client.rename(_prepared(client, job_class, count), QUEUE)
    began = time.perf_counter()
    wait_for(lambda: client.llen(QUEUE) == 0 and not is_in_flight(client), 300)
    return time.perf_counter() - began


def _prepared(client: "redis.Redis[bytes]", job_class: str, count: int) -> str:
    # Not in the queue, because the measured worker would take them as they are added.
    load(client, job_class, count, "bench:prepared")
    return "bench:prepared"


def is_in_flight(client: "redis.Redis[bytes]") -> bool:
    """Whether any of our workers has jobs that it has not settled."""
    owners = client.hkeys("sidekiq_py:owners")
    return any(client.hlen(b"sidekiq_py:inflight:" + owner) for owner in owners)


def machine() -> str:
    """A description of this machine in one line."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    server = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False).stdout
    version = server.split("v=")[1].split()[0] if "v=" in server else "?"
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, Redis {version}"


def median(values: list[float]) -> float:
    """The middle value."""
    return sorted(values)[len(values) // 2]
