"""Status and progress on the keys of sidekiq-status, through real workers."""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.api import JobStatus  # type: ignore[attr-defined]
from sidekiq_py.extensions.status.progress import Run, Runs
from sidekiq_py.registry import registry
from sidekiq_py.testing import fake
from tests.support.strikes import strike_everywhere
from tests.support.waiting import eventually

FIXTURES = Path(__file__).parents[3] / "ruby_fixtures"
RECORDED: dict[str, Any] = json.loads((FIXTURES / "sidekiq_status_queued.json").read_text())


@pytest.fixture(autouse=True)
def _here(redis_url: str) -> Iterator[None]:
    """The program's Redis is the test's."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="7.3.2")
    program.extensions.load_installed()
    before = {definition.name for definition in registry}
    yield
    program.reset()
    for name in {definition.name for definition in registry} - before:
        registry.remove(name)


@pytest.fixture
def work() -> Iterator[Callable[[], None]]:
    """Starts a worker of this process."""
    workers: list[Any] = []

    def start() -> None:
        worker = sidekiq.embed(concurrency=2)
        worker.start()
        workers.append(worker)

    yield start
    for worker in workers:
        worker.stop(timeout_seconds=1)


def status_of(client: redis.Redis, jid: str | None) -> dict[str, str]:
    """The hash, as text."""
    found: Any = client.hgetall(f"sidekiq:status:{jid}")
    return {name.decode(): value.decode() for name, value in found.items()}


def test_a_report_that_comes_as_the_thread_gives_up_waiting_is_written(redis_client: redis.Redis) -> None:
    """The thread ends after a while without reports, and must not leave one behind."""
    runs, reports = Runs(lambda payload: None), [{"at": 3}]
    run = Run({"jid": "j1"}, has_status=True, audiences=())
    runs._runs["j1"] = run

    class ReportedAtTheEnd(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            is_notified = super().wait(0.01)
            if not is_notified and reports:
                run.next_at = runs._monotonic() + 0.1
                runs.say(run, reports.pop())
            return is_notified

    runs._wake = ReportedAtTheEnd(runs._lock)
    runs.say(run, {"at": 1})
    runs.say(run, {"at": 2})

    eventually(lambda: status_of(redis_client, "j1")["at"] == "3")


@pytest.mark.parametrize(("args", "recorded"), [((1, "two"), "with_arguments"), ((), "without_arguments")])
def test_a_push_writes_what_the_gem_would(redis_client: redis.Redis, args: tuple[Any, ...], recorded: str) -> None:
    """Field by field, in the gem's order, and with its time to live."""
    job = sidekiq.job(name="Import", status=True)(lambda *args: None)

    jid = job.perform_async(*args)

    expected = {**RECORDED[recorded], "jid": jid}
    found = status_of(redis_client, jid)
    for name in ("updated_at", "enqueued_at"):
        assert abs(int(found[name]) - time.time()) < 60
        expected[name] = found[name]
    assert list(found.items()) == list(expected.items())
    assert RECORDED["ttl_seconds"] - 60 <= redis_client.ttl(f"sidekiq:status:{jid}") <= RECORDED["ttl_seconds"]


@pytest.mark.parametrize("pushed_by", ["ruby", "python"])
def test_times_are_written_for_the_gem_before_4_too(
    pushed_by: str, redis_client: redis.Redis, work: Callable[[], None]
) -> None:
    """Up to 3.0.3, its page reads `update_time` and `working_at`. Beside Sidekiq 6 there is no later release."""
    sidekiq.configure(sidekiq_version="6.4.1")

    @sidekiq.job(name="Import", status=pushed_by == "python")
    def run() -> None:
        sidekiq.current_job().progress(at=5, total=10)  # type: ignore[union-attr]

    if pushed_by == "ruby":
        jid: str | None = "a" * 24
        written = {"update_time": "1700000000", "jid": jid, "status": "queued", "worker": "Import", "args": "{}"}
        redis_client.hset(f"sidekiq:status:{jid}", mapping=written)
        sidekiq.Client().push({"class": "Import", "args": [], "jid": jid})
    else:
        jid = run.perform_async()
        assert status_of(redis_client, jid)["update_time"] == status_of(redis_client, jid)["updated_at"]
    work()

    eventually(lambda: status_of(redis_client, jid).get("status") == "complete")
    found = status_of(redis_client, jid)
    assert found["working_at"] == found["started_at"]
    assert int(found["update_time"]) == int(found["updated_at"]) > 1_700_000_000


