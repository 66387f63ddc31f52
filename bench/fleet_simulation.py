"""
How many jobs per second can one core of Redis handle, and for how many processes?

A machine cannot hold thousands of processes. So two real ones are recorded with MONITOR, at rest and while they drain
a backlog of 5 ms jobs. Then a light client replays what one of them sent for each of N processes, under a separate
identity. First, the data that Redis holds about the real process is copied for all of them. A turn is the content of
one write by the worker. Each simulated process sends its next turn when the last one is answered; at rest, it sends
it at the time at which the worker did. All simulated jobs are the same bytes, and the job of each replayed command is
replaced by them: an acknowledgement of a job that is nowhere would cost more than one of a job in flight. This covers
costs that grow with the number of processes: an MGET that named the other process names all others. It does not cover
commands that a worker sends once for each of the others, nor what one process does for the whole fleet. If a process
may not open enough files, each simulated one has fewer connections than a real one.
"""

import heapq
import os
import random
import re
import resource
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import hiredis

from bench import ground
from bench.fleet_counters import Counters, interval, ratio
from bench.fleet_loads import at_rest, of_backlog, of_jobs, packed
from bench.fleet_monitor import Seen, recorded
from bench.fleet_sides import SIDES, Server, Shape, fleet, has_ruby, pinned_server

_NAPS = of_jobs("Nap", 5)
_ONE_JOB = _NAPS.payload(0)
_SAME_NAPS = replace(_NAPS, payload=lambda _: _ONE_JOB)
# A recorded job differs from it in these digits alone.
_JID = re.compile(rb'(?<="jid":"0123456789abcdef)[0-9a-f]{8}(?=")')
_REST_SECONDS = 12
_WINDOW_SECONDS = 4
# The commands of one write run right after each other; a worker's round trip takes longer than this.
_ONE_WRITE_SECONDS = 60e-6
# What the light client can send besides its other work; a fleet at rest that sends more is replayed more slowly.
_TURNS_PER_SECOND = 4_000
# More than a fast core carries in a second and a window.
_JOBS = 1_000_000
# Longer than any run, so that leases and heartbeats of simulated processes do not expire.
_TTL_MILLISECONDS = 3_600_000


@dataclass(frozen=True, slots=True)
class Turn:
    """
    What a worker sent in one write.

    Attributes:
        after: Seconds since the recording began.
        connection: The number of the worker's connection.
        bytes: The bytes on the wire, with the worker's own identity.
        commands: The number of replies.
        looks_up: The words of a single MGET; otherwise empty.
    """

    after: float
    connection: int
    bytes: bytes
    commands: int
    looks_up: tuple[bytes, ...] = ()

    def at_size(self, other: bytes, names: list[bytes]) -> "Turn":
        """The turn for a fleet in which the *other* process is replaced by all of *names*."""
        if not any(other in word for word in self.looks_up):
            return self
        words = [word.replace(other, name) for word in self.looks_up for name in (names if other in word else [other])]
        return replace(self, bytes=packed(*words))


