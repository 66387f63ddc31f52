"""Jobs that leave Redis before they start, and so run at most once; soft limits that raise an error of their own."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.fetch.settle import Settler
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.errors import SoftTimeLimitError
from sidekiq_py.outcome import Attempt, Outcome
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.redis_access.job_path.settle_script import SETTLE
from tests.engine.embedded_worker import Worker
from tests.engine.fetch.in_flight_jobs import fetch
from tests.support.cutting_proxy import CuttingProxy, Where
from tests.support.in_flight import jobs_in_flight
from tests.support.ledger import job_text, push_jobs
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually


@pytest.mark.parametrize("is_async", [False, True])
def test_a_job_that_runs_at_most_once_is_nowhere_while_it_runs(
    redis_client: redis.Redis, worker: Worker, is_async: bool
) -> None:
    """What kills its process then, kills the job."""
    seen: list[int] = []

    def look(_: int) -> None:
        seen.append(len(jobs_in_flight(redis_client)) + redis_client.llen("queue:default"))

    async def look_async(_: int) -> None:
        look(_)

    function: Callable[..., Any] = look_async if is_async else look
    worker.declare("look", function, is_async=is_async).is_acknowledged_early = True
    worker.start()
    push_jobs(redis_client, [job_text(1, "look")])

    eventually(lambda: redis_client.get("stat:processed") == b"1")
    assert seen == [0]


def test_what_its_end_wants_is_written_all_the_same(redis_client: redis.Redis, worker: Worker) -> None:
    """A result does not depend on the job being in flight."""

    def decide_outcome(attempt: Attempt) -> Outcome | None:
        return Outcome("done", attempt.payload, vital=(("SET", "result", str(attempt.result)),))

    definition = worker.declare("answer", lambda _: 42)
    definition.is_acknowledged_early = True
    definition.decide_outcome = decide_outcome
    worker.start()
    push_jobs(redis_client, [job_text(1, "answer")])

    eventually(lambda: redis_client.get("result") == b"42")
    eventually(lambda: redis_client.get("stat:processed") == b"1")


def test_its_failure_is_kept_like_any_other(redis_client: redis.Redis, worker: Worker) -> None:
    """At most once is about deaths of processes, not about errors."""

    def fail(_: int) -> None:
        raise ValueError("boom")

    worker.declare("fail", fail).is_acknowledged_early = True
    worker.start()
    push_jobs(redis_client, [job_text(1, "fail")])

    eventually(lambda: redis_client.zcard("retry") == 1)


def test_a_soft_limit_raises_what_its_job_declares(redis_client: redis.Redis, worker: Worker) -> None:
    """A library on top has an error of its own that programs catch."""

    class Late(SoftTimeLimitError):
        pass

    caught: list[type[BaseException]] = []

    def wait(_: int) -> None:
        try:
            while True:
                time.sleep(0.01)
        except SoftTimeLimitError as error:
            caught.append(type(error))

    definition = worker.declare("wait", wait)
    definition.timeout_seconds = 0.05
    definition.timeout_error = Late
    worker.start()
    push_jobs(redis_client, [job_text(1, "wait")])

    eventually(lambda: caught == [Late])


class Held:
    """A job that runs until it is told to end, and then fails."""

    def __init__(self, worker: Worker) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.definition = worker.declare("held", self._run)
        self.definition.is_acknowledged_early = True

    def _run(self, _: int) -> None:
        self.begun.set()
        while not self.may_end.wait(0.01):
            pass
        raise ValueError("boom")


def test_its_end_outlives_a_restart_of_redis(
    redis_server: RedisServer, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """It is nowhere else: what is not written now is lost."""
    with ExitStack() as exits:
        worker = Worker(redis_server.url)
        exits.callback(worker.stop)
        job = Held(worker)
        worker.start()
        push_jobs(redis_client, [job_text(1, "held")])
        assert job.begun.wait(30)

        redis_server.stop()
        job.may_end.set()
        exits.callback(lambda: redis_server.is_running or redis_server.start())
        eventually(lambda: any("could not settle a job" in line for line in caplog.messages))
        redis_server.start()

        [member] = eventually(lambda: redis_client.zrange("retry", 0, -1))
        assert json.loads(member)["error_message"] == "boom"
        eventually(lambda: redis_client.mget("stat:processed", "stat:failed") == [b"1", b"1"])


@pytest.mark.parametrize("where", ["in request", "before reply", "in reply"])
def test_it_runs_though_the_connection_breaks_as_it_leaves_redis(
    redis_server: RedisServer, redis_client: redis.Redis, where: Where
) -> None:
    """Its process is alive, so nothing may be lost, wherever the job was when the connection broke."""
    with ExitStack() as exits:
        proxy = exits.enter_context(CuttingProxy(redis_server.port))
        worker = Worker(proxy.url)
        exits.callback(worker.stop)
        worker.declare("plain", worker.ran.append)
        worker.declare("once", worker.ran.append).is_acknowledged_early = True
        worker.start()
        redis_client.script_load(SETTLE.text.decode())
        # A worker's first fetch is a script, after which a job is acknowledged by its field instead of its bytes.
        push_jobs(redis_client, [job_text(0, "plain")])
        eventually(lambda: worker.ran == [0])
        proxy.cut(b'"class":"once"', where)
        push_jobs(redis_client, [job_text(1, "once")])

        eventually(lambda: 1 in worker.ran)
        worker.stop()
        assert (worker.ran, proxy.cuts[where]) == ([0, 1], 1)
        assert redis_client.get("stat:processed") == b"2"


def test_it_does_not_start_if_it_was_recovered_while_the_connection_was_broken(
    redis_server: RedisServer, redis_client: redis.Redis, link: Link
) -> None:
    """Its owner is gone from the registry then, and another process may have the job."""
    with ExitStack() as exits:
        proxy = exits.enter_context(CuttingProxy(redis_server.port))
        through_proxy = Pool(RedisSettings(proxy.url))
        exits.callback(through_proxy.close)
        ownership = Ownership("host:1:abc", ["default"], 30)
        owner = ownership.current
        settler = Settler(
            through_proxy.new_link(),
            on_pending=lambda: None,
            on_lost_connection=lambda: in_flight.fence(link, owner.name, certain=True, now=time.time()),
            count=lambda jobs: None,
            downtime=Downtime(),
        )
        exits.callback(settler.close)
        push_jobs(redis_client, [job_text(1, "once")])
        [(field, raw)] = fetch(link, owner=owner.name, registration=owner.about)
        unit = owner.units[field] = UnitOfWork(raw, "default", owner, field, is_marked=False, fetched_at=0.0)
        proxy.cut(field, "before reply")

        assert settler.settle_early(unit, (), ()) is False
        assert proxy.cuts["before reply"] == 1


@pytest.mark.parametrize("where", ["before request", "before reply"])
def test_its_end_pushes_once_though_the_reply_is_lost(
    redis_server: RedisServer, redis_client: redis.Redis, where: str
) -> None:
    """It is sent again; a push hangs on a mark, as nothing else would tell that it was done."""
    with ExitStack() as exits:
        proxy = exits.enter_context(CuttingProxy(redis_server.port))
        worker = Worker(proxy.url)
        exits.callback(worker.stop)
        job = Held(worker)
        job.definition.decide_outcome = lambda attempt: Outcome(
            "discarded", attempt.payload, vital=(("SADD", "queues", "next"), ("LPUSH", "queue:next", "callback"))
        )
        worker.start()
        push_jobs(redis_client, [job_text(1, "held")])
        assert job.begun.wait(30)
        proxy.cut(b"callback", where)
        job.may_end.set()

        # Where the first try went through, the second one has counted it again.
        tries = b"2" if where == "before reply" else b"1"
        eventually(lambda: redis_client.get("stat:failed") == tries)
        assert proxy.cuts[where] == 1

    assert redis_client.lrange("queue:next", 0, -1) == [b"callback"]


def test_what_redis_refuses_is_written_when_it_is_repaired(redis_client: redis.Redis, worker: Worker) -> None:
    """And the thread goes on meanwhile."""
    job = Held(worker)
    job.may_end.set()
    redis_client.set("retry", "oops")
    worker.start()
    push_jobs(redis_client, [job_text(1, "held"), job_text(2, "run")])

    eventually(lambda: worker.ran == [2])
    redis_client.delete("retry")
    eventually(lambda: redis_client.zcard("retry") == 1)


def test_it_goes_back_where_it_wants_to(redis_client: redis.Redis, worker: Worker) -> None:
    """A rejected task is to run again, here or elsewhere."""
    ran: list[int] = []
    definition = worker.declare("reject", ran.append)
    definition.is_acknowledged_early = True
    definition.decide_outcome = lambda attempt: Outcome("requeue", attempt.payload) if len(ran) < 3 else None
    worker.start()
    push_jobs(redis_client, [job_text(1, "reject")])

    eventually(lambda: redis_client.get("stat:processed") == b"1")
    assert ran == [1, 1, 1]


def test_it_does_not_run_again_after_a_hard_stop(
    redis_client: redis.Redis, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log does not say that it would."""
    job = Held(worker)
    launcher = worker.start()
    push_jobs(redis_client, [job_text(1, "held")])
    assert job.begun.wait(30)

    launcher.stop(timeout_seconds=0.1)

    eventually(lambda: any("runs at most once was cut off" in line for line in caplog.messages))
    assert (redis_client.llen("queue:default"), len(jobs_in_flight(redis_client))) == (0, 0)