@pytest.mark.parametrize("declared", ["job(name='Import', status=True)(print)", "ruby_job('Import', status=True)"])
def test_a_program_that_only_pushes_writes_the_status(declared: str, redis_client: redis.Redis, redis_url: str) -> None:
    """It has no other reason to load an extension."""
    lines = f"import sidekiq_py as sidekiq; print(sidekiq.{declared}.perform_async(1), end='')"

    pushed = subprocess.run(
        [sys.executable, "-c", lines], env={**os.environ, "REDIS_URL": redis_url}, capture_output=True, check=True
    )

    assert status_of(redis_client, pushed.stdout.decode())["status"] == "queued"


def test_a_job_that_did_not_ask_writes_nothing(redis_client: redis.Redis, work: Callable[[], None]) -> None:
    """Neither at its push nor by its progress."""
    ran = threading.Event()

    @sidekiq.job(name="Quiet")
    def quiet() -> None:
        sidekiq.current_job().progress(at=1, total=2)  # type: ignore[union-attr]
        ran.set()

    jid = quiet.perform_async()
    work()

    assert ran.wait(60)
    eventually(lambda: redis_client.get("stat:processed") == b"1")
    assert status_of(redis_client, jid) == {}


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_jobs_life_is_written_to_its_end(kind: str, redis_client: redis.Redis, work: Callable[[], None]) -> None:
    """From `working` to `complete`, with what it said last."""
    seen: list[dict[str, str]] = []

    if kind == "plain":

        @sidekiq.job(name="Import", status=True)
        def run() -> None:
            job: Any = sidekiq.current_job()
            job.progress(at=1, total=10, message="one", file="a.csv")
            seen.append(status_of(redis_client, job.jid))
            for row in range(2, 11):
                job.progress(at=row, message=f"row {row}")

    else:

        @sidekiq.job(name="Import", status=True)
        async def run() -> None:
            job: Any = sidekiq.current_job()
            await job.aprogress(at=1, total=10, message="one", file="a.csv")
            seen.append(status_of(redis_client, job.jid))
            for row in range(2, 11):
                await job.aprogress(at=row, message=f"row {row}")

    jid = run.perform_async()
    work()

    eventually(lambda: status_of(redis_client, jid).get("status") == "complete")
    [first] = seen
    assert (
        first.items() >= {"status": "working", "at": "1", "total": "10", "pct_complete": "10", "file": "a.csv"}.items()
    )
    last = status_of(redis_client, jid)
    assert last.items() >= {"at": "10", "pct_complete": "100", "message": "row 10"}.items()
    assert last["ended_at"]


def test_a_job_that_waited_longer_than_its_status_lives_is_named_again(
    redis_client: redis.Redis, work: Callable[[], None]
) -> None:
    """Half an hour is soon over for a job that is scheduled or retried. The gem's page lists its class."""

    @sidekiq.job(name="Import", status=True)
    def run(path: str) -> None:
        sidekiq.current_job().progress(at=5, total=10)  # type: ignore[union-attr]

    jid = run.perform_async("a.csv")
    pushed = status_of(redis_client, jid)
    redis_client.delete(f"sidekiq:status:{jid}")
    work()

    eventually(lambda: status_of(redis_client, jid).get("status") == "complete")
    last = status_of(redis_client, jid)
    assert (last["jid"], last["worker"], last["args"]) == (jid, "Import", '["a.csv"]')
    assert int(last["enqueued_at"]) - int(pushed["enqueued_at"]) in (-1, 0)
    assert last["pct_complete"] == "50"


