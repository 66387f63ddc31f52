"""What a worker at work tells those who listen."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program, telemetry
from sidekiq_py.metrics.job_metrics import JobMetrics, families
from sidekiq_py.telemetry import EVENTS
from tests.support.documents import empty_program
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

Measurements = dict[str, Any]
Event = tuple[str, Measurements]

SLEEPER = """
import time
import sidekiq_py as sidekiq

@sidekiq.job(name="Sleeper", queue="sleepers")
def sleeper():
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def own_program(redis_url: str) -> Iterator[None]:
    """A program without jobs and handlers, on the emptied server."""
    with empty_program(redis_url):
        yield


@pytest.fixture
def events() -> list[Event]:
    """
    All that is told of jobs and of Redis, in the order in which it happens.

    `sidekiq.queue` is left out: a thread measures the queues now and then, between any two others.
    """
    emitted: list[Event] = []
    names = [name for name in EVENTS if name != "sidekiq.queue"]
    telemetry.attach("all", names, lambda name, measurements: emitted.append((name, dict(measurements))))
    return emitted


@pytest.fixture
def work() -> Iterator[Callable[..., Any]]:
    """Starts a worker in this process, which is stopped after the test: `work(queues=["low"])`."""
    with ExitStack() as workers:
        yield lambda **settings: workers.enter_context(sidekiq.embed(**{"concurrency": 1, **settings}))


def of(events: list[Event], name: str) -> list[Measurements]:
    """What was told by that name."""
    return [measurements for told, measurements in events if told == name]


def test_each_event_is_seen_with_the_measurements_that_are_declared(
    events: list[Event], new_redis_server: Callable[..., RedisServer], tmp_path: Any
) -> None:
    """A worker that pushes, runs, fails, promotes, recovers and loses Redis tells of it. For the rest see elsewhere."""
    server = new_redis_server(appendonly=True)
    program.configure(redis_url=server.url)
    tmp_path.joinpath("sleeping.py").write_text(SLEEPER)
    sleeper = sidekiq.ruby_job("Sleeper", queue="sleepers")
    with WorkerProcess("sleeping", redis_url=server.url, arguments=["-q", "sleepers"], python_path=[tmp_path]) as other:
        sleeper.perform_async()
        client = server.client()
        eventually(lambda: client.llen("queue:sleepers") == 0)
        other.kill()

    @sidekiq.job(name="Divide")
    def divide(number: int) -> None:
        assert 1 / number

    with sidekiq.embed(concurrency=1):
        divide.perform_async(1)
        divide.perform_async(0)
        divide.perform_in(0.1, 2)
        eventually(lambda: of(events, "sidekiq.promote") and of(events, "sidekiq.recover"))
        eventually(lambda: len(of(events, "sidekiq.settle")) == 3)
        server.kill()
        eventually(lambda: of(events, "sidekiq.redis.outage"))
        server.start()
        eventually(lambda: len(of(events, "sidekiq.redis.outage")) == 2)

    seen = {name: set(measurements) for name, measurements in events}
    elsewhere = {"sidekiq.queue", "sidekiq.batch", "sidekiq.job.expired"}
    assert seen == {name: set(event.measurements) for name, event in EVENTS.items() if name not in elsewhere}
    assert [told["is_over"] for told in of(events, "sidekiq.redis.outage")] == [False, True]


