"""Work for a fleet: a backlog that appears all at once, or jobs that trickle in."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import ground
from bench.fleet_counters import Counters
from bench.fleet_sides import Server, environment

TRICKLE_PER_SECOND = 200
_LOOK_EVERY_SECONDS = 0.05
_MESSAGES = 1_000


@dataclass(frozen=True, slots=True)
class Work:
    """
    Jobs of one kind.

    Attributes:
        milliseconds: How long each job sleeps.
        keys: The lists that the jobs wait in; they are distributed in turn.
        payload: Returns the bytes of the job with a given number.
    """

    milliseconds: int
    keys: Sequence[str]
    payload: Callable[[int], bytes]

    def key(self, number: int) -> str:
        """The list that a job goes to."""
        return self.keys[number % len(self.keys)]

    def prepare(self, server: Server, count: int) -> None:
        """Prepare that many jobs outside the queues."""
        for at, key in enumerate(self.keys):
            numbers = range(at, count, len(self.keys))
            for start in range(0, len(numbers), 1000):
                server.client.lpush(f"bench:{key}", *map(self.payload, numbers[start : start + 1000]))

    def push(self, number: int) -> list[bytes]:
        """The commands that a client sends to push a job, as Sidekiq's and Celery's own clients do."""
        key = self.key(number)
        kind, _, name = key.partition(":")
        lists = [packed(b"SADD", b"queues", name.encode())] if kind == "queue" else []
        return [*lists, packed(b"LPUSH", key.encode(), self.payload(number))]

    def reveal(self, server: Server) -> None:
        """Turn the prepared jobs into the queues, all at once."""
        pipe = server.client.pipeline()
        for key in self.keys:
            pipe.rename(f"bench:{key}", key)
        pipe.execute()

    def is_queued(self, server: Server) -> bool:
        """Whether any job is waiting; sends one command per queue."""
        return any(server.client.llen(key) for key in self.keys)


def of_jobs(job_class: str, milliseconds: int, queues: Sequence[str] = ("default",)) -> Work:
    """Jobs in the format of Sidekiq 8.1.7: `NoOp`, `Nap` or `Count`."""

    def payload(number: int) -> bytes:
        return (
            b'{"retry":true,"queue":"%s","args":[%d,"x"],"class":"%s","jid":"0123456789abcdef%08x",'
            b'"created_at":1763810000000,"enqueued_at":1763810000000}'
            % (queues[number % len(queues)].encode(), milliseconds or number, job_class.encode(), number)
        )

    return Work(milliseconds, [f"queue:{name}" for name in queues], payload)


def of_tasks(side: str, task: str, milliseconds: int, server: Server) -> Work:
    """Celery tasks in the format of this side's client: `nap`, or `nap_kept`, which has a result."""
    subprocess.run(
        [sys.executable, "-m", "bench.celery_program", "fill", str(_MESSAGES), task, str(milliseconds)],
        cwd=ground.ROOT,
        env={**environment(side, server), "BENCH_QUEUE": "bench"},
        check=True,
        capture_output=True,
    )
    kind = "" if side == "celery" else "queue:"
    messages: list[bytes] = server.client.lrange(f"{kind}bench", 0, -1)
    server.client.delete(f"{kind}bench")
    # More than are ever in flight at once, so that two messages with the same id never overlap.
    return Work(milliseconds, [f"{kind}default"], lambda number: messages[number % len(messages)])


def warm_up(work: Work, server: Server, processes: int) -> None:
    """
    Get a fleet past what it does only once.

    A process loads code and scripts with its first jobs. And each of our connections, of which a process opens up to
    three per queue, checks with its first acknowledgement what the server can do: with 20 processes and three queues
    that was a sixth of what jobs cost that trickled in for 5 s.
    """
    of_backlog(work, server, 50 * processes)
    of_trickle(work, server, 20 * processes * len(work.keys))


def at_rest(server: Server, seconds: float) -> Counters:
    """The cost of the fleet with nothing to do."""
    before = Counters.read(server.client)
    time.sleep(seconds)
    return Counters.read(server.client).since(before)


def of_backlog(work: Work, server: Server, count: int) -> Counters:
    """The cost of draining jobs that appear all at once, without their pushes."""
    work.prepare(server, count)
    before = Counters.read(server.client)
    work.reveal(server)
    # Poll rarely, because polling costs Redis too.
    ground.wait_for(lambda: not work.is_queued(server), 300, every=_LOOK_EVERY_SECONDS)
    return _once_settled(work, server, before)


def of_trickle(work: Work, server: Server, count: int) -> Counters:
    """The cost of jobs that arrive one by one, including their pushes."""
    with socket.create_connection(("127.0.0.1", server.port)) as pusher:
        pusher.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        before = Counters.read(server.client)
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number / TRICKLE_PER_SECOND - time.monotonic()))
            # In one round trip.
            commands = work.push(number)
            pusher.sendall(b"".join(commands))
            _read_integers(pusher, len(commands))
        return _once_settled(work, server, before)


def _once_settled(work: Work, server: Server, before: Counters) -> Counters:
    while True:
        time.sleep(0.3 + work.milliseconds / 1000)
        after = Counters.read(server.client)
        # `unacked` is where Celery keeps messages that are not acknowledged.
        if not (ground.is_in_flight(server.client) or work.is_queued(server) or server.client.hlen("unacked")):
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


def counting_seconds(server: Server, count: int, job: str = "Count") -> float:
    """The seconds that a fleet takes for jobs that each increment a field, until the last one is done."""
    work = of_jobs(job, 0)
    work.prepare(server, count)
    server.client.delete("bench:counted")
    began = time.monotonic()
    work.reveal(server)
    # It can be more if a client repeats its command after a timeout, as on a busy machine.
    ground.wait_for(lambda: int(server.client.hget("bench:counted", "jobs") or 0) >= count, 900, every=0.02)
    seconds = time.monotonic() - began
    ground.wait_for(lambda: not ground.is_in_flight(server.client), 30)
    return seconds