def test_arguments_that_no_push_could_carry_do_not_fail_a_job_without_a_status(
    redis_client: redis.Redis, work: Callable[[], None]
) -> None:
    """Another program may write 1e400 into a payload. Such a job runs, and its status has no name."""
    ran: list[float] = []

    @sidekiq.job(name="Import", status=True)
    def run(number: float) -> None:
        ran.append(number)

    redis_client.sadd("queues", "default")
    redis_client.lpush(
        "queue:default",
        '{"class":"Import","args":[1e400],"jid":"0123456789ab","queue":"default","retry":false,"status":true}',
    )
    work()

    eventually(lambda: status_of(redis_client, "0123456789ab").get("status") == "complete")
    assert ran == [float("inf")]


def test_a_failure_says_whether_it_is_retried(redis_client: redis.Redis, work: Callable[[], None]) -> None:
    """`retrying`, then `failed` where no retry is left."""

    @sidekiq.job(name="Fails", status=True)
    def fails() -> None:
        raise RuntimeError("no")

    retried, failed = fails.perform_async(), fails.set(retry=0).perform_async()
    work()

    eventually(lambda: status_of(redis_client, retried).get("status") == "retrying")
    eventually(lambda: status_of(redis_client, failed).get("status") == "failed")
    assert "ended_at" not in status_of(redis_client, retried)


def test_ruby_asks_by_a_hash_and_its_longer_life_is_kept(redis_client: redis.Redis, work: Callable[[], None]) -> None:
    """What the gem's client middleware has written is enough: the job itself declares nothing."""

    @sidekiq.job(name="Import")
    def run() -> None:
        sidekiq.current_job().progress(at=5, total=10)  # type: ignore[union-attr]

    jid = "a" * 24
    redis_client.hset(f"sidekiq:status:{jid}", mapping={"jid": jid, "status": "queued", "worker": "Import"})
    redis_client.expire(f"sidekiq:status:{jid}", 86_400)
    sidekiq.Client().push({"class": "Import", "args": [], "jid": jid})
    work()

    eventually(lambda: status_of(redis_client, jid).get("status") == "complete")
    assert status_of(redis_client, jid)["pct_complete"] == "50"
    assert redis_client.ttl(f"sidekiq:status:{jid}") > 80_000  # type: ignore[operator]


def test_a_testing_mode_of_another_thread_does_not_hide_progress(
    redis_client: redis.Redis, work: Callable[[], None]
) -> None:
    """The threads of an embedded worker have no mode, and their jobs are real ones."""

    @sidekiq.job(name="Import")
    def run() -> None:
        sidekiq.current_job().progress(at=5, total=10)  # type: ignore[union-attr]

    jid = "a" * 24
    redis_client.hset(f"sidekiq:status:{jid}", mapping={"jid": jid, "status": "queued", "worker": "Import"})
    sidekiq.Client().push({"class": "Import", "args": [], "jid": jid})
    with fake():
        work()
        eventually(lambda: status_of(redis_client, jid).get("pct_complete") == "50")


@pytest.mark.parametrize("asks_by", ["declaration", "hash"])
def test_a_stopped_job_ends_without_a_retry(asks_by: str, redis_client: redis.Redis, work: Callable[[], None]) -> None:
    """`Stopped` is raised at the next progress; the job is neither retried nor dead, and counts as no failure."""
    began = threading.Event()

    def run() -> None:
        began.set()
        while True:
            sidekiq.current_job().progress(at=1)  # type: ignore[union-attr]
            time.sleep(0.01)

    options: dict[str, Any] = {"status": True} if asks_by == "declaration" else {}
    job = sidekiq.job(name="Long", **options)(run)
    jid = "b" * 24
    if asks_by == "hash":
        redis_client.hset(f"sidekiq:status:{jid}", "status", "queued")
    job.set(jid=jid).perform_async()
    work()
    assert began.wait(60)
    found = JobStatus.find(jid)
    assert found is not None

    found.stop()

    eventually(lambda: status_of(redis_client, jid).get("status") == "stopped")
    eventually(lambda: redis_client.get("stat:processed") == b"1")
    assert (redis_client.zcard("retry"), redis_client.zcard("dead")) == (0, 0)
    assert redis_client.get("stat:failed") in (None, b"0")


