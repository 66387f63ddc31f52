"""A child with one job at a time runs it in its main thread: signals interrupt it, and what needs that thread works."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from sidekiq_py import Client
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

PROGRAM = """
import asyncio, logging, os, pathlib, signal, threading, time
import sidekiq_py as sidekiq
from sidekiq_py.errors import Shutdown, SoftTimeLimitError

here = pathlib.Path(__file__).parent

def note(name, text):
    (here / "writing").write_text(text)
    (here / "writing").rename(here / name)

@sidekiq.job(name="Sleep", timeout=0.3)
def sleep():
    began = time.monotonic()
    try:
        time.sleep(600)
    except SoftTimeLimitError:
        note("slept", str(time.monotonic() - began))

@sidekiq.job(name="Read")
def read():
    (here / "reading").touch()
    try:
        os.read(os.pipe()[0], 1)
    except Shutdown:
        note("read", "Shutdown")
        raise

@sidekiq.job(name="Alarm")
def alarm():
    rung = []
    signal.signal(signal.SIGALRM, lambda *_: rung.append("rung"))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    while not rung:
        time.sleep(0.01)
    note("alarm", rung[0])

@sidekiq.job(name="Loop")
def loop():
    async def wait():
        heard = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, heard.set)
        asyncio.get_running_loop().call_soon(heard.set)
        await heard.wait()
        return "done"
    note("loop", asyncio.run(wait()))

@sidekiq.job(name="Serve")
def serve():
    async def wait():
        asyncio.get_running_loop().add_signal_handler(signal.SIGALRM, lambda: None)
        (here / "serving").touch()
        await asyncio.sleep(600)
    asyncio.run(wait())

@sidekiq.job(name="LoopLater")
def loop_later(name):
    async def wait():
        asyncio.get_running_loop().add_signal_handler(signal.Signals[name], print)
    (here / "started").touch()
    time.sleep(1)
    asyncio.run(wait())
    (here / "over").touch()

@sidekiq.job(name="Handle")
def handle(action):
    signal.signal(signal.SIGTERM, getattr(signal, action))
    note("handled", action)

@sidekiq.job(name="Nap")
def nap():
    (here / "napping").touch()
    time.sleep(2)
    (here / "slept well").touch()

quick_ones = []

@sidekiq.job(name="Quick")
def quick():
    quick_ones.append(1)
    if len(quick_ones) == 500:
        (here / "many").touch()

@sidekiq.job(name="BreakLog")
def break_log():
    class Broken(logging.Handler):
        def emit(self, record):
            raise RuntimeError("on purpose")
    logging.getLogger().addHandler(Broken())
    (here / "broken").touch()

@sidekiq.job(name="Where")
def where():
    note("where", threading.current_thread().name)
