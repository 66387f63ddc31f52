"""
What does a page of the dashboard cost with 100 jobs, and with 1,000,000?

    python -m bench.web

Both Redis servers run at once and are queried alternately, so that other load on the machine affects both. Times are
CPU time: the least of forty runs of the page in this process, including rendering, plus the mean time of its commands
in Redis. So a machine that also does other work measures the same. The doctor's checks run in the background and do not
count. The million jobs are divided equally among one queue, `retry`, `schedule` and `dead`; the small Redis has a
hundred jobs in each, so that a page shows fifty of them either way. In addition, there are a tracked batch, a group and
a chord, with 10,000 members and with a hundred.
"""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID

import redis

import sidekiq_py as sidekiq
from bench import ground
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.web import User, asgi_app
from sidekiq_py.web.gateway import answer
from sidekiq_py.wire import metrics_keys

FEW, MANY = 100, 250_000
FEW_MEMBERS, MANY_MEMBERS = 100, 10_000
TIMES = 40
MOST_TIMES_AS_LONG = 1.5
MOST_ROUND_TRIPS = 3
PAGES = (
    *("/", "/?period=day", "/?period=week", "/?period=6-months", "/busy"),
    *("/queues", "/queue?name=default", "/queue?name=default&from=50"),
    *("/retries", "/retries?from=50", "/scheduled", "/dead", "/job", "/metrics", "/metrics/job?class=HardJob"),
    *("/bulk", "/audit", "/batches", "/batches/one?bid={bid}", "/cron"),
    *("/celery/task?id=parent", "/celery/workflow?id=parent&group=g&from=50", "/celery/workflow?id=chord&from=50"),
)

_SLICE = 5000
_SETS = ("retry", "schedule", "dead")


class Side:
    """
    A dashboard over one Redis.

    Args:
        url: The URL of the Redis.
        jobs: The number of jobs in each queue and set.
        members: The number of members of the batch and of each workflow.
    """

    def __init__(self, url: str, jobs: int, members: int) -> None:
        self._client: redis.Redis[bytes] = redis.Redis.from_url(url)
        _fill(self._client, jobs)
        _enter_workflows(self._client, members)
        self._application = asgi_app(authorize=lambda _request: User("bench", "operator"), pool=url)
        self._job = self._path_of_a_job()
        self._bid = _open_batch(url, members)

    def seconds(self, path: str) -> float:
        """The CPU time that a page takes in this thread, which answers the request itself."""
        scope = {
            "type": "http",
            "method": "GET",
            "scheme": "http",
            "root_path": "",
            "headers": [(b"host", b"localhost"), (b"accept", b"text/html")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 1),
        }
        where, _, query = (self._job if path == "/job" else path.format(bid=self._bid)).partition("?")
        began = time.thread_time()
        replied = answer(self._application, {**scope, "path": where, "query_string": query.encode()}, b"")
        elapsed = time.thread_time() - began
        assert replied.status == 200, (path, replied.status)
        return elapsed

    def reset(self) -> None:
        """Start counting the time of commands in Redis."""
        self._client.config_resetstat()

    def seconds_in_redis(self) -> float:
        """The time that commands have taken in Redis since `reset`."""
        stats = self._client.info("commandstats")
        return sum(about["usec"] for name, about in stats.items() if name != "cmdstat_config|resetstat") / 1e6

    def cost(self, path: str) -> tuple[int, int]:
        """The number of round trips and commands of a page."""
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


def _enter_workflows(client: "redis.Redis[bytes]", members: int) -> None:
    """Add a task that has called a group, whose members have all ended; and a chord of that size, half of it done."""
    group = [["g", None], [[[_task_id(number), None], None] for number in range(members)]]
    stored = {_task_id(number): {"status": "SUCCESS", "result": number} for number in range(members)}
    parent = {"status": "SUCCESS", "result": None, "traceback": None, "children": [group]}
    stored["parent"] = {**parent, "date_done": "2026-11-23T02:00:00.123456+00:00", "task_id": "parent"}
    client.mset({f"celery-task-meta-{task_id}": json.dumps(meta) for task_id, meta in stored.items()})
    ended = {str(number): "1" for number in range(members // 2)}
    client.hset("sidekiq_py:chord:chord", mapping={"parts": members, "body": "{}", **ended})


def _task_id(number: int) -> str:
    """An id in Celery's format."""
    return str(UUID(int=number, version=4))


def _open_batch(url: str, members: int) -> str:
    sidekiq.configure(redis_url=url, sidekiq_version="8")
    batch = sidekiq.Batch(description="Import", track=True)
    with batch.jobs():
        sidekiq.ruby_job("ImportRow", queue="imports").perform_bulk([[number] for number in range(members)])
    return batch.bid


def _job(number: int, now: float, *, failed: bool = False) -> str:
    job = {"retry": True, "queue": "default", "class": "HardJob", "args": [number, "x" * 20], "jid": f"{number:024}"}
    failure = {"error_class": "Boom", "error_message": "it broke", "failed_at": now, "retry_count": 1} if failed else {}
    return json.dumps({**job, "created_at": now, "enqueued_at": now, **failure}, separators=(",", ":"))


@contextmanager
def _counted() -> Iterator[dict[str, int]]:
    """Count what is sent within. All of it comes from this thread, because the doctor has run before."""
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
        few, many = (
            Side(stack.enter_context(ground.redis_server()), jobs, members)
            for jobs, members in ((FEW, FEW_MEMBERS), (MANY, MANY_MEMBERS))
        )
        for side in (few, many):
            side.seconds("/")
        # By then the doctor has run, and it runs again in a minute.
        time.sleep(20)
        return [(f"dashboard {path}", _row(few, many, path)) for path in PAGES]


def _row(few: Side, many: Side, path: str) -> str:
    times: dict[Side, list[float]] = {few: [], many: []}
    for side in (few, many):
        side.seconds(path)
        side.reset()
    for _ in range(TIMES):
        for side, taken in times.items():
            taken.append(side.seconds(path))
    small, large = (min(times[side]) + side.seconds_in_redis() / TIMES for side in (few, many))
    (trips, _), (many_trips, commands) = few.cost(path), many.cost(path)
    verdict = "" if large / small <= MOST_TIMES_AS_LONG and max(trips, many_trips) <= MOST_ROUND_TRIPS else ", TOO MUCH"
    return (
        f"{large / small:.2f} times as long over {4 * MANY:,} jobs ({large * 1000:.1f} ms), "
        f"{many_trips} round trip{'s' if many_trips != 1 else ''}, {commands} commands{verdict}"
    )


if __name__ == "__main__":
    ground.main(run)
