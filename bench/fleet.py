"""
What does one job cost Redis in a fleet?

Processes of five threads each, ours and the real Sidekiq's in turns on one Redis, which has a core of its own; all else
shares the other one. A `backlog` was pushed before the fleet sees it; a `trickle` of 200 jobs a second comes from one
client, the same for both sides, and its pushes are part of the cost. Costs are above those of the same fleet at rest.

    python -m bench.fleet [--pairs 3] [--cells 20x5ms,2xnoop] [--loads backlog] [--sides ours,ruby]
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import redis

from bench import ground
from bench.fleet_counters import MEASURES, Cost, Counters, interval
from interop_tests import roots

THREADS = 5
LOADS = ("backlog", "trickle")
SIDES = ("ours", "ruby")
TRICKLE_PER_SECOND = 200
_SERVER_CORE, _OTHER_CORE = 0, 1
_LOOK_EVERY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Cell:
    """
    A size of fleet and a length of job.

    Attributes:
        processes: Of five threads each.
        milliseconds: That a job sleeps; 0 for one that does nothing.
    """

    processes: int
    milliseconds: int

    @classmethod
    def named(cls, name: str) -> "Cell":
        """Such as `20x5ms` or `2xnoop`."""
        processes, _, length = name.partition("x")
        if not processes.isdigit() or not (length == "noop" or length.removesuffix("ms").isdigit()):
            raise ValueError(f"{name} names no cell; write processes and length of a job, as 20x5ms or 2xnoop")
        return cls(int(processes), 0 if length == "noop" else int(length.removesuffix("ms")))

    def __str__(self) -> str:
        """As it is named."""
        return f"{self.processes}x{self.milliseconds}ms" if self.milliseconds else f"{self.processes}xnoop"

    @property
    def backlog(self) -> int:
        """So many jobs that both sides are at work for a second or more."""
        return 6_000 if self.milliseconds >= 50 else 10_000 if self.milliseconds else 20_000

    def payload(self, number: int) -> bytes:
        """A job as Sidekiq 8.1.7 writes it."""
        name, argument = ("Nap", self.milliseconds) if self.milliseconds else ("NoOp", number)
        return (
            b'{"retry":true,"queue":"default","args":[%d,"x"],"class":"%s","jid":"0123456789abcdef%08x",'
            b'"created_at":1763810000000,"enqueued_at":1763810000000}' % (argument, name.encode(), number)
        )


CELLS = tuple(Cell.named(name) for name in ("2xnoop", "2x5ms", "20xnoop", "20x5ms", "20x50ms", "60x50ms"))


@dataclass(frozen=True, slots=True)
class Server:
    """
    The Redis under test.

    Attributes:
        url: Where it is.
        client: Connected to it.
    """

    url: str
    client: "redis.Redis[bytes]"


@contextmanager
def pinned_server() -> Iterator[Server]:
    """A server on one core; this process, and so all it starts from now on, is kept on the other one."""
    mine = os.sched_getaffinity(0)
    with ground.redis_server() as url, redis.Redis.from_url(url) as client:
        try:
            if {_SERVER_CORE, _OTHER_CORE} <= mine:
                os.sched_setaffinity(client.info("server")["process_id"], {_SERVER_CORE})
                os.sched_setaffinity(0, {_OTHER_CORE})
            yield Server(url, client)
        finally:
            os.sched_setaffinity(0, mine)


def command_of(side: str, processes: int) -> list[str]:
    """What starts a fleet of *side*."""
    arguments = ["-c", str(THREADS)]
    if side == "ours":
        start = [sys.executable, "-m", "bench.fleet_forked", str(processes), "sidekiq_py.cli.worker:worker"]
        return [*start, "-r", "bench.jobs", "--no-job-log", *arguments]
    program = [str(ground.ROOT / "bench" / "fleet_forked.rb"), str(processes)]
    return [*ruby(), *program, "-r", str(ground.ROOT / "bench" / "jobs.rb"), *arguments]


def ruby() -> list[str]:
    """The Ruby that has the newest Sidekiq here: an unpacked root's, else the machine's own."""
    root = roots.find("forky")
    return [*root.command("ruby")] if root else ["ruby"]


def ruby_release() -> str:
    """Which Sidekiq that is."""
    command = [*ruby(), "-e", 'require "sidekiq"; print Sidekiq::VERSION']
    return subprocess.run(command, cwd=ground.ROOT, capture_output=True, text=True, check=True).stdout


@contextmanager
def fleet(side: str, processes: int, server: Server) -> Iterator[None]:
    """So many processes, all of them in Redis and at rest."""
    server.client.flushall()
    server.client.sadd("queues", "default")
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command_of(side, processes),
            cwd=ground.ROOT,
            env={**os.environ, "REDIS_URL": server.url, "PYTHONPATH": str(ground.ROOT), "LANG": "C.UTF-8"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            ground.wait_for(
                lambda: server.client.scard("processes") == processes or process.poll() is not None, 180, every=0.2
            )
            if process.poll() is not None:
                log.seek(0)
                raise RuntimeError(f"the fleet of {side} ended: {log.read().decode(errors='replace')[-2000:]}")
            # The last one has said that it is there, and starts its threads.
            time.sleep(2)
            yield
        finally:
            ground.end(process)


def at_rest(server: Server, seconds: float) -> Counters:
    """What the fleet costs with nothing to do."""
    before = Counters.read(server.client)
    time.sleep(seconds)
    return Counters.read(server.client).since(before)


def of_backlog(cell: Cell, server: Server, count: int) -> Counters:
    """What draining jobs that are there all at once takes, without their push."""
    client = server.client
    for start in range(0, count, 1000):
        client.lpush("bench:prepared", *map(cell.payload, range(start, min(count, start + 1000))))
    before = Counters.read(client)
    client.rename("bench:prepared", ground.QUEUE)
    # Rarely, and by one command: what looks costs Redis too.
    ground.wait_for(lambda: not client.llen(ground.QUEUE), 300, every=_LOOK_EVERY_SECONDS)
    return _once_settled(cell, server, before)


def of_trickle(cell: Cell, server: Server, count: int) -> Counters:
    """What jobs that come one by one take, their pushes included."""
    where = urlsplit(server.url)
    with socket.create_connection((where.hostname or "localhost", where.port or 6379)) as pusher:
        pusher.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        before = Counters.read(server.client)
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number / TRICKLE_PER_SECOND - time.monotonic()))
            # As Sidekiq's client: both in one round trip.
            pusher.sendall(
                _packed(b"SADD", b"queues", b"default") + _packed(b"LPUSH", b"queue:default", cell.payload(number))
            )
            _read_integers(pusher, 2)
        return _once_settled(cell, server, before)


def _once_settled(cell: Cell, server: Server, before: Counters) -> Counters:
    while True:
        time.sleep(0.3 + cell.milliseconds / 1000)
        after = Counters.read(server.client)
        if not ground.is_in_flight(server.client) and not server.client.llen(ground.QUEUE):
            return after.since(before)


def _packed(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def _read_integers(pusher: socket.socket, count: int) -> None:
    received = b""
    while received.count(b"\r\n") < count:
        received += pusher.recv(4096)
    if not received.startswith(b":"):
        raise RuntimeError(f"a push was refused: {received.decode()}")


@dataclass(frozen=True, slots=True)
class Finding:
    """
    What one fleet did in one cell.

    Attributes:
        cell: Its size and job.
        load: `backlog` or `trickle`.
        side: Whose it was.
        cost: Per job.
        jobs_per_second: Done in the time that was measured.
        idle_share: Of a core of Redis, with nothing to do.
    """

    cell: Cell
    load: str
    side: str
    cost: Cost
    jobs_per_second: float
    idle_share: float


@dataclass(frozen=True, slots=True)
class Plan:
    """
    What is to be measured.

    Attributes:
        cells: Those of one size share a fleet.
        loads: `backlog`, `trickle`.
        sides: In this order, and in the reverse order in every second pair.
        pairs: How often.
        idle_seconds: So long a fleet is looked at while it rests: longer than Ruby's pause of 10 s between beats.
        trickle_seconds: So long jobs trickle.
        scale: Of the number of jobs of a backlog.
    """

    cells: tuple[Cell, ...] = CELLS
    loads: tuple[str, ...] = LOADS
    sides: tuple[str, ...] = SIDES
    pairs: int = 3
    idle_seconds: float = 11
    trickle_seconds: float = 5
    scale: float = 1


def findings(plan: Plan) -> Iterator[Finding]:
    """One by one, as they are made."""
    with pinned_server() as server:
        for number in range(plan.pairs):
            for processes in dict.fromkeys(cell.processes for cell in plan.cells):
                for side in plan.sides if number % 2 == 0 else reversed(plan.sides):
                    with fleet(side, processes, server):
                        cells = [cell for cell in plan.cells if cell.processes == processes]
                        yield from _of_one_fleet(plan, cells, side, server)


def _of_one_fleet(plan: Plan, cells: list[Cell], side: str, server: Server) -> Iterator[Finding]:
    _warm_up(cells[0], server)
    idle = at_rest(server, plan.idle_seconds)
    for cell in cells:
        for load in plan.loads:
            if load == "backlog":
                count = int(cell.backlog * plan.scale)
                work = of_backlog(cell, server, count)
            else:
                count = int(TRICKLE_PER_SECOND * plan.trickle_seconds)
                work = of_trickle(cell, server, count)
            cost = Cost.of(work, idle, count)
            yield Finding(cell, load, side, cost, count / work.seconds, idle.cpu_us / idle.seconds / 1e6)


def _warm_up(cell: Cell, server: Server) -> None:
    of_backlog(cell, server, 100 * cell.processes)
    of_trickle(cell, server, TRICKLE_PER_SECOND // 4)


def table(found: list[Finding]) -> list[tuple[str, str]]:
    """A row per cell, load and measure."""
    rows = []
    for cell, load in dict.fromkeys((finding.cell, finding.load) for finding in found):
        of_side = {
            side: [one for one in found if (one.cell, one.load, one.side) == (cell, load, side)] for side in SIDES
        }
        for measure in MEASURES:
            values = {side: [getattr(one.cost, measure) for one in ones] for side, ones in of_side.items()}
            rows.append((f"{cell} {load}: {measure}", _beside(values["ours"], values["ruby"], "{:.2f}".format)))
        rates = {side: [one.jobs_per_second for one in ones] for side, ones in of_side.items()}
        rows.append((f"{cell} {load}: jobs a second", _beside(rates["ours"], rates["ruby"], "{:,.0f}".format)))
    for processes in dict.fromkeys(finding.cell.processes for finding in found):
        idle = {
            side: [one.idle_share for one in found if (one.cell.processes, one.side) == (processes, side)]
            for side in SIDES
        }
        rows.append(
            (f"{processes} processes at rest: of a Redis core", _beside(idle["ours"], idle["ruby"], "{:.2%}".format))
        )
    return rows


def _beside(ours: list[float], ruby: list[float], show: Callable[[float], str]) -> str:
    parts = [f"{side} {show(interval(values)[0])}" for side, values in (("ours", ours), ("Ruby", ruby)) if values]
    if ours and ruby:
        middle, low, high = interval(
            [one / other if other else float("nan") for one, other in zip(ours, ruby, strict=True)]
        )
        parts.append(f"ratio {middle:.2f} ({low:.2f} to {high:.2f})")
    return ", ".join(parts)


def run() -> list[tuple[str, str]]:
    """The rows of the table."""
    return table(list(findings(Plan())))


def _line(found: Finding) -> str:
    costs = ", ".join(f"{measure} {getattr(found.cost, measure):.2f}" for measure in MEASURES)
    rate, idle = f"{found.jobs_per_second:,.0f} jobs a second", f"at rest {found.idle_share:.2%}"
    return f"{found.side:5} {found.cell} {found.load}: {costs}, {rate}, {idle}"


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--cells", default=",".join(map(str, CELLS)))
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--idle-seconds", type=float, default=11)
    parser.add_argument("--trickle-seconds", type=float, default=5)
    parser.add_argument("--scale", type=float, default=1)
    given = parser.parse_args()
    plan = Plan(
        tuple(map(Cell.named, given.cells.split(","))),
        tuple(given.loads.split(",")),
        tuple(given.sides.split(",")),
        given.pairs,
        given.idle_seconds,
        given.trickle_seconds,
        given.scale,
    )
    if "ruby" in plan.sides:
        print(f"Ruby: Sidekiq {ruby_release()}", flush=True)
    found = []
    for finding in findings(plan):
        found.append(finding)
        print(_line(finding), flush=True)
    print()
    for name, value in table(found):
        print(f"{name:55} {value}")


if __name__ == "__main__":
    main()