def test_whoever_listens_hears_of_each_write(redis_client: redis.Redis) -> None:
    """On the gem's channel, with the jid."""
    listener = redis_client.pubsub()
    listener.subscribe("status_updates")
    listener.get_message(timeout=5)
    job = sidekiq.job(name="Import", status=True)(lambda: None)

    jid = job.perform_async()

    message = listener.get_message(timeout=5)
    assert message is not None
    assert message["data"].decode() == jid
    listener.close()


def test_a_job_that_says_much_writes_ten_times_a_second() -> None:
    """What is said in between is kept, and the last of it is there to be written."""
    now = [100.0]
    writes: list[dict[str, Any]] = []
    runs = Runs(lambda payload: None, monotonic=lambda: now[0])

    def flush(run: Run) -> None:
        writes.append(run.pending)
        run.pending, run.next_at = {}, now[0] + 0.1

    runs._flush = flush  # type: ignore[method-assign]
    runs._later = lambda run: None  # type: ignore[method-assign]
    run = Run({"jid": "1"}, has_status=True, audiences=())
    runs._runs["1"] = run

    for step in range(1000):
        now[0] = 100.0 + step / 1000
        runs.say(run, {"at": step})

    assert len(writes) == 10
    assert runs.leave(run.payload) == (run, {"at": 999})


def test_a_job_that_never_pauses_writes_ten_times_a_second(redis_client: redis.Redis, work: Callable[[], None]) -> None:
    """The job and the thread that writes what it said in between do not write right behind each other."""
    took: list[float] = []

    @sidekiq.job(name="Import", status=True)
    def run() -> None:
        job: Any = sidekiq.current_job()
        started = time.monotonic()
        at = 0
        while time.monotonic() < started + 1:
            at += 1
            job.progress(at=at)
        took.append(time.monotonic() - started)

    jid = run.perform_async()
    listener = redis_client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("status_updates")
    listener.get_message(timeout=5)
    work()
    eventually(lambda: status_of(redis_client, jid)["status"] == "complete")

    writes = 0
    while listener.get_message(timeout=0.2):
        writes += 1
    listener.close()
    # Besides `working` and `complete`, and the first one.
    assert writes <= 10 * took[0] + 3


def test_a_quiet_job_shows_what_it_said_last(redis_client: redis.Redis, work: Callable[[], None]) -> None:
    """Though it says nothing for long, and ends much later."""
    go_on = threading.Event()

    @sidekiq.job(name="Import", status=True)
    def run() -> None:
        job: Any = sidekiq.current_job()
        job.progress(at=1)
        job.progress(at=2)
        go_on.wait(20)

    jid = run.perform_async()
    work()

    eventually(lambda: status_of(redis_client, jid).get("at") == "2")
    assert status_of(redis_client, jid)["status"] == "working"
    go_on.set()


def test_a_text_that_utf_8_cannot_carry_costs_no_job(redis_client: redis.Redis, work: Callable[[], None]) -> None:
    """As of a file name that was read from a disk; where it was not written yet, the end of the job would have been."""

    @sidekiq.job(name="Import", status=True)
    def run() -> None:
        job: Any = sidekiq.current_job()
        job.progress(at=1)
        job.progress(at=2, message="caf\udce9.csv")

    jid = run.perform_async()
    work()

    eventually(
        lambda: (
            status_of(redis_client, jid).get("status") in ("complete", "failed", "retrying")
            or redis_client.zcard("dead")
        ),
        within_seconds=10,
    )
    assert status_of(redis_client, jid)["status"] == "complete"
    assert status_of(redis_client, jid)["message"] == "caf\\udce9.csv"
    assert redis_client.zcard("dead") == 0


def kept_runs() -> int:
    """Of how many runs this process still knows something."""
    extension: Any = program.extensions.find("status")
    return len(program.extensions.handled_runs) + len(extension.runs._runs)


@pytest.mark.parametrize("options", [{}, {"status": True}], ids=["by its progress", "by declaration"])
def test_nothing_is_kept_of_a_run_that_has_no_end(options: dict[str, Any]) -> None:
    """A program that runs jobs inline for months would keep them all."""

    @sidekiq.job(name="Import", **options)
    def run() -> None:
        sidekiq.current_job().progress(at=1)  # type: ignore[union-attr]

    run.perform_inline()
    with fake() as enqueued:
        run.perform_async()
        enqueued.drain()

    assert kept_runs() == 0