@pytest.mark.parametrize("fetcher", ["reliable", "basic"])
def test_a_success_is_told_from_push_to_settling(events: list[Event], work: Callable[..., Any], fetcher: str) -> None:
    """In the order in which it happens; `stop` last, as the job has ended when its end was handed in."""

    @sidekiq.job(name="Fine")
    def fine() -> None: ...

    jid = fine.perform_async()
    worker = work(fetcher=fetcher)
    eventually(lambda: of(events, "sidekiq.job.stop"))

    assert [name for name, _ in events] == [
        "sidekiq.push",
        "sidekiq.fetch",
        "sidekiq.job.start",
        "sidekiq.settle",
        "sidekiq.job.stop",
    ]
    told = dict(events)
    assert told["sidekiq.push"]["jids"] == [jid]
    assert told["sidekiq.fetch"] == {"count": 1, "queues": {"default": 1}}
    assert told["sidekiq.job.start"]["payload"]["jid"] == jid
    assert told["sidekiq.job.start"]["identity"] == worker.identity
    assert 0 < telemetry.latency_seconds(told["sidekiq.job.start"]["payload"], time.time()) < 60
    assert 0 < told["sidekiq.job.stop"]["seconds"] < 60
    assert told["sidekiq.settle"]["outcome"] == "done"
    assert told["sidekiq.settle"]["raw"] == told["sidekiq.push"]["payloads"][0]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("retry", "outcome"), [(True, "retry"), (0, "dead"), (False, "dropped")])
def test_a_failure_is_told_before_what_becomes_of_it(
    events: list[Event], work: Callable[..., Any], *, is_async: bool, retry: bool | int, outcome: str
) -> None:
    """The exception is the job's, and the outcome what Sidekiq's rules make of it."""
    if is_async:

        @sidekiq.job(name="Boom", retry=retry)
        async def aboom() -> None:
            raise ValueError("boom")

        aboom.perform_async()
    else:

        @sidekiq.job(name="Boom", retry=retry)
        def boom() -> None:
            raise ValueError("boom")

        boom.perform_async()
    work()
    eventually(lambda: of(events, "sidekiq.settle"))

    assert [name for name, _ in events][-3:] == ["sidekiq.job.start", "sidekiq.job.exception", "sidekiq.settle"]
    [raised] = of(events, "sidekiq.job.exception")
    assert (str(raised["error"]), raised["is_failure"]) == ("boom", True)
    assert of(events, "sidekiq.settle")[0]["outcome"] == outcome


