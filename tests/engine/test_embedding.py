"""A worker inside this very process."""

import gc
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.engine.upkeep.poller import Poller
from sidekiq_py.errors import ConfigError, RedisConnectionError
from sidekiq_py.registry import registry
from tests.support.documents import empty_program
from tests.support.in_flight import jobs_in_flight
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def configured(redis_url: str) -> Iterator[None]:
    """A program of its own on the emptied server."""
    with empty_program(redis_url):
        yield


def test_it_works_beside_the_program_until_it_is_stopped(redis_client: redis.Redis) -> None:
    """Jobs that the program enqueues run in its own process."""
    seen: list[tuple[str, str]] = []

    @sidekiq.job(name="Seen", queue="mine")
    def see(text: str) -> None:
        seen.append((text, threading.current_thread().name))

    worker = sidekiq.embed(queues=["mine,2", ("other", 1)])
    worker.start()
    see.perform_async("first")
    eventually(lambda: seen)
    worker.stop()
    see.perform_async("second")

    assert seen == [("first", "sidekiq.default/processor")]
    assert redis_client.llen("queue:mine") == 1


def test_iterable_jobs_pause_after_the_worker_s_limit() -> None:
    """So that one long job does not keep a thread from all others."""
    steps: list[Any] = []

    class Count(sidekiq.IterableJob, name="Count"):
        def build_enumerator(self, *, cursor: Any) -> Iterable[tuple[int, int]]:
            return self.array_enumerator(range(3), cursor)

        def each_iteration(self, item: int) -> None:
            steps.append(item)

        def on_stop(self) -> None:
            steps.append("stop")

    with sidekiq.embed(max_iteration_runtime_seconds=1e-9):
        Count.perform_async()
        eventually(lambda: steps.count("stop") >= 3)

    assert steps[:3] == ["stop", "stop", "stop"]


def test_an_item_that_takes_longer_than_a_stop_waits_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sidekiq warns of it since 7.3.3: each deploy may cut such an item off, and it starts over."""
    steps: list[Any] = []

    class Slow(sidekiq.IterableJob, name="Slow"):
        def build_enumerator(self, *, cursor: Any) -> Iterable[tuple[int, int]]:
            return self.array_enumerator(range(2), cursor)

        def each_iteration(self, item: int) -> None:
            steps.append(item)

        def on_complete(self) -> None:
            steps.append("complete")

    # A second later at each look.
    monkeypatch.setattr("sidekiq_py.jobs.iterable.monotonic", itertools.count().__next__)
    with caplog.at_level(logging.WARNING), sidekiq.embed(shutdown_timeout_seconds=0.5):
        Slow.perform_async()
        eventually(lambda: "complete" in steps)

    [first, _] = [line for line in caplog.messages if "An item took" in line]
    assert first.startswith("An item took 1.00 s, more than the 0.5 s that a stop of this worker waits for it.")


def test_it_works_in_a_directory_that_was_deleted(
    redis_client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an old release is after a deploy; the worker then only has no tag."""
    gone = tmp_path / "release"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    sidekiq.job(name="A")(lambda: None)

    with sidekiq.embed() as worker:
        eventually(lambda: redis_client.exists(worker.identity or ""))

        assert worker.config.tag == ""


