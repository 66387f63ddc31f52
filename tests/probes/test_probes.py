"""HTTP probes of real workers: when they are good, when not, and what they never ask."""

import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

import redis
from prometheus_client.parser import text_string_to_metric_families as parse

import sidekiq_py as sidekiq
from sidekiq_py import program
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess, _process_tree

JOBS = """
import ctypes, os, time
import sidekiq_py as sidekiq

@sidekiq.job(name="Fine")
def fine(): ...

@sidekiq.job(name="Boom", retry=False)
def boom():
    raise ValueError("boom")

@sidekiq.job(name="Long")
def long():
    time.sleep(600)

@sidekiq.job(name="Crash")
def crash():
    os._exit(1)

@sidekiq.job(name="Grip")
def grip():
    ctypes.PyDLL(None).sleep(600)
"""

Start = Callable[..., WorkerProcess]


class Probes:
    """Asks one worker."""

    def __init__(self) -> None:
        self.port = free_port()

    def ask(self, page: str, *, seconds: float = 10) -> tuple[int, str]:
        """Status and text; 0 where nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{page}", timeout=seconds) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def is_good(self, page: str) -> bool:
        """Whether it answers 200."""
        return self.ask(page)[0] == 200

    def counts(self) -> dict[tuple[str, str], float]:
        """Name and class to value."""
        status, text = self.ask("metrics")
        assert status == 200, text
        samples = [sample for family in parse(text) for sample in family.samples]
        labelled = [(sample.labels.get("worker", ""), sample) for sample in samples if "le" not in sample.labels]
        return {(sample.name, job_class): sample.value for job_class, sample in labelled}


@pytest.fixture
def probes() -> Probes:
    """On a port of its own."""
    return Probes()


@pytest.fixture
def start(start_worker: Start, probes: Probes, tmp_path: Path, redis_url: str) -> Start:
    """Starts a worker with probes: `start("--processes", "2")`."""
    tmp_path.joinpath("probed_jobs.py").write_text(JOBS)
    program.reset()
    program.configure(redis_url=redis_url, sidekiq_version="7")

    def start(*arguments: str, **options: object) -> WorkerProcess:
        flags = ["--probe-port", str(probes.port), "-c", "1", *arguments]
        return start_worker("probed_jobs", arguments=flags, **options)

    return start


def push(job_class: str, url: str | None = None) -> None:
    """One job."""
    sidekiq.Client(url).push({"class": job_class, "args": [], "retry": False})


FORMS = [(), ("--processes", "2")]


@pytest.mark.parametrize("arguments", FORMS)
def test_a_worker_is_live_and_ready_and_tells_what_it_ran(start: Start, probes: Probes, arguments: tuple[str]) -> None:
    """One port for one process tree."""
    start(*arguments)
    for job_class in ("Fine", "Fine", "Boom"):
        push(job_class)

    assert eventually(lambda: probes.is_good("ready"))
    assert probes.ask("live") == (200, "live\n")
    eventually(lambda: probes.counts().get(("sidekiq_jobs_executed_total", "Boom")))
    eventually(lambda: probes.counts().get(("sidekiq_jobs_success_total", "Fine")) == 2)
    assert probes.counts()["sidekiq_jobs_failed_total", "Boom"] == 1
    assert probes.counts()["sidekiq_job_latency_seconds_count", "Fine"] == 2


@pytest.mark.kill
@pytest.mark.parametrize("arguments", FORMS)
def test_a_restart_is_seen_even_if_no_job_has_run(start: Start, probes: Probes, arguments: tuple[str]) -> None:
    """A worker that dies before it has finished a job has no counter that could be reset."""
    name = ("sidekiq_worker_start_time_seconds", "")
    worker = start(*arguments)
    eventually(lambda: probes.is_good("ready"))
    first = probes.counts()

    worker.kill()
    eventually(lambda: not probes.is_good("live"))
    start(*arguments)
    eventually(lambda: probes.is_good("ready"))

    assert first.keys() == {name}
    assert probes.counts()[name] > first[name]


@pytest.mark.parametrize("arguments", FORMS)
def test_a_worker_without_redis_is_live_and_not_ready(
    start: Start, probes: Probes, new_redis_server: Callable[..., RedisServer], arguments: tuple[str]
) -> None:
    """To restart it would bring Redis back no sooner."""
    server = new_redis_server()
    start(*arguments, redis_url=server.url)
    eventually(lambda: probes.is_good("ready"))

    server.kill()

    eventually(lambda: not probes.is_good("ready"))
    assert probes.is_good("live")
    server.start()
    eventually(lambda: probes.is_good("ready"))


@pytest.mark.parametrize("arguments", FORMS)
def test_a_long_job_is_nobodys_fault(
    start: Start, probes: Probes, redis_client: "redis.Redis[bytes]", arguments: tuple[str]
) -> None:
    """All threads are busy, the worker is live, and ready for what comes after."""
    start(*arguments, "-t", "1")
    push("Long")
    push("Long")
    eventually(lambda: redis_client.llen("queue:default") == (0 if arguments else 1))

    assert probes.is_good("live")
    # A job may start just before the worker has.
    eventually(lambda: probes.is_good("ready"))


def test_a_quiet_worker_is_live_and_not_ready(start: Start, probes: Probes) -> None:
    """It finishes what it has, and takes nothing more."""
    worker = start()
    worker.send_signal(signal.SIGTSTP)

    eventually(lambda: probes.ask("ready") == (503, "it takes no more jobs\n"))
    assert probes.is_good("live")


def test_a_job_that_keeps_the_interpreter_leaves_nobody_to_answer(
    start: Start, probes: Probes, redis_client: "redis.Redis[bytes]"
) -> None:
    """A hanging worker is never green: its probe runs out of time."""
    worker = start()
    push("Grip")
    eventually(lambda: redis_client.llen("queue:default") == 0)

    eventually(lambda: probes.ask("live", seconds=0.5)[0] == 0)
    worker.kill()


def children(worker: WorkerProcess) -> list[int]:
    """The pids of those that run jobs."""
    return [int(identity.split(":")[1]) for identity in worker.identities()]


def test_a_child_that_stands_still_makes_the_worker_not_live(start: Start, probes: Probes) -> None:
    """It gives no answer, and the reason says which one it is."""
    worker = start("--processes", "2")
    worker.wait_until_ready(processes=2)
    eventually(lambda: probes.is_good("live"))
    [frozen, _] = children(worker)

    def asked_while_frozen() -> tuple[int, str]:
        os.kill(frozen, signal.SIGSTOP)
        found = probes.ask("live", seconds=30)
        os.kill(frozen, signal.SIGCONT)
        return found

    # A child stands in Redis a moment before it has told its parent that it has started, and is not asked until then.
    eventually(lambda: asked_while_frozen() == (503, f"{frozen}: gives no answer\n"))
    eventually(lambda: probes.is_good("live"))


def test_a_parent_that_stands_still_makes_the_worker_not_live(start: Start, probes: Probes) -> None:
    """Nobody would replace a child that dies."""
    worker = start("--processes", "1")
    eventually(lambda: probes.is_good("live"))

    worker.freeze()
    status, text = probes.ask("live", seconds=30)
    worker.thaw()

    assert (status, text) == (503, f"the parent {worker.pid} gives no answer\n")


def test_counters_do_not_fall_when_a_child_is_replaced(start: Start, probes: Probes) -> None:
    """What it has run before is kept beside the children."""
    worker = start("--processes", "1")
    for _ in range(5):
        push("Fine")
    eventually(lambda: probes.counts().get(("sidekiq_jobs_success_total", "Fine")) == 5)
    [first] = children(worker)

    worker.send_signal(signal.SIGHUP)
    eventually(lambda: children(worker) and not Path(f"/proc/{first}").exists())
    push("Fine")

    eventually(lambda: probes.counts().get(("sidekiq_jobs_success_total", "Fine")) == 6)


def test_the_process_that_answers_is_replaced_when_it_dies(start: Start, probes: Probes) -> None:
    """The port is free again for the next one."""
    worker = start("--processes", "1")
    eventually(lambda: probes.is_good("ready"))
    [other] = _process_tree(worker.pid) - {worker.pid, *children(worker)}

    os.kill(other, signal.SIGKILL)

    eventually(lambda: f"the sidecar process {other} ended" in worker.log)
    eventually(lambda: probes.is_good("ready"))


def test_counters_do_not_fall_when_the_process_that_answers_is_killed(start: Start, probes: Probes) -> None:
    """If they fell to what the running child has, Prometheus would take all of that for new."""
    success, started = ("sidekiq_jobs_success_total", "Fine"), ("sidekiq_worker_start_time_seconds", "")
    worker = start("--processes", "1")
    for _ in range(5):
        push("Fine")
    eventually(lambda: probes.counts().get(success) == 5)
    [first] = children(worker)
    worker.send_signal(signal.SIGHUP)
    eventually(lambda: children(worker) and not Path(f"/proc/{first}").exists())
    push("Fine")
    eventually(lambda: probes.counts().get(success) == 6)
    at = probes.counts()[started]
    [other] = _process_tree(worker.pid) - {worker.pid, *children(worker)}

    os.kill(other, signal.SIGKILL)
    eventually(lambda: f"the sidecar process {other} ended" in worker.log)
    eventually(lambda: probes.is_good("ready"))

    counts = eventually(probes.counts)
    assert (counts.get(success), counts[started]) == (6, at)


@pytest.mark.usefixtures("start")
def test_a_port_in_use_is_said_at_the_start(
    redis_url: str, tmp_path: Path, new_redis_server: Callable[..., RedisServer]
) -> None:
    """A worker whose probes nobody could reach would be killed by its platform, again and again."""
    taken = new_redis_server()
    for arguments in FORMS:
        worker = WorkerProcess(
            "probed_jobs",
            redis_url=redis_url,
            arguments=["--probe-port", str(taken.port), *arguments],
            python_path=[tmp_path],
        ).start()

        assert worker.wait(60) == 2
        assert f"the probe port {taken.port} cannot be used: Address already in use; give another" in worker.log
        assert "as in --probe-port" not in worker.log, "an example may be the very port that is taken"


def test_pages_that_do_not_exist_name_those_that_do(start: Start, probes: Probes) -> None:
    """Also for a query string and another method."""
    start()

    assert probes.ask("") == (404, "there are /live, /ready, /metrics\n")
    assert probes.ask("live?verbose=1")[0] == 200