def test_a_stop_that_cuts_a_job_off_is_no_failure_of_it(events: list[Event]) -> None:
    """It goes back to its queue, and dashboards do not turn red at every deploy."""
    has_begun = threading.Event()

    @sidekiq.job(name="Long")
    def long() -> None:
        has_begun.set()
        while True:
            threading.Event().wait(0.01)

    long.perform_async()
    with sidekiq.embed(concurrency=1) as worker:
        assert has_begun.wait(30)
        worker.stop(timeout_seconds=0)

    [raised] = of(events, "sidekiq.job.exception")
    assert raised["is_failure"] is False
    assert [settled["outcome"] for settled in of(events, "sidekiq.settle")] == ["requeue"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_job_that_was_asked_to_stop_is_told_of_as_done(
    is_async: bool, events: list[Event], work: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    """It counts as a success, in the job log, for Prometheus and for every other handler, as it does for Ruby's."""
    counts = JobMetrics()
    counts.attach()
    request.addfinalizer(counts.detach)

    def stop() -> None:
        raise sidekiq.Stopped("asked to")

    async def stop_async() -> None:
        stop()

    sidekiq.job(name="Stops")(stop_async if is_async else stop).perform_async()
    work()
    eventually(lambda: of(events, "sidekiq.job.stop") or of(events, "sidekiq.job.exception"))

    assert [name for name, _ in events][-3:] == ["sidekiq.job.start", "sidekiq.settle", "sidekiq.job.stop"]
    assert [settled["outcome"] for settled in of(events, "sidekiq.settle")] == ["done"]
    eventually(lambda: ("Stops", "default") in counts.counts())
    [executed, succeeded, *_] = families(counts.counts())
    assert [sample.value for family in (executed, succeeded) for sample in family.samples] == [1, 1]


def test_an_iterable_job_that_a_stop_interrupts_is_settled_as_interrupted(events: list[Event]) -> None:
    """It goes back to its queue, to continue from its position."""
    begun = threading.Event()

    class Endless(sidekiq.IterableJob, name="Endless"):
        def build_enumerator(self, *, cursor: Any) -> Iterator[tuple[int, int]]:
            return ((number, number) for number in range(cursor or 0, sys.maxsize))

        def each_iteration(self, number: int) -> None:
            begun.set()

    with sidekiq.embed(concurrency=1):
        Endless.perform_async()
        assert begun.wait(60)

    assert [settled["outcome"] for settled in of(events, "sidekiq.settle")] == ["interrupted"]


def test_what_is_no_job_is_settled_with_an_empty_payload(
    events: list[Event], work: Callable[..., Any], redis_client: "redis.Redis[bytes]"
) -> None:
    """It never starts, and its bytes are told as they are."""
    sidekiq.job(name="Fine")(lambda: None)
    redis_client.lpush("queue:default", b"{broken")
    work()
    eventually(lambda: of(events, "sidekiq.settle"))

    [settled] = of(events, "sidekiq.settle")
    assert settled == {"outcome": "dead", "payload": {}, "raw": b"{broken", "queue": "default"}
    assert not of(events, "sidekiq.job.start")


def test_jobs_run_though_every_handler_fails(work: Callable[..., Any], redis_client: "redis.Redis[bytes]") -> None:
    """Not a job is lost, retried or counted twice."""
    ran: list[int] = []

    @sidekiq.job(name="Note")
    def note(number: int) -> None:
        ran.append(number)

    def fail(name: str, measurements: Measurements) -> None:
        raise SystemExit(name)

    telemetry.attach("broken", EVENTS, fail)
    note.perform_bulk([[number] for number in range(10)])
    work(concurrency=2)

    eventually(lambda: redis_client.get("stat:processed") == b"10")
    assert sorted(ran) == list(range(10))
    assert (redis_client.zcard("retry"), redis_client.zcard("dead")) == (0, 0)


def test_a_bulk_push_is_told_round_trip_by_round_trip(events: list[Event]) -> None:
    """With the ids in their order; scheduled jobs have no queue yet."""
    job = sidekiq.ruby_job("Elsewhere", queue="low")

    jids = job.perform_bulk([[1], [2], [3]], batch_size=2)
    later = job.perform_bulk([[4]], at=4_000_000_000)

    told = of(events, "sidekiq.push")
    assert [push["jids"] for push in told] == [jids[:2], jids[2:], later]
    assert [(push["queue"], push["is_scheduled"]) for push in told] == [("low", False), ("low", False), (None, True)]


def test_a_push_that_fails_is_not_told(events: list[Event], new_redis_server: Callable[..., RedisServer]) -> None:
    """An event says what has happened."""
    server = new_redis_server()
    program.configure(redis_url=server.url)
    server.kill()

    with pytest.raises(sidekiq.SidekiqError):
        sidekiq.ruby_job("Elsewhere").perform_async()

    assert events == []


def test_a_killed_job_is_told_by_the_sibling_that_settles_it(
    start_worker: Callable[..., WorkerProcess], redis_client: "redis.Redis[bytes]", tmp_path: Any
) -> None:
    """Its own process can say nothing any more."""
    tmp_path.joinpath("limited.py").write_text(
        SLEEPER.replace('queue="sleepers"', 'queue="sleepers", hard_timeout=0.5')
        + f"""
from sidekiq_py import telemetry
telemetry.attach(
    "file", "sidekiq.settle", lambda name, told: open({str(tmp_path / "told")!r}, "a").write(told["outcome"])
)
"""
    )
    worker = start_worker("limited", arguments=["-q", "sleepers", "--processes", "2", "-c", "1"])
    worker.wait_until_ready(processes=2)

    sidekiq.ruby_job("Sleeper", queue="sleepers", retry=False).perform_async()

    eventually(lambda: (tmp_path / "told").exists() and (tmp_path / "told").read_text())
    assert (tmp_path / "told").read_text() == "dropped"
    worker.send_signal(signal.SIGTERM)