"""


class Worker:
    """A parent of one child with the jobs above."""

    def __init__(self, folder: Path, redis_url: str, concurrency: int) -> None:
        self._folder = folder
        (folder / "main_thread_jobs.py").write_text(PROGRAM)
        self._client = Client(redis_url, sidekiq_version="7")
        flags = ["--processes", "1", "-c", str(concurrency), "-t", "1"]
        self.process = WorkerProcess("main_thread_jobs", redis_url=redis_url, arguments=flags, python_path=[folder])

    def push(self, name: str, *arguments: str) -> None:
        """Enqueue one of the jobs."""
        self._client.push({"class": name, "args": list(arguments)})

    def push_many(self, name: str, count: int) -> None:
        """Enqueue one of the jobs so often."""
        self._client.push_bulk({"class": name, "args": [[]] * count})

    def has(self, name: str) -> bool:
        """A job has made this file."""
        return (self._folder / name).exists()

    def noted(self, name: str) -> str:
        """What a job has written, once it has."""
        eventually(lambda: self.has(name))
        return (self._folder / name).read_text()


@pytest.fixture
def start(tmp_path: Path, redis_url: str) -> Iterator[Callable[[int], Worker]]:
    """`start(concurrency)` gives a worker that is ready."""
    with ExitStack() as exits:

        def begin(concurrency: int) -> Worker:
            worker = Worker(tmp_path, redis_url, concurrency)
            exits.callback(worker.process.stop, 5)
            exits.callback(worker.process.print_log_tail)
            worker.process.start().wait_until_ready()
            return worker

        yield begin


def assert_term_interrupts_a_job(worker: Worker, redis_client: redis.Redis) -> None:
    """At the deadline; the job goes back to its queue, and the process ends in order."""
    worker.push("Read")
    eventually(lambda: worker.has("reading"))

    worker.process.send_signal(signal.SIGTERM)

    assert worker.process.wait(60) == 0
    assert worker.noted("read") == "Shutdown"
    assert redis_client.llen("queue:default") == 1


def test_a_soft_limit_interrupts_a_sleep(start: Callable[[int], Worker]) -> None:
    """Long before the sleep would end; the next job is left alone."""
    worker = start(1)

    worker.push("Sleep")

    assert float(worker.noted("slept")) < 10
    worker.push("Where")
    assert worker.noted("where") == "MainThread"


def test_shutdown_interrupts_a_blocked_system_call(start: Callable[[int], Worker], redis_client: redis.Redis) -> None:
    """A read that nothing else would end."""
    worker = start(1)

    assert_term_interrupts_a_job(worker, redis_client)
    assert "did not stop on Shutdown" not in worker.process.log


def test_a_job_may_handle_signals(start: Callable[[int], Worker]) -> None:
    """Which Python allows in the main thread alone."""
    worker = start(1)

    worker.push("Alarm")

    assert worker.noted("alarm") == "rung"


@pytest.mark.parametrize("action", ["SIG_IGN", "SIG_DFL"])
def test_what_a_job_does_to_term_ends_with_the_job(
    start: Callable[[int], Worker], redis_client: redis.Redis, action: str
) -> None:
    """Otherwise TERM would kill the next job, or the worker would not stop until its parent kills it."""
    worker = start(1)
    worker.push("Handle", action)
    assert worker.noted("handled") == action
    assert_term_interrupts_a_job(worker, redis_client)


def test_a_job_may_run_an_event_loop_that_handles_signals(start: Callable[[int], Worker]) -> None:
    """When it has ended the worker heeds TERM as before, although asyncio has reset its handler."""
    worker = start(1)

    worker.push("Loop")

    assert worker.noted("loop") == "done"
    worker.push("Where")
    assert worker.noted("where") == "MainThread"
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(60) == 0
    assert "was killed by SIGTERM" not in worker.process.log


def test_term_is_heard_in_a_drain_after_a_job_has_run_an_event_loop(
    start: Callable[[int], Worker], redis_client: redis.Redis
) -> None:
    """Though the thread never waits for a job, so that it looks after its handlers only now and then."""
    worker = start(1)
    worker.push("Loop")
    worker.push_many("Quick", 200_000)
    eventually(lambda: worker.has("many"))

    worker.process.send_signal(signal.SIGTERM)

    assert worker.process.wait(60) == 0
    assert "was killed by SIGTERM" not in worker.process.log
    assert redis_client.llen("queue:default") > 0


def test_a_job_that_came_with_one_that_ran_an_event_loop_is_not_killed(
    start: Callable[[int], Worker], redis_client: redis.Redis
) -> None:
    """TERM waits for it, although asyncio has left the system's own action for TERM behind."""
    worker = start(1)
    worker.push_many("Quick", 200_000)
    eventually(lambda: worker.has("many"))
    # Amid a drain jobs come in batches; who is pushed at this end is fetched next, the last one first.
    names = ("Read", "Loop")
    jobs = [{"class": name, "args": [], "jid": f"{number:024}"} for number, name in enumerate(names)]
    redis_client.rpush("queue:default", *map(json.dumps, jobs))
    eventually(lambda: worker.has("reading"))

    worker.process.send_signal(signal.SIGTERM)

    assert worker.process.wait(60) == 0
    assert "was killed by SIGTERM" not in worker.process.log
    assert (worker.noted("loop"), worker.noted("read")) == ("done", "Shutdown")


