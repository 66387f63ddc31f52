"""What goes wrong beside a job: no thread is lost by it, and no job stays in flight."""

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from sidekiq_py import telemetry
from sidekiq_py.errors import Interrupted, PoisonPillError
from sidekiq_py.logs import LineFormatter, PlainFormatter
from sidekiq_py.redis_access.job_path.settle_script import SETTLE
from tests.engine.embedded_worker import Worker
from tests.engine.fetch.in_flight_jobs import ABOUT, OWNER, digest, fetch, held
from tests.support.cutting_proxy import CuttingProxy
from tests.support.in_flight import jobs_in_flight
from tests.support.ledger import job_text, push_jobs
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually


class Lines(logging.Handler):
    """What is logged, as a worker writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.form: LineFormatter = PlainFormatter()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Format where it is logged: the job belongs to that thread."""
        self.texts.append(self.form.format(record))

    def with_text(self, text: str) -> list[str]:
        """Those that contain *text*."""
        return [line for line in self.texts if text in line]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Listens to the library's loggers."""
    logger, handler = logging.getLogger("sidekiq"), Lines()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture
def brought() -> Iterator[list[int]]:
    """How many jobs each fetch has brought."""
    counts: list[int] = []
    telemetry.attach("brought", "sidekiq.fetch", lambda name, measurements: counts.append(measurements["count"]))
    yield counts
    telemetry.detach("brought")


def test_a_job_that_cannot_even_be_begun_fails(worker: Worker, redis_client: redis.Redis) -> None:
    """Its class stands for many jobs, and finding the right one raises."""

    def resolve(payload: dict[str, Any]) -> None:
        raise RuntimeError("no such table")

    worker.declare("odd", print).resolve = resolve
    worker.hooks.on_error(lambda error, context: worker.reported.append(context["context"]))
    push_jobs(redis_client, [job_text(1, "odd"), job_text(2, "run")])
    worker.start()

    eventually(lambda: worker.ran == [2])
    eventually(lambda: len(jobs_in_flight(redis_client)) == 0)
    [retried] = redis_client.zrange("retry", 0, -1)
    assert json.loads(retried)["error_message"] == "no such table"
    assert "Internal error" in worker.reported


def test_an_error_handler_that_exits_ends_no_thread(worker: Worker, redis_client: redis.Redis) -> None:
    """The only thread there is goes on to the next job."""

    def leave(error: BaseException, context: dict[str, Any]) -> None:
        raise SystemExit(3)

    def fail(number: int) -> None:
        raise ValueError("boom")

    worker.hooks.on_error(leave)
    worker.declare("fail", fail)
    push_jobs(redis_client, [job_text(1, "fail"), job_text(2, "run")])
    worker.start()

    eventually(lambda: worker.ran == [2])
    eventually(lambda: len(jobs_in_flight(redis_client)) == 0)
    assert redis_client.zcard("retry") == 1


