"""Fleets of our workers and of the real Sidekiq's, and the Redis server that they use."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import redis

from bench import ground
from interop_tests import roots

SIDES = ("ours", "ruby")
_START_SECONDS = 180
SETTLE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Server:
    """
    The Redis under test.

    Attributes:
        port: The port on this machine.
        client: A client connected to it.
    """

    port: int
    client: "redis.Redis[bytes]"

    @property
    def url(self) -> str:
        """The URL for workers."""
        return f"redis://127.0.0.1:{self.port}/0"


@contextmanager
def pinned_server(*runner: str) -> Iterator[Server]:
    """
    Run a server on one core, started by the command *runner* if one is given. This process, and everything it starts
    from now on, stays on the other one.
    """
    # With a busy fleet on the same core, a reply may take longer than redis-py's 5 s.
    with ground.pinned_redis_server(*runner) as url, redis.Redis.from_url(url, socket_timeout=60) as client:
        yield Server(int(client.info("server")["tcp_port"]), client)


@dataclass(frozen=True, slots=True)
class Shape:
    """
    How a fleet is built.

    Attributes:
        processes: The number of processes that run jobs.
        threads: The number of threads in each.
        queues: The names of the queues, each with its weight; a single queue has none.
        per_parent: For ours, how many children a parent process has; 0 for no parent.
        runs_tasks: True for Celery workers (`sidekiq_celery` and the real one), with a child process per thread.
    """

    processes: int
    threads: int = 5
    queues: tuple[tuple[str, int], ...] = (("default", 0),)
    per_parent: int = 0
    runs_tasks: bool = False

    def command(self, side: str) -> list[str]:
        """The command that starts a fleet of *side*."""
        arguments = ["-c", str(self.threads)]
        if self.runs_tasks:
            program = f"{'sidekiq_celery' if side == 'ours' else 'celery'}.__main__:main"
            start = [sys.executable, "-m", "bench.fleet_forked", str(self.processes), program]
            return [*start, "-A", "bench.celery_program", "worker", "-l", "WARNING", "-n", "fleet{number}", *arguments]
        for name, weight in self.queues:
            arguments += ["-q", f"{name},{weight}" if weight else name]
        if side == "ruby":
            program = [str(ground.ROOT / "bench" / "fleet_forked.rb"), str(self.processes)]
            return [*ruby(), *program, "-r", str(ground.ROOT / "bench" / "jobs.rb"), *arguments]
        count = self.processes
        if self.per_parent:
            if count % self.per_parent:
                raise ValueError(f"{count} processes cannot be shared out among parents of {self.per_parent}")
            count //= self.per_parent
            arguments += ["--processes", str(self.per_parent)]
        program = ["bench.fleet_forked", str(count), "sidekiq_py.cli.worker:worker"]
        return [sys.executable, "-m", *program, "-r", "bench.jobs", "--no-job-log", *arguments]

    def has_begun(self, side: str, server: Server) -> bool:
        """Whether all processes of the fleet are running."""
        if side == "celery":
            return int(server.client.info("clients")["blocked_clients"]) >= self.processes
        return int(server.client.scard("processes")) == self.processes * (self.threads if self.runs_tasks else 1)


def environment(side: str, server: Server) -> dict[str, str]:
    """The environment for a fleet, and for a client of its tasks."""
    path = os.pathsep.join([str(ground.ROOT), str(ground.ROOT / "compat")])
    package = "celery" if side == "celery" else "sidekiq_celery"
    tasks = {"BENCH_PACKAGE": package, "BENCH_URL": server.url}
    return {**os.environ, "REDIS_URL": server.url, "PYTHONPATH": path, "LANG": "C.UTF-8", **tasks}


def has_ruby() -> bool:
    """Whether a real Sidekiq is available."""
    return roots.find("forky") is not None or ground.has_ruby()


def ruby() -> list[str]:
    """The Ruby with the newest Sidekiq: that of an unpacked root, or else the machine's own."""
    root = roots.find("forky")
    return [*root.command("ruby")] if root else ["ruby"]


def ruby_release() -> str:
    """The release of that Sidekiq."""
    command = [*ruby(), "-e", 'require "sidekiq"; print Sidekiq::VERSION']
    return subprocess.run(command, cwd=ground.ROOT, capture_output=True, text=True, check=True).stdout


@contextmanager
def fleet(side: str, shape: Shape, server: Server) -> Iterator[None]:
    """Run a fleet; when this yields, all its processes are registered in Redis and at rest."""
    server.client.flushall()
    server.client.sadd("queues", *[name for name, _ in shape.queues])
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            shape.command(side),
            cwd=ground.ROOT,
            env=environment(side, server),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            ground.wait_for(
                lambda: shape.has_begun(side, server) or process.poll() is not None, _START_SECONDS, every=0.2
            )
            if process.poll() is not None:
                log.seek(0)
                raise RuntimeError(f"the fleet of {side} ended: {log.read().decode(errors='replace')[-2000:]}")
            # The last process has registered, and is still starting its threads.
            time.sleep(SETTLE_SECONDS)
            yield
        finally:
            ground.end(process)
