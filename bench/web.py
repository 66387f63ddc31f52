"""
The dashboard over 100 jobs and over 1,000,000: time, round trips and commands of each page.

    python -m bench.web

Both Redis servers run at once and are asked in turn, so that what else the machine does meets both. A time is the
shortest of forty, rendering included; the doctor looks in the background and is left out. A quarter of the million
stands in one queue, in `retry`, in `schedule` and in `dead` each; the small Redis has a hundred jobs in each, so that
a page shows fifty of them either way.
"""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import redis

from bench import ground
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.web import User, asgi_app
from sidekiq_py.web.gateway import answer
from sidekiq_py.wire import metrics_keys

FEW, MANY = 100, 250_000
TIMES = 40
MOST_TIMES_AS_LONG = 1.5
MOST_ROUND_TRIPS = 3
PAGES = (
    *("/", "/?period=day", "/?period=week", "/busy", "/queues", "/queue?name=default", "/queue?name=default&from=50"),
    *("/retries", "/retries?from=50", "/scheduled", "/dead", "/job", "/metrics", "/metrics/job?class=HardJob"),
    *("/bulk", "/audit"),
)

_SLICE = 5000
_SETS = ("retry", "schedule", "dead")


class Side:
    """
    A dashboard over one Redis.

    Args:
        url: Of the Redis.
        jobs: How many are put in each place.
    """

    def __init__(self, url: str, jobs: int) -> None:
        with redis.Redis.from_url(url) as client:
            _fill(client, jobs)
        self._application = asgi_app(authorize=lambda _request: User("bench", "operator"), pool=url)
        self._job = self._path_of_a_job()

    def seconds(self, path: str) -> float:
        """How long a page takes."""
        scope = {
            "type": "http",
            "method": "GET",
            "scheme": "http",
            "root_path": "",
            "headers": [(b"host", b"localhost"), (b"accept", b"text/html")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 1),
        }
        where, _, query = (self._job if path == "/job" else path).partition("?")
        began = time.perf_counter()
        replied = answer(self._application, {**scope, "path": where, "query_string": query.encode()}, b"")
        elapsed = time.perf_counter() - began
        assert replied.status == 200, (path, replied.status)
        return elapsed

    def cost(self, path: str) -> tuple[int, int]:
        """Round trips and commands of a page."""
        with _counted() as made:
            self.seconds(path)
        return made["trips"], made["commands"]

    def _path_of_a_job(self) -> str:
        from sidekiq_py.api import RetrySet

        [entry], _ = RetrySet(pool=self._application.site.first_server.pool).at_rank(0, 1)
        return f"/job?at=/retries&key={entry.key}"


def _fill(client: "redis.Redis[bytes]", jobs: int) -> None:
    now = time.time()
    client.sadd("queues", "default")
    for start in range(0, jobs, _SLICE):
        numbers = range(start, min(jobs, start + _SLICE))
        pipe = client.pipeline(transaction=False)
        pipe.lpush("queue:default", *[_job(number, now) for number in numbers])
        for name in _SETS:
            pipe.zadd(name, {_job(number, now, failed=name != "schedule"): now + number for number in numbers})
        pipe.execute()
    for minute in range(60):
        counts = {"HardJob|p": 50, "HardJob|f": 2, "HardJob|ms": 4000}
        client.hset(metrics_keys.minute(now - 60 * minute, 8), mapping=counts)


def _job(number: int, now: float, *, failed: bool = False) -> str:
    job = {"retry": True, "queue": "default", "class": "HardJob", "args": [number, "x" * 20], "jid": f"{number:024}"}
    failure = {"error_class": "Boom", "error_message": "it broke", "failed_at": now, "retry_count": 1} if failed else {}
    return json.dumps({**job, "created_at": now, "enqueued_at": now, **failure}, separators=(",", ":"))


@contextmanager
def _counted() -> Iterator[dict[str, int]]:
    """What is sent meanwhile; all of it comes from this thread, as the doctor has looked before."""
    made = {"trips": 0, "commands": 0}
    command, batch = Link.command, Link.batch

    def one(self: Link, *words: Any) -> Any:
        made["trips"] += 1
        made["commands"] += 1
        return command(self, *words)

    def many(self: Link, commands: Any) -> list[Any]:
        made["trips"] += 1
        made["commands"] += len(commands)
        return batch(self, commands)

    Link.command, Link.batch = one, many  # type: ignore[method-assign]
    try:
        yield made
    finally:
        Link.command, Link.batch = command, batch  # type: ignore[method-assign]


def run() -> list[tuple[str, str]]:
    """The rows of the table."""
    with ExitStack() as stack:
        few, many = (Side(stack.enter_context(ground.redis_server()), jobs) for jobs in (FEW, MANY))
        for side in (few, many):
            side.seconds("/")
        # The doctor has been asked by then, and looks again in a minute.
        time.sleep(20)
        return [(f"dashboard {path}", _row(few, many, path)) for path in PAGES]


def _row(few: Side, many: Side, path: str) -> str:
    times: dict[Side, list[float]] = {few: [], many: []}
    for side in (few, many):
        side.seconds(path)
    for _ in range(TIMES):
        for side, taken in times.items():
            taken.append(side.seconds(path))
    small, large = (min(times[side]) for side in (few, many))
    (trips, _), (many_trips, commands) = few.cost(path), many.cost(path)
    verdict = "" if large / small <= MOST_TIMES_AS_LONG and max(trips, many_trips) <= MOST_ROUND_TRIPS else ", TOO MUCH"
    return (
        f"{large / small:.2f} times as long over {4 * MANY:,} jobs ({large * 1000:.1f} ms), "
        f"{many_trips} round trip{'s' if many_trips != 1 else ''}, {commands} commands{verdict}"
    )


if __name__ == "__main__":
    for name, value in run():
        print(f"{name:45} {value}", flush=True)