def test_it_works_where_host_and_directory_have_names_that_are_not_utf_8(
    redis_client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would never beat, recover nothing, and leave scheduled jobs and retries where they are."""
    odd = os.fsdecode(b"caf\xe9")
    (tmp_path / odd).mkdir()
    monkeypatch.chdir(tmp_path / odd)
    monkeypatch.setenv("DYNO", odd)
    done: list[str] = []
    job = sidekiq.job(name="Later")(lambda: done.append("later"))
    job.perform_in(0.1)

    with sidekiq.embed() as worker:
        eventually(lambda: done)
        eventually(lambda: redis_client.exists(worker.identity or ""))

        facts = json.loads(redis_client.hget(worker.identity, "info"))
    assert (facts["hostname"], facts["tag"]) == ("caf?", "caf?")


def test_a_tag_that_is_not_utf_8_does_not_keep_the_heartbeat_back(redis_client: redis.Redis) -> None:
    """The command's tag is the name of the directory, or what follows `-g`. Its workers never beat."""
    sidekiq.job(name="Nothing")(print)

    with sidekiq.embed(tag=os.fsdecode(b"caf\xe9")) as worker:
        eventually(lambda: redis_client.exists(worker.identity or ""))

        assert json.loads(redis_client.hget(worker.identity, "info"))["tag"] == "caf?"


def test_one_after_the_other_leaves_no_descriptors_open(redis_client: redis.Redis) -> None:
    """A program may start and stop workers for as long as it lives."""

    def open_after_another() -> int:
        with sidekiq.embed(concurrency=1) as worker:
            eventually(lambda worker=worker: redis_client.exists(worker.identity))
        del worker
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    sidekiq.job(name="Any")(print)
    first = open_after_another()

    def are_closed() -> bool:
        # Threads of a worker that has stopped may last a moment longer.
        return open_after_another() <= first

    eventually(are_closed)


def test_it_says_that_it_is_embedded_and_takes_no_signals(redis_client: redis.Redis) -> None:
    """The Web UI then offers no buttons, and Ctrl-C belongs to the program."""
    sidekiq.job(name="Any")(print)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    with sidekiq.embed(concurrency=3) as worker:
        info = json.loads(eventually(lambda: redis_client.hget(worker.identity, "info")))

        assert (info["embedded"], info["concurrency"], info["queues"]) == (True, 3, ["default"])
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_starting_and_stopping_may_be_repeated() -> None:
    """Web servers call their hooks more than once."""
    ran = threading.Event()
    sidekiq.job(name="Any")(ran.set)
    worker = sidekiq.embed()

    worker.stop()
    worker.start()
    worker.start()
    first = worker.identity
    worker.stop()
    worker.stop()
    worker.start()
    second = worker.identity
    registry.find("Any").job.perform_async()  # type: ignore[union-attr]
    ran.wait(5)
    worker.stop()

    assert ran.is_set()
    assert first != second
    assert worker.identity is None


def test_quiet_lets_it_fetch_no_more(redis_client: redis.Redis) -> None:
    """Before a deploy the program may let its jobs run out."""
    ran = threading.Event()
    job = sidekiq.job(name="Any")(ran.set)

    with sidekiq.embed() as worker:
        worker.quiet()
        job.perform_async()

        eventually(lambda: redis_client.hget(worker.identity, "quiet") == b"true")
    assert redis_client.llen("queue:default") == 1
    assert not ran.is_set()


def test_a_job_that_a_stop_interrupts_does_not_start_here_again(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Each start would count as one more execution. On a busy machine a stop may be held up anywhere."""
    ran = threading.Event()

    class Walk(sidekiq.IterableJob, name="Walk"):
        def build_enumerator(self, *, cursor: Any) -> Iterable[tuple[int, int]]:
            return self.array_enumerator(itertools.count(), cursor)

        def each_iteration(self, item: int) -> None:
            ran.set()
            threading.Event().wait(0.01)

    state = f"it-{Walk.perform_async()}"

    def has_left_off(record: logging.LogRecord) -> bool:
        if record.getMessage() == "Fetching no more jobs":
            eventually(
                lambda: redis_client.llen("queue:default") == 1 or redis_client.hget(state, "ex") not in (None, b"1")
            )
        return True

    caplog.set_level(logging.INFO, "sidekiq")
    with sidekiq.embed() as worker:
        assert ran.wait(60)
        assert worker._launcher is not None
        [manager] = worker._launcher.parts.managers
        eventually(lambda: manager.fetcher.awaits("default"))
        logging.getLogger("sidekiq").addFilter(has_left_off)
        try:
            worker.quiet()
        finally:
            logging.getLogger("sidekiq").removeFilter(has_left_off)

    assert redis_client.hget(state, "ex") == b"1"
    assert redis_client.llen("queue:default") == 1


def test_a_busy_job_is_cut_off_at_the_deadline_and_goes_back(redis_client: redis.Redis) -> None:
    """The caller chooses how long its own end may take."""
    started = threading.Event()

    @sidekiq.job(name="Endless")
    def endless() -> None:
        started.set()
        while True:
            threading.Event().wait(0.01)

    worker = sidekiq.embed()
    worker.start()
    endless.perform_async()
    started.wait(5)
    worker.stop(timeout_seconds=0.1)

    assert redis_client.llen("queue:default") == 1


FORKS = """
import os, sys, threading
import sidekiq_py as sidekiq
from sidekiq_py import api
sidekiq.configure(redis_url=sys.argv[1], sidekiq_version="8")
started, goes_on = threading.Event(), threading.Event()

@sidekiq.job(name="Long")
def long():
    started.set()
    goes_on.wait(60)

worker = sidekiq.embed()
worker.start()
long.perform_async()
started.wait(60)
child = os.fork()
if child == 0:
    worker.stop(timeout_seconds=0)
    worker.start()
    print("child", worker.identity, flush=True)
    worker.stop(timeout_seconds=0)
    os._exit(0)
os.waitpid(child, 0)
print("parent", worker.identity, api.ProcessSet().find(worker.identity) is not None, flush=True)
goes_on.set()
worker.stop()
"""


def test_a_forked_child_leaves_its_parents_worker_alone_and_may_start_its_own(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """As with gunicorn --preload: a stop in the child unregistered the parent's worker, and a start did nothing."""
    ran = subprocess.run(
        [sys.executable, "-c", FORKS, redis_url], capture_output=True, text=True, check=True, timeout=60
    )

    (_, childs), (_, parents, is_registered) = (line.split() for line in ran.stdout.splitlines())
    assert childs.split(":")[1] != parents.split(":")[1]
    assert is_registered == "True"
    assert redis_client.llen("queue:default") == 0


def test_without_jobs_it_does_not_start() -> None:
    """It would fetch what it cannot run."""
    with pytest.raises(ConfigError, match="no job is declared"):
        sidekiq.embed().start()


def test_settings_are_those_of_a_worker() -> None:
    """Anything that a `Config` knows; a slip is named."""
    assert sidekiq.embed(shutdown_timeout_seconds=8, fetcher="basic").config.shutdown_timeout_seconds == 8
    assert sidekiq.embed(labels={"web"}).config.labels == {"web"}

    with pytest.raises(ConfigError, match="no setting 'colour'; it takes concurrency, queues and the fields of Config"):
        sidekiq.embed(colour="red")
    with pytest.raises(ConfigError, match=r"embed has no setting 'concurency'; did you mean concurrency\?"):
        sidekiq.embed(concurency=2)
    with pytest.raises(ConfigError, match="concurrency '2'; give a whole number"):
        sidekiq.embed(concurrency="2")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="queues is None; give a list of names"):
        sidekiq.embed(queues=None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="fetcher is 'redis'; it must be 'reliable' or 'basic'"):
        sidekiq.embed(fetcher="redis")
    with pytest.raises(ConfigError, match="redis is of the type str; give RedisSettings"):
        sidekiq.embed(redis="redis://localhost/0")
    with pytest.raises(ConfigError, match=r"labels is 'web'; give a tuple, such as \('web',\)"):
        sidekiq.embed(labels="web")
    for retries in (-1, 2.5, True, "3"):
        with pytest.raises(ConfigError, match=f"max_retries is {retries!r}; it must be a whole number, 0 or more"):
            sidekiq.embed(max_retries=retries)
    with pytest.raises(ConfigError, match="tag is 5; give a string"):
        sidekiq.embed(tag=5)


def test_queues_may_be_given_with_their_weights_as_in_a_sidekiq_yml() -> None:
    """A list of names and weights, or a mapping."""
    [listed] = sidekiq.embed(queues=["critical,3", ("low", 1)]).config.capsules
    [mapped] = sidekiq.embed(queues={"critical": 3, "low": 1}).config.capsules

    assert listed.queues == mapped.queues
    assert mapped.weights == {"critical": 3, "low": 1}


@pytest.mark.parametrize("setting", [{"processes": 2}, {"probe_port": 7433}, {"max_memory_mb": 400}])
def test_a_setting_that_only_counts_for_a_process_of_its_own_is_refused(setting: dict[str, Any]) -> None:
    """It would be ignored without a word: no children, no probes."""
    with pytest.raises(ConfigError, match=f"'{next(iter(setting))}', which is for a process of its own"):
        sidekiq.embed(**setting)


def test_capsules_of_another_kind_are_named() -> None:
    """A mapping, as in `sidekiq.yml`, is none."""
    with pytest.raises(ConfigError, match="capsules has 'single'; give a tuple of CapsuleConfig"):
        sidekiq.embed(capsules={"single": {"queues": ["imports"]}})


def test_a_redis_out_of_reach_is_told_at_the_start(new_redis_server: Callable[..., RedisServer]) -> None:
    """And the worker may be started again once it is there."""
    sidekiq.job(name="Any")(lambda: None)
    server = new_redis_server()
    program.configure(redis_url=server.url)
    server.stop()
    worker = sidekiq.embed()

    with pytest.raises(RedisConnectionError):
        worker.start()

    server.start()
    worker.start()
    worker.stop()


def test_a_worker_that_cannot_start_all_its_threads_leaves_none_behind(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may limit their number. The threads that had started took jobs, and no `stop` could end them."""
    seen: list[int] = []

    @sidekiq.job(name="Seen")
    def see(number: int) -> None:
        seen.append(number)

    def refuse(poller: Poller) -> None:
        see.perform_async(1)
        eventually(lambda: seen)
        raise RuntimeError("can't start new thread")

    worker, before = sidekiq.embed(), set(threading.enumerate())
    with monkeypatch.context() as patch:
        patch.setattr(Poller, "start", refuse)
        with pytest.raises(RuntimeError, match="thread"):
            worker.start()

    assert set(threading.enumerate()) <= before
    assert not redis_client.exists("processes", "sidekiq_py:owners")
    with worker:
        see.perform_async(2)
        eventually(lambda: seen == [1, 2])


def test_a_worker_loads_nothing_that_only_some_programs_need(redis_url: str, tmp_path: Path) -> None:
    """The data API, YAML, time zones and timetables come with the first job that wants them."""
    code = (
        "import sys, orjson, redis\n"
        "theirs = set(sys.modules)\n"
        "import sidekiq_py as sidekiq\n"
        f"sidekiq.configure(redis_url={redis_url!r}, sidekiq_version='8')\n"
        "sidekiq.job(name='A')(lambda: None)\n"
        "worker = sidekiq.embed(concurrency=1)\n"
        "worker.start()\n"
        "worker.stop()\n"
        "print(*sys.modules.keys() - theirs, sep='\\n')\n"
    )

    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    loaded = set(ran.stdout.split())
    assert "sidekiq_py.extensions.batches.extension" in loaded
    of_few = {f"sidekiq_py.extensions.{name}" for name in ("batches.audit", "batches.state", "periodic.ticks")}
    assert not loaded & {"sidekiq_py.api", "yaml", "zoneinfo", *of_few}


def test_an_async_job_ends_after_the_main_thread_of_its_program_has(
    redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    """Other threads keep the program alive. From then on Python's thread pools take no calls, and raise."""
    code = (
        "import threading, time\n"
        "import sidekiq_py as sidekiq\n"
        f"sidekiq.configure(redis_url={redis_url!r}, sidekiq_version='8')\n"
        "@sidekiq.job(name='Fails')\n"
        "async def fail():\n"
        "    raise ValueError('failed')\n"
        "worker = sidekiq.embed(concurrency=1)\n"
        "worker.start()\n"
        "has_ended = threading.Event()\n"
        "def serve():\n"
        "    while threading.main_thread().is_alive():\n"
        "        time.sleep(0.01)\n"
        "    fail.perform_async()\n"
        "    has_ended.wait(30)\n"
        "    worker.stop(timeout_seconds=0)\n"
        "sidekiq.on_error(lambda error, context: has_ended.set())\n"
        "threading.Thread(target=serve).start()\n"
    )

    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert redis_client.zcard("retry") == 1
    assert not jobs_in_flight(redis_client)