@pytest.mark.parametrize("options", [{}, {"status": True}], ids=["by its progress", "by declaration"])
def test_nothing_is_kept_of_a_run_that_goes_back_to_its_queue(
    redis_client: redis.Redis, work: Callable[[], None], options: dict[str, Any]
) -> None:
    """Or the next job whose payload Python puts in the same place would be taken for it."""
    is_rejected = threading.Event()

    @sidekiq.job(name="Import", retry=False, **options)
    def run() -> None:
        sidekiq.current_job().progress(at=1)  # type: ignore[union-attr]
        is_rejected.set()
        raise sidekiq.Shutdown

    run.perform_async()
    work()

    eventually(is_rejected.is_set)
    registry.remove("Import")
    eventually(lambda: kept_runs() == 0)


def test_fields_of_the_status_itself_cannot_be_set(redis_client: redis.Redis) -> None:
    """The error names the field."""

    @sidekiq.job(name="Import", status=True)
    def run() -> None:
        sidekiq.current_job().progress(status="done")  # type: ignore[union-attr]

    with pytest.raises(ValueError, match="cannot set 'status'"):
        run.perform_inline()


@pytest.mark.parametrize("said", [{"at": "5"}, {"at": 1, "total": "100"}, {"total": "100"}, {"at": float("nan")}])
def test_progress_is_reported_in_numbers(said: dict[str, Any]) -> None:
    """A number as a text, from a file for example, is named; a Fraction or a Decimal will do."""

    @sidekiq.job(name="Import", status=True)
    def run() -> None:
        job = sidekiq.current_job()
        job.progress(at=Decimal(1), total=Decimal(2))  # type: ignore[union-attr]
        job.progress(at=Fraction(1, 2), total=1)  # type: ignore[union-attr]
        with pytest.raises(ValueError, match=r"cannot compute .* of .*; give at= and total= as numbers"):
            job.progress(**said)  # type: ignore[union-attr]
        # What was refused is forgotten.
        job.progress(at=1)  # type: ignore[union-attr]

    run.perform_inline()


def test_a_status_can_be_read_listed_and_forgotten(redis_client: redis.Redis) -> None:
    """As an object and as JSON; what is no number counts as 0."""
    redis_client.hset(
        "sidekiq:status:c",
        mapping={"jid": "c", "status": "working", "at": "5", "total": "20", "pct_complete": "x", "started_at": "100"},
    )

    [found] = JobStatus.all()

    assert (found.jid, found.status, found.at, found.total, found.percent) == ("c", "working", 5.0, 20.0, 0)
    assert found.to_dict()["started_at"] == 100
    assert found.seconds_left is not None
    assert found.delete()
    assert JobStatus.find("c") is None


def test_times_of_the_gem_before_4_are_read(redis_client: redis.Redis) -> None:
    """Where both languages have run the job, the later ones count."""
    times = {"update_time": "300", "updated_at": "200", "working_at": "100", "started_at": "150"}
    redis_client.hset("sidekiq:status:a", mapping={"update_time": "200", "working_at": "100", "at": "1", "total": "2"})
    redis_client.hset("sidekiq:status:b", mapping=times)

    first, second = (JobStatus.find(jid).to_dict() for jid in ("a", "b"))

    assert (first["started_at"], first["updated_at"], first["ended_at"]) == (100, 200, None)
    assert (second["started_at"], second["updated_at"]) == (150, 300)
    assert JobStatus.find("a").seconds_left > 0