def test_an_interrupted_job_that_may_not_be_pushed_again_fails(worker: Worker, redis_client: redis.Redis) -> None:
    """A client middleware raises: the job waits in the retry set, with that error."""

    def refuse(job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        raise RuntimeError("the tenant is gone")

    def interrupted(number: int) -> None:
        raise Interrupted

    worker.client.middleware.add(refuse)
    worker.declare("interrupted", interrupted)
    push_jobs(redis_client, [job_text(1, "interrupted")])
    worker.start()

    eventually(lambda: redis_client.zcard("retry") == 1)
    eventually(lambda: len(jobs_in_flight(redis_client)) == 0)
    assert json.loads(redis_client.zrange("retry", 0, -1)[0])["error_message"] == "the tenant is gone"


def test_an_async_suspect_clears_its_name(worker: Worker, redis_client: redis.Redis) -> None:
    """Its end is written beside the loop, which goes on meanwhile."""

    async def arun(number: int) -> None:
        await asyncio.sleep(0.01)
        worker.ran.append(number)

    worker.declare("arun", arun, is_async=True)
    text = job_text(1, "arun")
    push_jobs(redis_client, [text])
    redis_client.hset("sidekiq_py:suspects", digest(text.encode()), f"1:{time.time():.3f}")
    worker.start()

    eventually(lambda: worker.ran == [1])
    eventually(lambda: len(jobs_in_flight(redis_client)) == 0)
    eventually(lambda: redis_client.exists("sidekiq_py:suspects") == 0)
    assert redis_client.get("stat:processed") == b"1"


def test_a_job_past_its_hard_limit_fails_once_though_the_reply_is_lost(
    redis_server: RedisServer, redis_client: redis.Redis, lines: Lines
) -> None:
    """Whoever asked hears that it was settled: the process is to be killed, not to go on."""
    with ExitStack() as exits:
        proxy = exits.enter_context(CuttingProxy(redis_server.port))
        worker = Worker(proxy.url)
        exits.callback(worker.stop)
        launcher = worker.start()
        link = launcher.parts.pool.new_link()
        exits.callback(link.close)
        push_jobs(redis_client, [job_text(1, "run")], "elsewhere")
        [(field, _)] = fetch(link, ("elsewhere", 0), registration=ABOUT)
        proxy.cut(SETTLE.digest, "before reply")

        assert launcher.termination.settle_past_time_limit(OWNER, field, "5.0") is True
        assert launcher.termination.settle_past_time_limit(OWNER, field, "5.0") is False

    assert proxy.cuts["before reply"] == 1
    assert held(redis_client) == {}
    [retried] = redis_client.zrange("retry", 0, -1)
    assert json.loads(retried)["error_class"] == "sidekiq_py.errors.HardTimeLimitError"
    [reported] = lines.with_text("HardTimeLimitError")
    assert f" class=run jid={json.loads(retried)['jid']} WARN: " in reported
    assert redis_client.get("stat:failed") == b"1"


def test_a_job_that_nobody_declared_starts_and_fails_in_the_log(
    worker: Worker, redis_client: redis.Redis, lines: Lines
) -> None:
    """As in Ruby; every line of it, the error's too, bears class and jid."""
    text = job_text(1, "Absent")
    push_jobs(redis_client, [text])

    worker.start(job_log=True)
    eventually(lambda: redis_client.zcard("retry") == 1)
    eventually(lambda: lines.with_text("JobNotFoundError"))

    logged = lines.with_text(f" class=Absent jid={json.loads(text)['jid']} ")
    assert [line.splitlines()[0].rsplit("INFO: ")[-1] for line in logged[:2]] == ["start", "fail"]
    assert "JobNotFoundError" in logged[2]
    assert len(logged) == 3
    [retry] = redis_client.zrange("retry", 0, -1)
    assert json.loads(retry)["error_message"].endswith("If Ruby runs it, push it to a queue that only Ruby serves")


@pytest.mark.parametrize(
    ("text", "shown"),
    [(job_text(1, "run").encode(), " class=run jid="), (b"\xff no job", " ERROR: ")],
    ids=["a job", "no job"],
)
def test_a_poison_pill_is_reported_under_its_name(
    worker: Worker, redis_client: redis.Redis, lines: Lines, text: bytes, shown: str
) -> None:
    """Its bytes are shown as text, and who can be read is named in every line."""
    gone = "gone:1:abc:1"
    registration = {"boot": "", "pidns": "", "pid": 0, "start": 0, "queues": []}
    redis_client.hset("sidekiq_py:owners", gone, json.dumps(registration))
    redis_client.hset("sidekiq_py:suspects", hashlib.sha1(text).hexdigest(), f"2:{time.time()}")
    redis_client.hset(f"sidekiq_py:inflight:{gone}", "1.0!default", text)

    worker.start().declare_dead(gone)

    eventually(lambda: lines.with_text("Poison pill"))
    [logged] = lines.with_text(text.decode(errors="replace"))
    assert shown in logged
    [reported] = lines.with_text("Poison pill")
    assert (" class=run jid=" in reported) == text.startswith(b"{")
    assert PoisonPillError.__name__ in reported


def test_short_jobs_of_a_distant_redis_are_fetched_ahead(
    worker: Worker, redis_server: RedisServer, redis_client: redis.Redis, brought: list[int]
) -> None:
    """Those of 8 ms are, while a round trip takes 20; if Redis were near, only from a longer backlog."""
    worker.declare("nap", lambda number: (time.sleep(0.008), worker.ran.append(number)))
    push_jobs(redis_client, [job_text(number, "nap") for number in range(100)])
    with CuttingProxy(redis_server.port) as proxy:
        proxy.delay_seconds = 0.02
        worker.url = proxy.url
        worker.start()
        eventually(lambda: redis_client.get("stat:processed") == b"100")
        worker.stop()

    assert sorted(worker.ran) == list(range(100))
    assert max(brought) >= 4
    assert len(brought) <= 60


def test_jobs_of_a_backlog_are_fetched_ahead(worker: Worker, redis_client: redis.Redis, brought: list[int]) -> None:
    """Those of 6 ms are, after some fetches; they would have to take less than 5 without a backlog."""
    worker.declare("nap", lambda number: (time.sleep(0.006), worker.ran.append(number)))
    push_jobs(redis_client, [job_text(number, "nap") for number in range(1000)])
    worker.start()
    eventually(lambda: redis_client.get("stat:processed") == b"1000")
    worker.stop()

    assert sorted(worker.ran) == list(range(1000))
    # Without it, nearly every job is fetched alone.
    assert len(brought) <= 700
