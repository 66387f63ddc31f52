"""Fleets of ours and of the real Sidekiq, and the server that they work for."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis

from bench import ground
from interop_tests import roots

SIDES = ("ours", "ruby")
SERVER_CORE, OTHER_CORE = 0, 1


@dataclass(frozen=True, slots=True)
class Server:
    """
    The Redis under test.

    Attributes:
        port: Of this machine.
        client: Connected to it.
    """

    port: int
    client: "redis.Redis[bytes]"

    @property
    def url(self) -> str:
        """For workers."""
        return f"redis://127.0.0.1:{self.port}/0"


@contextmanager
def pinned_server() -> Iterator[Server]:
    """A server on one core; this process, and so all it starts from now on, is kept on the other one."""
    mine = os.sched_getaffinity(0)
    with ground.redis_server() as url, redis.Redis.from_url(url) as client:
        info: dict[str, Any] = client.info("server")
        try:
            if {SERVER_CORE, OTHER_CORE} <= mine:
                os.sched_setaffinity(info["process_id"], {SERVER_CORE})
                os.sched_setaffinity(0, {OTHER_CORE})
            yield Server(info["tcp_port"], client)
        finally:
            os.sched_setaffinity(0, mine)


@dataclass(frozen=True, slots=True)
class Shape:
    """
    How a fleet is built.

    Attributes:
        processes: That run jobs.
        threads: Of each.
        queues: Names, each with its weight; one alone has none.
        per_parent: Of ours, how many children a parent has; 0 is no parent.
    """

    processes: int
    threads: int = 5
    queues: tuple[tuple[str, int], ...] = (("default", 0),)
    per_parent: int = 0

    def command(self, side: str) -> list[str]:
        """What starts a fleet of *side*."""
        arguments = ["-c", str(self.threads)]
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


def ruby() -> list[str]:
    """The Ruby that has the newest Sidekiq here: an unpacked root's, else the machine's own."""
    root = roots.find("forky")
    return [*root.command("ruby")] if root else ["ruby"]


def ruby_release() -> str:
    """Which Sidekiq that is."""
    command = [*ruby(), "-e", 'require "sidekiq"; print Sidekiq::VERSION']
    return subprocess.run(command, cwd=ground.ROOT, capture_output=True, text=True, check=True).stdout


@contextmanager
def fleet(side: str, shape: Shape, server: Server) -> Iterator[None]:
    """So many processes, all of them in Redis and at rest."""
    server.client.flushall()
    server.client.sadd("queues", *[name for name, _ in shape.queues])
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            shape.command(side),
            cwd=ground.ROOT,
            env={**os.environ, "REDIS_URL": server.url, "PYTHONPATH": str(ground.ROOT), "LANG": "C.UTF-8"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            ground.wait_for(
                lambda: server.client.scard("processes") == shape.processes or process.poll() is not None,
                180,
                every=0.2,
            )
            if process.poll() is not None:
                log.seek(0)
                raise RuntimeError(f"the fleet of {side} ended: {log.read().decode(errors='replace')[-2000:]}")
            # The last one has said that it is there, and starts its threads.
            time.sleep(2)
            yield
        finally:
            ground.end(process)