@dataclass(frozen=True, slots=True)
class Known:
    """
    The data that Redis holds about a process, by key.

    Attributes:
        dumps: The process's own keys.
        members: Its members of shared sets.
        fields: Its fields in shared hashes.
    """

    dumps: dict[bytes, bytes]
    members: dict[bytes, list[bytes]]
    fields: dict[bytes, dict[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Script:
    """
    The recorded behavior of one process.

    Attributes:
        identity: The process's identity.
        other: The identity of the other real process.
        connections: The number of its connections.
        known: The data that Redis holds about it.
        draining: Its turns while it drains a backlog.
        resting: Its turns while it has nothing to do.
    """

    identity: bytes
    other: bytes
    connections: int
    known: Known
    draining: list[Turn]
    resting: list[Turn]


def watched(side: str, server: Server) -> Script:
    """Record the script of one of two processes that work on *server*. Both are stopped afterwards."""
    with fleet(side, Shape(2), server):
        of_backlog(_NAPS, server, 200)
        # Let both get to know each other, and send what they have counted.
        time.sleep(_REST_SECONDS)
        with recorded("127.0.0.1", server.port) as resting:
            time.sleep(_REST_SECONDS)
        identities = sorted(server.client.smembers("processes"))
        homes = _connections(server, [int(identity.split(b":")[1]) for identity in identities])
        # The middle of a long backlog: how the fleet gets to work and where the queue runs dry are left out.
        with recorded("127.0.0.1", server.port) as draining:
            of_backlog(_NAPS, server, 3_000)
        # The lookout and the poller each are one process that works for all, so the other process is replayed.
        lookout = server.client.get("sidekiq_py:lookout")
        polls = Counter(homes.get(one.client) for one in resting.seen if b"retry" in one.words)
        identity = min(identities, key=lambda name: (name == lookout, polls[int(name.split(b":")[1])]))
        own = {address: number for number, address in enumerate(a for a, pid in homes.items() if pid == _pid(identity))}
        at_work = turns(draining.seen, own)
        return Script(
            identity,
            next(name for name in identities if name != identity),
            len(own),
            known(server, identity),
            at_work[len(at_work) // 2 : len(at_work) * 3 // 4],
            turns([one for one in resting.seen if not _serves_the_fleet(one)], own),
        )


def _serves_the_fleet(one: Seen) -> bool:
    """Whether a process at rest sends this for all others, after a command showed that it is its turn."""
    # The poller, the removal of dead processes, and the question whether all processes are of Ruby.
    if one.name in ("smembers", "sscan", "hkeys"):
        return one.words[1] in (b"processes", b"sidekiq_py:owners")
    return b"retry" in one.words or (one.name == "hexists" and one.words[2] == b"info")


def _pid(identity: bytes) -> int:
    return int(identity.split(b":")[1])


def _connections(server: Server, pids: list[int]) -> dict[str, int]:
    """A mapping from the address of each connection of these processes, as MONITOR shows it, to the process."""
    of_inode = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if int(words[2].split(":")[1], 16) == server.port:
            of_inode[words[9]] = f"127.0.0.1:{int(words[1].split(':')[1], 16)}"
    found = {}
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(link))
            if match and match[1] in of_inode:
                found[of_inode[match[1]]] = pid
    return found


def turns(seen: list[Seen], connections: dict[str, int]) -> list[Turn]:
    """The turns that came over *connections*, split where the worker waited for a reply."""
    found: list[Turn] = []
    last_client, last_at = "", 0.0
    for one in seen:
        if one.client in connections:
            data, number = _JID.sub(b"0" * 8, packed(*one.words)), connections[one.client]
            if one.client == last_client and one.at - last_at < _ONE_WRITE_SECONDS:
                turn = found.pop()
                found.append(Turn(turn.after, number, turn.bytes + data, turn.commands + 1))
            else:
                found.append(Turn(one.at - seen[0].at, number, data, 1, one.words if one.name == "mget" else ()))
        last_at = one.at
        # The commands of a script belong to the client that ran it.
        last_client = one.client if one.client != "lua" else last_client
    return found


def known(server: Server, identity: bytes) -> Known:
    """The data that Redis holds about a process at rest."""
    client = server.client
    found = Known({}, {}, {})
    for key in client.keys("*"):
        kind = client.type(key)
        if identity in key:
            found.dumps[key] = client.dump(key)
        elif kind == b"set":
            found.members[key] = [member for member in client.smembers(key) if identity in member]
        elif kind == b"hash":
            found.fields[key] = {name: text for name, text in client.hgetall(key).items() if identity in name}
    return found


def multiply(server: Server, script: Script, names: list[bytes]) -> None:
    """Copy all data that Redis held about the real process, for each of *names*."""
    pipe = server.client.pipeline(transaction=False)
    for name in names:

        def renamed(text: bytes, name: bytes = name) -> bytes:
            return text.replace(script.identity, name)

        for key, dump in script.known.dumps.items():
            pipe.restore(renamed(key), _TTL_MILLISECONDS, dump, replace=True)
        for key, members in script.known.members.items():
            for member in members:
                pipe.sadd(key, renamed(member))
        for key, fields in script.known.fields.items():
            for field, text in fields.items():
                pipe.hset(key, renamed(field), renamed(text))
    pipe.execute()


class Crowd:
    """N simulated processes and their connections."""

    def __init__(self, server: Server, script: Script, size: int) -> None:
        self.script = script
        # As long as the real identity, so that no length on the wire changes.
        head, _, tail = script.identity.rpartition(b":")
        self.names = [head + b":" + b"%0*x" % (len(tail), number) for number in range(size)]
        multiply(server, script, self.names)
        self._resting = [turn.at_size(script.other, self.names) for turn in script.resting]
        self._poll = select.epoll()
        self._socks: list[socket.socket] = []
        self._of_file: dict[int, int] = {}
        self._each = min(script.connections, most_connections(server) // size)
        for number in range(size * self._each):
            sock = socket.create_connection(("127.0.0.1", server.port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._poll.register(sock, select.EPOLLIN)
            self._of_file[sock.fileno()] = number
            self._socks.append(sock)
        self._readers = [hiredis.Reader() for _ in self._socks]
        self.errors: Counter[str] = Counter()

    @property
    def resting_effort(self) -> float:
        """The turns that all of them send in the recording's time; a long turn counts as several."""
        return len(self.names) * sum(1 + len(turn.bytes) / 4_096 for turn in self._resting)

    def close(self) -> None:
        """Close the connections."""
        for sock in self._socks:
            sock.close()
        self._poll.close()

    def _send(self, process: int, turn: Turn) -> None:
        data = turn.bytes.replace(self.script.identity, self.names[process])
        self._socks[process * self._each + turn.connection % self._each].sendall(data)

    def _answered(self, seconds: float) -> Iterator[int]:
        """Yield the process of each reply that arrives."""
        for file, _ in self._poll.poll(max(0.0, seconds)):
            number = self._of_file[file]
            reader = self._readers[number]
            reader.feed(self._socks[number].recv(1 << 16))
            while (reply := reader.gets()) is not False:
                if isinstance(reply, hiredis.ReplyError):
                    self.errors[str(reply)[:60]] += 1
                yield number // self._each

    def drain(self, seconds: float) -> None:
        """Each process sends its next turn as soon as it can."""
        draining = self.script.draining
        at = [random.randrange(len(draining)) for _ in self.names]
        due = [0] * len(self.names)
        end = time.monotonic() + seconds
        for process, turn in enumerate(at):
            self._send(process, draining[turn])
            due[process] = draining[turn].commands
        while (left := end - time.monotonic()) > 0:
            for process in self._answered(left):
                due[process] -= 1
                if not due[process]:
                    at[process] = (at[process] + 1) % len(draining)
                    turn = draining[at[process]]
                    due[process] = turn.commands
                    self._send(process, turn)
        # Read the outstanding replies, so that they do not count as replies to what comes next.
        while any(count > 0 for count in due) and time.monotonic() < end + 5:
            for process in self._answered(1):
                due[process] -= 1

    def rest(self, seconds: float, slowness: float) -> None:
        """Each process sends its turns at their recorded times, starting at a random offset."""
        resting = self._resting
        span = _REST_SECONDS * slowness
        began = time.monotonic()
        heap = []
        for process in range(len(self.names)):
            shift = random.uniform(0, span)
            for number, turn in enumerate(resting):
                after = (turn.after * slowness + shift) % span
                if after < seconds:
                    heap.append((began + after, process, number))
        heapq.heapify(heap)
        while heap and time.monotonic() < began + seconds:
            while heap and heap[0][0] <= time.monotonic():
                _, process, number = heapq.heappop(heap)
                self._send(process, resting[number])
            for _ in self._answered(min(0.01, heap[0][0] - time.monotonic()) if heap else 0.01):
                pass


def most_connections(server: Server) -> int:
    """Raise the limits as far as possible. Returns how many connections this process and the server may have."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server.client.config_set("maxclients", hard - 100)
    return hard - 200


@dataclass(frozen=True, slots=True)
class Carried:
    """
    What one core of Redis can do for a number of processes.

    Attributes:
        jobs_per_second: What it can carry, less what the processes cost at rest.
        job_us: The CPU time of a job.
        rest_share: What the processes cost at rest, as a share of the core.
        busy_share: How busy Redis was in the measurement, as a share of the core.
    """

    jobs_per_second: float
    job_us: float
    rest_share: float
    busy_share: float


def rows(sides: tuple[str, ...], sizes: tuple[int, ...], rounds: int) -> list[tuple[str, ...]]:
    """One row for each size of fleet. In each of *rounds*, each side is recorded anew and replayed at all sizes."""
    found: dict[int, dict[str, list[Carried]]] = {size: {side: [] for side in sides} for size in sizes}
    for _ in range(rounds):
        for side in sides:
            with pinned_server() as server:
                script = watched(side, server)
                for size in sizes:
                    found[size][side].append(_carried(server, script, size))
    return [_row(size, of_sides) for size, of_sides in found.items()]


def _row(size: int, of_sides: dict[str, list[Carried]]) -> tuple[str, ...]:
    def median(value: Callable[[Carried], float], form: str) -> str:
        return " / ".join(form.format(interval([value(one) for one in carried])[0]) for carried in of_sides.values())

    ours, *others = ([one.jobs_per_second for one in carried] for carried in of_sides.values())
    return (
        f"{size:,} simulated processes",
        median(lambda one: one.jobs_per_second, "{:,.0f}"),
        ratio(ours, others[0]) if others else "",
        median(lambda one: one.job_us, "{:.1f}") + " µs",
        median(lambda one: one.rest_share, "{:.1%}"),
        median(lambda one: one.busy_share, "{:.0%}"),
    )


COLUMNS = (
    "Fleet",
    "Jobs per second on a core, ours / Ruby",
    "Ratio",
    "Redis's CPU per job",
    "Share of the core at rest",
    "How busy Redis was",
)


def run() -> list[tuple[str, ...]]:
    """The rows of the table."""
    return rows(SIDES if has_ruby() else SIDES[:1], (100, 1_000, 5_000), rounds=3)


def _carried(server: Server, script: Script, size: int) -> Carried:
    server.client.flushall()
    _SAME_NAPS.prepare(server, _JOBS)
    crowd = Crowd(server, script, size)
    try:
        bare = at_rest(server, 1)
        slowness = max(1.0, crowd.resting_effort / _REST_SECONDS / _TURNS_PER_SECOND)
        before = Counters.read(server.client)
        crowd.rest(_WINDOW_SECONDS, slowness)
        rest = Counters.read(server.client).since(before)
        upkeep = (
            (rest.cpu_us / rest.seconds - bare.cpu_us / bare.seconds) * slowness + bare.cpu_us / bare.seconds
        ) / 1e6
        _NAPS.reveal(server)
        crowd.drain(1)
        waiting = server.client.llen("queue:default")
        before = Counters.read(server.client)
        crowd.drain(_WINDOW_SECONDS)
        work = Counters.read(server.client).since(before)
        jobs = waiting - server.client.llen("queue:default")
    finally:
        crowd.close()
    if crowd.errors:
        raise RuntimeError(f"Redis rejected replayed commands: {crowd.errors.most_common(3)}")
    job_us = work.cpu_us / jobs
    return Carried(max(0.0, 1 - upkeep) * 1e6 / job_us, job_us, upkeep, work.cpu_us / work.seconds / 1e6)


if __name__ == "__main__":
    ground.main(run)