class Watch:
    """Remembers what it was told of, as the parent of a family does."""

    def __init__(self) -> None:
        self.units: list[UnitOfWork] = []

    def begin(self, unit: UnitOfWork, seconds: float) -> None:
        """A job starts."""
        self.units.append(unit)

    def end(self) -> None:
        """It ended."""


def test_it_is_ended_from_outside_at_its_hard_limit(redis_client: redis.Redis, worker: Worker) -> None:
    """Its bytes are kept aside until then; if it comes to its end after all, that writes nothing more."""
    job = Held(worker)
    launcher = worker.start()
    job.definition.hard_timeout_seconds = 5.0
    watch = Watch()
    launcher.termination.watch_hard_limits(watch)
    push_jobs(redis_client, [job_text(1, "held"), job_text(2, "run")])
    assert job.begun.wait(30)
    [unit] = watch.units
    assert len(jobs_in_flight(redis_client)) == 0
    [kept] = redis_client.keys("sidekiq_py:kept:*")
    assert redis_client.ttl(kept) > 3600

    assert launcher.termination.settle_past_time_limit(unit.kept_by, unit.field, "5.0") is True
    assert launcher.termination.settle_past_time_limit(unit.kept_by, unit.field, "5.0") is False
    job.may_end.set()

    eventually(lambda: redis_client.get("stat:processed") == b"2")
    [member] = redis_client.zrange("retry", 0, -1)
    assert json.loads(member)["error_class"] == "sidekiq_py.errors.HardTimeLimitError"
    assert redis_client.keys("sidekiq_py:kept:*") == []
