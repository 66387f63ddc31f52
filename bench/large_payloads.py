"""
What do jobs of a megabyte cost?

They are pushed one by one, compared with a loop that sends the same bytes with redis-py's `Connection`, and drained by
a worker, compared with a loop of RPOP and `orjson.loads`. While the worker drains, another client measures how long it
waits for a PING at worst: a fetch that read many of these jobs at once would block Redis for all clients (20 jobs of
50 MB once took 8.8 s). Redis has its own core.
"""

import threading
import time
from typing import Any

import orjson
import redis
from redis.connection import Connection

import sidekiq_py as sidekiq
from bench import ground

JOBS = 200
SIZE = 1_000_000
ROUNDS = 3
HUGE_JOBS = 10
HUGE_SIZE = 50_000_000


@sidekiq.job(name="Large")
def large(text: str) -> None:
    """Never runs; it is only enqueued here."""


def pushed_seconds(client: "redis.Redis[bytes]", jobs: int, size: int) -> float:
    """The seconds that `perform_async` takes for that many jobs."""
    client.delete(ground.QUEUE)
    text = "x" * size
    began = time.perf_counter()
    for _ in range(jobs):
        large.perform_async(text)
    return time.perf_counter() - began


def bare_push_seconds(url: str, client: "redis.Redis[bytes]", jobs: int, size: int) -> float:
    """The seconds for the same bytes in a loop that creates its payload once."""
    raw = client.lindex(ground.QUEUE, 0) or b"x" * size
    client.delete(ground.QUEUE)
    connection: Any = Connection(port=int(url.rpartition(":")[2].removesuffix("/0")))
    connection.connect()
    packed = connection.pack_commands([("SADD", "queues", "default"), ("LPUSH", ground.QUEUE, raw)])
    began = time.perf_counter()
    for _ in range(jobs):
        connection.send_packed_command(packed, check_health=False)
        connection.read_response()
        connection.read_response()
    seconds = time.perf_counter() - began
    connection.disconnect()
    return seconds


def bare_drain_seconds(client: "redis.Redis[bytes]") -> float:
    """The seconds to RPOP and parse each job."""
    began = time.perf_counter()
    while raw := client.rpop(ground.QUEUE):
        orjson.loads(raw)
    return time.perf_counter() - began


def longest_ping_seconds(url: str, is_over: threading.Event) -> float:
    """The longest PING until *is_over* is set."""
    longest = 0.0
    with redis.Redis.from_url(url, socket_timeout=60) as client:
        while not is_over.is_set():
            began = time.perf_counter()
            client.ping()
            longest = max(longest, time.perf_counter() - began)
            time.sleep(0.001)
    return longest


def drained(url: str, client: "redis.Redis[bytes]") -> tuple[float, float]:
    """The seconds that a worker takes to drain the queue, and the longest PING during that time."""
    is_over = threading.Event()
    longest: list[float] = []
    client.rename(ground.QUEUE, "bench:large")
    with ground.python_worker(url, "-c", "5", "--no-job-log"):
        asking = threading.Thread(target=lambda: longest.append(longest_ping_seconds(url, is_over)))
        asking.start()
        began = time.perf_counter()
        client.rename("bench:large", ground.QUEUE)
        ground.wait_for(lambda: client.llen(ground.QUEUE) == 0 and not ground.is_in_flight(client), 300)
        seconds = time.perf_counter() - began
        is_over.set()
        asking.join()
    return seconds, longest[0]


def run(jobs: int = JOBS, rounds: int = ROUNDS, huge_size: int = HUGE_SIZE) -> list[tuple[str, str]]:
    """The rows of the table."""
    pushes, of_bare, drains, of_bare_drain, pings = [], [], [], [], []
    with ground.pinned_redis_server() as url, redis.Redis.from_url(url, socket_timeout=60) as client:
        sidekiq.configure(redis_url=url, sidekiq_version="7")
        for _ in range(rounds):
            seconds = pushed_seconds(client, jobs, SIZE)
            bare = bare_push_seconds(url, client, jobs, SIZE)
            pushes.append(jobs / seconds)
            of_bare.append(bare / seconds)
            bare_drain = bare_drain_seconds(client)
            pushed_seconds(client, jobs, SIZE)
            seconds, ping = drained(url, client)
            drains.append(jobs / seconds)
            of_bare_drain.append(bare_drain / seconds)
            pings.append(ping)
        pushed_seconds(client, HUGE_JOBS, huge_size)
        _, huge_ping = drained(url, client)
    return [
        (
            "jobs of 1 MB: perform_async",
            f"{ground.median(pushes):,.0f}/s, {ground.median(of_bare):.0%} of a bare loop's",
        ),
        ("… drain", f"{ground.median(drains):,.0f}/s, {ground.median(of_bare_drain):.0%} of a bare RPOP loop's"),
        ("… longest PING during that drain", f"{max(pings) * 1e3:.0f} ms"),
        (
            f"{HUGE_JOBS} jobs of {huge_size / 1e6:.0f} MB: longest PING while they are drained",
            f"{huge_ping * 1e3:.0f} ms",
        ),
    ]


if __name__ == "__main__":
    ground.main(run)
