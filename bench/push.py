"""
How fast are jobs pushed?

Producers take turns on one core, with one Redis on another, a thousand calls each: a bare loop over a redis-py
`Connection` that sends the same bytes and reads the replies, `perform_async`, and Ruby's; then `perform_bulk` of
100,000 and Ruby's `push_bulk`. Each ratio is the median of adjacent measurements.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis.connection import Connection

import sidekiq_py as sidekiq
from bench import ground

CALLS = 1_000
BULK = 100_000
ROUNDS = 20
BULK_ROUNDS = 5

PAYLOAD = (
    b'{"retry":true,"queue":"default","args":["bob",5],"class":"NoOp","jid":"88a0f295434c8fadeca2dd69",'
    b'"created_at":1795163352.433123,"enqueued_at":1795163352.433123}'
)

# Replies to each line on standard input with wall and CPU seconds.
RUBY = """
require "json"
Redis.silence_deprecations = true if defined?(Redis) && Redis.respond_to?(:silence_deprecations=)

def clocks
  [Process::CLOCK_MONOTONIC, Process::CLOCK_PROCESS_CPUTIME_ID].map { |clock| Process.clock_gettime(clock) }
end

def measured
  before = clocks
  yield
  clocks.zip(before).map { |after, at_first| after - at_first }
end

$stdout.sync = true
$stdin.each_line do |line|
  kind, count = line.split
  count = count.to_i
  jobs = Array.new(count) { |number| ["bob", number] }
  puts JSON.generate(
    if kind == "async"
      measured { count.times { NoOp.perform_async("bob", 5) } }
    else
      measured { jobs.each_slice(1000) { |slice| Sidekiq::Client.push_bulk("class" => NoOp, "args" => slice) } }
    end
  )
end
"""

Times = tuple[float, float]


@sidekiq.job(name="NoOp")
def no_op(name: str, count: int) -> None:
    """Never runs; it is only enqueued here."""


def measured(action: Callable[[], object]) -> Times:
    """The wall and CPU seconds that *action* takes."""
    cpu, wall = time.process_time(), time.perf_counter()
    action()
    return time.perf_counter() - wall, time.process_time() - cpu


@contextmanager
def ruby_maker(url: str) -> Iterator[Callable[[str, int], Times] | None]:
    """Yield a function that pushes in a Ruby process, or None if Ruby is not installed."""
    if not ground.has_ruby():
        yield None
        return
    command = ["ruby", "-r", str(ground.ROOT / "bench" / "jobs.rb"), "-e", RUBY]
    environment = {"REDIS_URL": url, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
        env=environment,
    ) as process:
        asked, answered = process.stdin, process.stdout
        assert asked is not None
        assert answered is not None

        def push(kind: str, count: int) -> Times:
            asked.write(f"{kind} {count}\n")
            wall, cpu = json.loads(answered.readline())
            return wall, cpu

        yield push


def bare_loop(url: str) -> Callable[[], None]:
    """A loop with redis-py only, which sends the same bytes and reads the same replies."""
    connection: Any = Connection(port=int(url.rpartition(":")[2].removesuffix("/0")))
    packed = connection.pack_commands([("SADD", "queues", "default"), ("LPUSH", "queue:default", PAYLOAD)])
    connection.connect()

    def loop() -> None:
        for _ in range(CALLS):
            connection.send_packed_command(packed, check_health=False)
            connection.read_response()
            connection.read_response()

    return loop


def our_loop() -> None:
    """Call `perform_async` one by one."""
    for _ in range(CALLS):
        no_op.perform_async("bob", 5)


def one_by_one(url: str, client: Any, ruby: Callable[[str, int], Times] | None) -> list[tuple[str, str]]:
    """Compare `perform_async` with the bare loop and Ruby."""
    bare = bare_loop(url)
    of_bare, of_ruby, micros = [], [], []
    for _ in range(ROUNDS):
        bare_times, our_times = measured(bare), measured(our_loop)
        of_bare.append(bare_times[0] / our_times[0])
        micros.append(our_times[0] / CALLS * 1e6)
        if ruby is not None:
            of_ruby.append(our_times[1] / ruby("async", CALLS)[1])
        client.flushall()
    rows = [
        ("perform_async", f"{ground.median(micros):.1f} µs per call"),
        ("perform_async, share of a bare Connection loop's rate", f"{ground.median(of_bare):.0%} (goal: 85 %)"),
    ]
    if of_ruby:
        rows.append(
            (
                "perform_async, CPU time per call relative to Ruby's",
                f"{ground.median(of_ruby):.2f} (goal: at most 0.60)",
            )
        )
    return rows


def in_bulk(client: Any, ruby: Callable[[str, int], Times] | None) -> list[tuple[str, str]]:
    """Compare `perform_bulk` with Ruby's `push_bulk` in slices of 1,000."""
    jobs = [["bob", number] for number in range(BULK)]
    times_ruby, rates = [], []
    for _ in range(BULK_ROUNDS):
        seconds, _ = measured(lambda: no_op.perform_bulk(jobs))
        rates.append(BULK / seconds)
        client.flushall()
        if ruby is not None:
            times_ruby.append(ruby("bulk", BULK)[0] / seconds)
            client.flushall()
    rows = [("perform_bulk of 100,000", f"{ground.median(rates):,.0f} jobs per second")]
    if times_ruby:
        rows.append(("perform_bulk, relative to Ruby's push_bulk", f"{ground.median(times_ruby):.1f} (goal: 2.5)"))
    return rows


def run() -> list[tuple[str, str]]:
    """The rows of the table."""
    with ground.pinned_redis_server() as url, redis.Redis.from_url(url) as client, ruby_maker(url) as ruby:
        sidekiq.configure(redis_url=url, sidekiq_version="6.4.1")
        if ruby is not None:
            ruby("async", CALLS)
        our_loop()
        return one_by_one(url, client, ruby) + in_bulk(client, ruby)


if __name__ == "__main__":
    ground.main(run)