@pytest.mark.parametrize("options", [{"status": True}, {}])
def test_a_key_of_another_type_costs_no_job(
    options: dict[str, Any], redis_client: redis.Redis, caplog: pytest.LogCaptureFixture, work: Callable[[], None]
) -> None:
    """The push is refused with the key's name; a job that was pushed before runs and ends, with one line in the log."""
    ran = threading.Event()

    @sidekiq.job(name="Import", **options)
    def run() -> None:
        sidekiq.current_job().progress(at=1)  # type: ignore[union-attr]
        ran.set()

    if options:
        redis_client.set("sidekiq:status:" + "d" * 24, "x")
        with pytest.raises(sidekiq.SidekiqError, match="not a hash"):
            run.set(jid="d" * 24).perform_async()
    jid = run.perform_async()
    redis_client.delete(f"sidekiq:status:{jid}")
    redis_client.set(f"sidekiq:status:{jid}", "x")
    work()

    assert ran.wait(60)
    eventually(lambda: redis_client.get("stat:processed") == b"1")
    assert redis_client.get("stat:failed") is None
    assert redis_client.get(f"sidekiq:status:{jid}") == b"x"
    assert len([line for line in caplog.records if "status of jobs" in line.getMessage()]) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_status_that_is_overwritten_while_the_job_runs_keeps_no_job_in_flight(
    redis_client: redis.Redis, work: Callable[[], None], *, fails: bool
) -> None:
    """Otherwise its end would be refused until the key is deleted, and after a restart the job would run again."""

    @sidekiq.job(name="Import", status=True)
    def run() -> None:
        redis_client.delete(key)
        redis_client.set(key, "x")
        if fails:
            raise ValueError("no")

    jid = run.perform_async()
    key = f"sidekiq:status:{jid}"
    work()

    eventually(lambda: redis_client.get("stat:processed") == b"1")
    assert redis_client.zcard("retry") == fails
    assert redis_client.get(key) == b"x"


def test_a_time_limit_that_strikes_in_a_report_leaves_the_reports_of_others() -> None:
    """The lock of the reports that are written a moment later is free again."""
    runs = Runs(lambda payload: None, monotonic=lambda: 0.0)

    def run() -> Run:
        # Reports of a run that has just written wait for the thread.
        one = Run({"jid": "1"}, has_status=True, audiences=())
        one.next_at = 1.0
        return one

    runs.say(run(), {"at": 1})

    def others_report() -> None:
        report = threading.Thread(target=runs.say, args=(run(), {"at": 1}), daemon=True)
        report.start()
        report.join(10)
        assert not report.is_alive()

    def struck() -> None:
        runs.say(run(), {"at": 1})

    assert strike_everywhere(struck, others_report) > 1


def test_an_outage_costs_no_job(redis_client: redis.Redis, redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """What it reports meanwhile is written once Redis is back."""
    runs = Runs(lambda payload: None, monotonic=itertools.count().__next__)
    run = Run({"jid": "e" * 24}, has_status=True, audiences=())

    sidekiq.configure(redis_url="redis://127.0.0.1:1/0")
    runs.say(run, {"at": 1, "message": "one"})
    runs.say(run, {"at": 2})
    sidekiq.configure(redis_url=redis_url)
    runs.say(run, {"at": 3})

    assert status_of(redis_client, "e" * 24).items() >= {"at": "3", "message": "one"}.items()
    assert len([line for line in caplog.records if "status of jobs" in line.getMessage()]) == 1


def test_a_test_that_keeps_its_jobs_needs_no_redis() -> None:
    """Progress says nothing to anybody there."""

    @sidekiq.job(name="Import", status=True)
    def run() -> None:
        sidekiq.current_job().progress(at=1)  # type: ignore[union-attr]

    sidekiq.configure(redis_url="redis://127.0.0.1:1/0")
    with fake() as enqueued:
        run.perform_async()
        assert enqueued.drain() == 1


@pytest.mark.parametrize("value", ["inf", "1e999", "nan", "x", "9" * 5000])
def test_a_status_that_another_program_has_overwritten_is_shown(
    redis_client: redis.Redis, redis_url: str, value: str
) -> None:
    """What is no number counts as 0."""
    names = ("at", "total", "pct_complete", "started_at", "updated_at", "ended_at", "enqueued_at")
    redis_client.hset("sidekiq:status:c", mapping=dict.fromkeys(names, value))

    redis_client.set("sidekiq:status:d", "a string")

    [found] = JobStatus.all(pool=redis_url)

    assert (found.at, found.percent, found.started_at, found.seconds_left) == (0.0, 0, None, None)
    assert found.to_dict()["started_at"] == 0
