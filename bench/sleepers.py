"""
Do jobs that wait use all the slots they are given?

1,000 jobs of 100 ms: ten threads can do 100 per second at best, and 500 slots on the event loop need 0.2 s at best. The
rows show how close it comes to that.
"""

import redis

from bench import ground


def run() -> list[tuple[str, str]]:
    """The rows of the table."""
    with ground.redis_server() as url, redis.Redis.from_url(url) as client:
        with ground.python_worker(url, "-c", "10", "--no-job-log"):
            threads = ground.drain_seconds(client, "Sleeper", 1000)
        client.flushall()
        options = ("-c", "10", "--no-job-log", "--async-concurrency", "500")
        with ground.python_worker(url, *options, env={"BENCH_ASYNC": "1"}):
            loop = ground.median([ground.drain_seconds(client, "AsyncSleeper", 1000) for _ in range(3)])
    return [
        ("1,000 jobs of 100 ms on 10 threads", f"{10 / threads:.1%} of the ceiling"),
        ("the same as async def, 500 at a time", f"{loop:.3f} s (0.2 s at best)"),
    ]


if __name__ == "__main__":
    ground.main(run)
