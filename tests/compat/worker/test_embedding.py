"""Workers that a program starts in a thread and stops by a call, as OpenTelemetry's own tests do."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, bootsteps
from sidekiq_celery.exceptions import CeleryWarning
from sidekiq_celery.worker import WorkController

from tests.support.celery_program import environment

_SECONDS = 30


@pytest.fixture
def app(redis_url: str) -> Celery:
    """An app whose tasks the workers of this process run."""
    return Celery("embedding", broker=redis_url, backend=redis_url)


@contextmanager
def running(app: Celery, **options: Any) -> Iterator[tuple[WorkController, threading.Thread]]:
    """A worker in a thread, and the thread."""
    worker = WorkController(app=app, **{"pool": "solo", **options})
    thread = threading.Thread(target=worker.start)
    thread.start()
    try:
        yield worker, thread
    finally:
        worker.terminate()
        thread.join(_SECONDS)
        assert not thread.is_alive()


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_a_worker_in_a_thread_runs_tasks_until_it_is_stopped(app: Celery, pool: str) -> None:
    """It needs no signal, and a second one may follow in the same process."""

    @app.task
    def add(x, y):
        return x + y

    for _ in range(2):
        with running(app, pool=pool) as (worker, thread):
            assert add.delay(1, 2).get(timeout=_SECONDS) == 3
            worker.stop()
            thread.join(_SECONDS)

            assert not thread.is_alive()
            assert worker.exitcode == 0


def test_a_stop_before_the_start_is_not_lost(app: Celery) -> None:
    """The thread may not have come far when its program ends."""
    worker = WorkController(app=app, pool="solo")
    worker.stop(exitcode=3)
    thread = threading.Thread(target=worker.start)
    thread.start()
    thread.join(_SECONDS)

    assert not thread.is_alive()
    assert worker.exitcode == 3


def test_terminate_before_the_start_does_not_wait_for_tasks_either(app: Celery) -> None:
    """A task may start before the worker can be stopped."""
    worker = WorkController(app=app, pool="solo")

    worker.terminate()

    assert worker.state.should_stop
    assert worker.state.should_terminate


def test_terminate_puts_a_running_task_back(app: Celery, redis_client: redis.Redis) -> None:
    """`stop` would wait for it."""
    started = threading.Event()

    @app.task
    def wait_for_ever():
        started.set()
        while True:
            time.sleep(0.01)

    with running(app, pool="threads") as (worker, thread):
        wait_for_ever.delay()
        assert started.wait(_SECONDS)
        worker.terminate()
        thread.join(_SECONDS)

        assert not thread.is_alive()
        assert redis_client.llen("queue:celery") == 1


def test_the_pool_prefork_becomes_threads_with_a_warning(app: Celery) -> None:
    """A process with other threads is not forked."""
    app.task(name="pid")(os.getpid)
    worker = WorkController(app=app, pool="prefork", concurrency=1)
    warned: list[Any] = []

    def start() -> None:
        with pytest.warns(CeleryWarning, match="name 'threads' or 'solo'") as caught:
            worker.start()
        warned.extend(caught)

    thread = threading.Thread(target=start)
    thread.start()
    try:
        assert app.tasks["pid"].delay().get(timeout=_SECONDS) == os.getpid()
    finally:
        worker.stop()
        thread.join(_SECONDS)
    assert warned


def test_a_bootstep_that_fails_ends_the_worker_and_not_the_program(app: Celery) -> None:
    """In a worker that has the process to itself, it ends both."""

    class Failing(bootsteps.StartStopStep):
        def start(self, parent: Any) -> None:
            raise RuntimeError("cannot start")

    app.steps["worker"].add(Failing)
    with running(app) as (worker, thread):
        thread.join(_SECONDS)

        assert not thread.is_alive()
        assert worker.exitcode == 1


def ended(program: Path, text: str, redis_url: str) -> "subprocess.CompletedProcess[str]":
    """Run a program with the task `add` and the app, and wait for its end."""
    program.write_text(
        "import sys, threading\n"
        "from sidekiq_celery import Celery\n"
        f"app = Celery('proj', broker={redis_url!r}, backend={redis_url!r})\n"
        "@app.task\n"
        "def add(x, y): return x + y\n"
        f"{text}"
        "worker.start()\n"
        "sys.exit(worker.exitcode)\n"
    )
    return subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, **environment()},
        capture_output=True,
        text=True,
        timeout=_SECONDS * 2,
        check=False,
    )


@pytest.mark.parametrize("pool", ["solo", "prefork"])
def test_a_worker_in_the_main_thread_is_stopped_from_another_one(redis_url: str, tmp_path: Path, pool: str) -> None:
    """As when a program ends its worker once there is nothing left to do; the exit code is the caller's."""
    text = (
        "def end():\n"
        "    print(add.delay(1, 2).get(timeout=30), file=sys.__stdout__, flush=True)\n"
        "    worker.stop(exitcode=7)\n"
        f"worker = app.Worker(pool={pool!r}, concurrency=1, quiet=True)\n"
        "threading.Thread(target=end).start()\n"
    )

    done = ended(tmp_path / "program.py", text, redis_url)

    assert done.stdout == "3\n", done.stderr
    assert done.returncode == 7


def test_a_worker_in_the_main_thread_that_was_stopped_before_does_not_run(redis_url: str, tmp_path: Path) -> None:
    """No signal is needed for what has not begun."""
    text = "worker = app.Worker(pool='solo', quiet=True)\nworker.stop(exitcode=7)\n"

    done = ended(tmp_path / "program.py", text, redis_url)

    assert done.returncode == 7, done.stderr


@pytest.mark.parametrize(("way", "code"), [("stop(exitcode=7)", 7), ("terminate()", 0)])
def test_a_stop_while_the_worker_starts_ends_the_worker_and_not_the_program(
    redis_url: str, tmp_path: Path, way: str, code: int
) -> None:
    """It does not handle signals yet when it sends this signal."""
    text = (
        "from sidekiq_celery.signals import worker_process_init\n"
        "@worker_process_init.connect(weak=False)\n"
        f"def stop(**_): worker.{way}\n"
        "worker = app.Worker(pool='solo', quiet=True)\n"
    )

    assert ended(tmp_path / "program.py", text, redis_url).returncode == code
