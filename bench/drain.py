"""
How fast does one process drain a full queue?

Ours (concurrency 10, reliable fetch) against the real Ruby Sidekiq on the same Redis, and against a bare loop: ten
threads, a batch script into an in-flight list, a shared deque, `orjson.loads`, a call, and an LREM per job sent with
the next fetch. The same loop with the requests that our worker sends shows the protocol's floor: no engine could do
better without weaker guarantees. Read the ratios: "x Ruby" above 1 is faster than Ruby, and "of bare" is the share of
the bare loop's rate that the engine achieves.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count as numbered

import orjson
import redis

from bench import ground
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path import in_flight

BARE_FETCH = """
local jobs = redis.call('RPOP', KEYS[1], ARGV[1])
if jobs then redis.call('LPUSH', KEYS[2], unpack(jobs)) end
return jobs
"""


# Acknowledges the given tokens and fetches more: tokens, each with its job.
Exchange = Callable[[list[bytes]], list[tuple[bytes, bytes]]]


def by_list(link: Link) -> Exchange:
    """The least that a reliable fetch can do: a list of jobs in flight, and each job acknowledged by its own bytes."""
    script = link.command("SCRIPT", "LOAD", BARE_FETCH)

    def exchange(done: list[bytes]) -> list[tuple[bytes, bytes]]:
        commands = [("LREM", "bench:inflight", -1, raw) for raw in done]
        found = link.batch([*commands, ("EVALSHA", script, 2, ground.QUEUE, "bench:inflight", 1000)])[-1]
        return [(raw, raw) for raw in found or ()]

    return exchange


def by_our_protocol(link: Link) -> Exchange:
    """Our worker's requests: its acknowledgements, and its script with owners, leases, pauses and suspects."""
    link.command("SCRIPT", "LOAD", in_flight.FETCH.text)
    numbers = numbered(1)

    def exchange(done: list[bytes]) -> list[tuple[bytes, bytes]]:
        plan = in_flight.FetchPlan("bench:1:a:1", "{}", 30_000, next(numbers), [("default", 0)], 1000, 10**8, 1, False)
        keys, arguments = plan.command_parts()
        fetch = in_flight.FETCH.call(keys, arguments)
        reply = link.batch([*in_flight.acknowledge_commands(plan.owner, done, ()), fetch])[-1]
        found = reply[2:]
        return list(zip(found[::2], found[1::2], strict=True))

    return exchange


def bare_loop_rate(url: str, client: "redis.Redis[bytes]", jobs_in_all: int, way: Callable[[Link], Exchange]) -> float:
    """Jobs per second of a loop that does only what is unavoidable."""
    client.flushall()
    ground.load(client, "NoOp", jobs_in_all)
    link = Pool(RedisSettings(url)).new_link()
    exchange = way(link)
    jobs: deque[tuple[bytes, bytes]] = deque()
    done: deque[bytes] = deque()
    lock = threading.Lock()
    is_over = threading.Event()

    def refill() -> bool:
        found = exchange([done.popleft() for _ in range(len(done))])
        jobs.extend(found)
        return bool(found)

    def no_op(number: int, text: str) -> None:
        pass

    def work() -> None:
        while not is_over.is_set():
            try:
                token, raw = jobs.popleft()
            except IndexError:
                with lock:
                    if not jobs and not refill():
                        is_over.set()
                continue
            no_op(*orjson.loads(raw)["args"])
            done.append(token)

    threads = [threading.Thread(target=work) for _ in range(10)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refill()
    seconds = time.perf_counter() - began
    link.close()
    return jobs_in_all / seconds


def rates(
    worker: Callable[..., object], url: str, client: "redis.Redis[bytes]", count: int, rounds: int
) -> list[float]:
    """Jobs per second over several drains with one worker; the first drain is not counted."""
    found = [count / ground.drain_seconds(client, "NoOp", count) for _ in range(rounds + 1)]
    return found[1:]


def run(count: int = 100_000, rounds: int = 3) -> list[tuple[str, str]]:
    """The rows of the table."""
    rows: list[tuple[str, str]] = []
    with ground.redis_server() as url, redis.Redis.from_url(url) as client:
        # Alternately, because the machine's load changes from minute to minute.
        loops = [
            (bare_loop_rate(url, client, count, by_list), bare_loop_rate(url, client, count, by_our_protocol))
            for _ in range(rounds)
        ]
        bare, floor = (ground.median(list(side)) for side in zip(*loops, strict=True))
        client.flushall()
        with ground.python_worker(url, "-c", "10", "--no-job-log"):
            ours = ground.median(rates(ground.python_worker, url, client, count, rounds))
            long_queue = 1_000_000 / ground.drain_seconds(client, "NoOp", 1_000_000)
            short_queue = ground.median([10_000 / ground.drain_seconds(client, "NoOp", 10_000) for _ in range(5)])
        client.flushall()
        rows.append(("drain 100,000 no-op jobs, no log: ours", f"{ours:,.0f}/s"))
        rows.append(("… compared with the bare loop", f"{ours / bare:.0%} of {bare:,.0f}/s"))
        rows.append(
            (
                "… compared with the same loop with our requests, the protocol's floor",
                f"{ours / floor:.0%} of {floor:,.0f}/s",
            )
        )
        rows.append(
            ("a queue of 1,000,000 jobs compared with one of 10,000", f"{long_queue / short_queue:.2f} x the rate")
        )
        with ground.python_worker(url, "-c", "10"):
            logged = ground.median(rates(ground.python_worker, url, client, count, 1))
        client.flushall()
        if ground.has_ruby():
            with ground.ruby_worker(url, "-c", "10"):
                theirs = ground.median(rates(ground.ruby_worker, url, client, count, 1))
            client.flushall()
            with ground.ruby_worker(url, "-c", "10", env={"BENCH_LOG": "1"}):
                theirs_logged = ground.median(rates(ground.ruby_worker, url, client, count, 1))
            rows.append(("… compared with Ruby Sidekiq", f"{ours / theirs:.1f} x {theirs:,.0f}/s"))
            rows.append(
                (
                    "with the default log to a file: compared with Ruby",
                    f"{logged / theirs_logged:.1f} x {theirs_logged:,.0f}/s",
                )
            )
    return rows


if __name__ == "__main__":
    ground.main(run)