def test_term_is_heard_while_redis_hangs_after_a_job_has_run_an_event_loop(
    tmp_path: Path, new_redis_server: Callable[..., RedisServer]
) -> None:
    """The fetch after the job waits for a reply then; the job is not run again."""
    server = new_redis_server()
    worker = Worker(tmp_path, server.url, 1)
    with worker.process:
        worker.process.wait_until_ready()
        # The second one is there at once, so the thread looks for a third without waiting.
        jobs = [
            {"class": "LoopLater", "args": ["SIGTERM"], "jid": f"{1:024}"},
            {"class": "Where", "args": [], "jid": f"{2:024}"},
        ]
        server.client().rpush("queue:default", *map(json.dumps, jobs))
        eventually(lambda: worker.has("started"))
        with server.paused():
            eventually(lambda: worker.has("over"))
            time.sleep(0.5)
            worker.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)

        assert worker.process.wait(60) == 0
        assert "was killed by" not in worker.process.log
        assert server.client().get("stat:processed") == b"2"


def test_term_is_heard_when_the_last_job_of_a_quiet_worker_has_run_an_event_loop(
    start: Callable[[int], Worker], redis_client: redis.Redis
) -> None:
    """No fetch and no wait follows that job."""
    worker = start(1)
    worker.push("LoopLater", "SIGTERM")
    eventually(lambda: worker.has("started"))
    worker.process.send_signal(signal.SIGTSTP)
    eventually(lambda: worker.has("over"))
    time.sleep(0.5)

    worker.process.send_signal(signal.SIGTERM)

    assert worker.process.wait(60) == 0
    assert "was killed by" not in worker.process.log
    assert redis_client.get("stat:processed") == b"1"


def test_a_signal_for_the_worker_does_not_kill_a_job_after_one_that_handled_it(
    start: Callable[[int], Worker], redis_client: redis.Redis
) -> None:
    """The next job was waiting already, so that the thread did not have to wait in between."""
    worker = start(1)
    worker.push("LoopLater", "SIGUSR1")
    worker.push("Nap")
    eventually(lambda: worker.has("napping"))

    worker.process.send_signal(signal.SIGUSR1)

    eventually(lambda: worker.has("slept well"))
    assert "was killed by" not in worker.process.log
    assert "Fetching no more jobs" in worker.process.log


def test_term_is_heard_while_a_job_runs_an_event_loop(
    start: Callable[[int], Worker], redis_client: redis.Redis
) -> None:
    """Which takes the numbers of signals for itself."""
    worker = start(1)
    worker.push("Serve")
    eventually(lambda: worker.has("serving"))

    worker.process.send_signal(signal.SIGTERM)

    # The parent would kill it after 11 seconds.
    assert worker.process.wait(60) == 0
    assert "was killed by" not in worker.process.log
    assert redis_client.llen("queue:default") == 1


def test_a_child_ends_at_term_although_its_log_is_broken(start: Callable[[int], Worker]) -> None:
    """The thread that reads signals fails at its first line, and could not log that either: the child heard nothing."""
    worker = start(1)
    worker.push("BreakLog")
    eventually(lambda: worker.has("broken"))

    worker.process.send_signal(signal.SIGTERM)

    assert worker.process.wait(60) == 0
    assert "killed by SIGKILL" not in worker.process.log


def test_a_child_with_several_jobs_at_a_time_runs_them_in_threads(start: Callable[[int], Worker]) -> None:
    """Its main thread waits for signals."""
    worker = start(2)

    worker.push("Where")

    assert worker.noted("where") == "sidekiq.default/processor"
