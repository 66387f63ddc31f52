"""Work for a fleet: a backlog that is there at once, or jobs that trickle in."""

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench import ground
from bench.fleet_counters import Counters
from bench.fleet_sides import Server

TRICKLE_PER_SECOND = 200
_LOOK_EVERY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Work:
    """
    Jobs of one kind.

    Attributes:
        job_class: `NoOp`, `Nap` or `Count`.
        milliseconds: That one sleeps.
        queues: Names; the jobs go to them by turns.
    """

    job_class: str
    milliseconds: int
    queues: Sequence[str] = ("default",)

    def queue(self, number: int) -> str:
        """Where a job goes."""
        return self.queues[number % len(self.queues)]

    def payload(self, number: int) -> bytes:
        """A job as Sidekiq 8.1.7 writes it."""
        return (
            b'{"retry":true,"queue":"%s","args":[%d,"x"],"class":"%s","jid":"0123456789abcdef%08x",'
            b'"created_at":1763810000000,"enqueued_at":1763810000000}'
            % (self.queue(number).encode(), self.milliseconds or number, self.job_class.encode(), number)
        )

    def prepare(self, server: Server, count: int) -> None:
        """Put so many jobs beside the queues."""
        for at, name in enumerate(self.queues):
            numbers = range(at, count, len(self.queues))
            for start in range(0, len(numbers), 1000):
                server.client.lpush(f"bench:{name}", *map(self.payload, numbers[start : start + 1000]))

    def reveal(self, server: Server) -> None:
        """Make what was prepared the queues, all at once."""
        pipe = server.client.pipeline()
        for name in self.queues:
            pipe.rename(f"bench:{name}", f"queue:{name}")
        pipe.execute()

    def is_queued(self, server: Server) -> bool:
        """Some job waits; asks one question a queue."""
        return any(server.client.llen(f"queue:{name}") for name in self.queues)


def at_rest(server: Server, seconds: float) -> Counters:
    """What the fleet costs with nothing to do."""
    before = Counters.read(server.client)
    time.sleep(seconds)
    return Counters.read(server.client).since(before)


def of_backlog(work: Work, server: Server, count: int) -> Counters:
    """What draining jobs that are there all at once takes, without their push."""
    work.prepare(server, count)
    before = Counters.read(server.client)
    work.reveal(server)
    # Rarely: what looks costs Redis too.
    ground.wait_for(lambda: not work.is_queued(server), 300, every=_LOOK_EVERY_SECONDS)
    return _once_settled(work, server, before)


def of_trickle(work: Work, server: Server, count: int) -> Counters:
    """What jobs that come one by one take, their pushes included."""
    with socket.create_connection(("127.0.0.1", server.port)) as pusher:
        pusher.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        before = Counters.read(server.client)
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number / TRICKLE_PER_SECOND - time.monotonic()))
            queue = work.queue(number).encode()
            # As Sidekiq's own client: both in one round trip.
            pusher.sendall(
                packed(b"SADD", b"queues", queue) + packed(b"LPUSH", b"queue:" + queue, work.payload(number))
            )
            _read_integers(pusher, 2)
        return _once_settled(work, server, before)


def _once_settled(work: Work, server: Server, before: Counters) -> Counters:
    while True:
        time.sleep(0.3 + work.milliseconds / 1000)
        after = Counters.read(server.client)
        if not ground.is_in_flight(server.client) and not work.is_queued(server):
            return after.since(before)


def packed(*words: bytes) -> bytes:
    """A command in Redis's protocol."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def _read_integers(pusher: socket.socket, count: int) -> None:
    received = b""
    while received.count(b"\r\n") < count:
        received += pusher.recv(4096)
    if not received.startswith(b":"):
        raise RuntimeError(f"a push was refused: {received.decode()}")


def counting_seconds(server: Server, count: int) -> float:
    """How long a fleet takes for jobs that each add one to a field, until the last has done it."""
    work = Work("Count", 0)
    work.prepare(server, count)
    server.client.delete("bench:counted")
    began = time.monotonic()
    work.reveal(server)
    ground.wait_for(lambda: server.client.hget("bench:counted", "jobs") == b"%d" % count, 300, every=0.02)
    seconds = time.monotonic() - began
    ground.wait_for(lambda: not ground.is_in_flight(server.client), 30)
    return seconds
