"""A process that can open no more files is noticed, and ends."""

import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from sidekiq_py.client.sync_client import Client
from sidekiq_py.engine.upkeep.open_files import PATIENCE_SECONDS, OpenFiles
from sidekiq_py.redis_access.processes.beats import rss_kb
from tests.support.in_flight import jobs_in_flight
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

JOBS = """
import os, socket
import sidekiq_py as sidekiq
from sidekiq_py.engine.upkeep import open_files

open_files.PATIENCE_SECONDS, open_files.LOOK_SECONDS = 0.4, 0.1
kept = []

@sidekiq.job(name="Leak", retry=False)
def leak():
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    while True:
        kept.append(os.dup(0))
"""


@contextmanager
def no_more_files() -> Iterator[None]:
    """What is open stays open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_files_are_used_up_once_none_could_be_opened_for_a_minute() -> None:
    """A job may need many for a moment."""
    now = [100.0]
    files = OpenFiles(monotonic=lambda: now[0])

    assert not files.are_used_up()
    with no_more_files():
        assert not files.are_used_up()
        now[0] += PATIENCE_SECONDS - 1
        assert not files.are_used_up()
    assert not files.are_used_up()
    with no_more_files():
        assert not files.are_used_up()
        now[0] += PATIENCE_SECONDS
        assert files.are_used_up()


def test_a_beat_needs_no_file() -> None:
    """A process whose connections are still open goes on working, and is not taken for dead."""
    with no_more_files():
        assert rss_kb() == 0

    assert rss_kb() > 0


@pytest.mark.parametrize("arguments", [(), ("--processes", "1", "-c", "1")], ids=["threads", "prefork"])
def test_a_worker_without_files_ends_so_that_another_can_start(
    start_worker: Callable[..., WorkerProcess],
    redis_client: redis.Redis,
    redis_url: str,
    tmp_path: Path,
    arguments: tuple[str, ...],
) -> None:
    """It would stand still for ever once a connection breaks."""
    (tmp_path / "leaking_jobs.py").write_text(JOBS)
    worker = start_worker("leaking_jobs", arguments=["-t", "0.2", *arguments])

    Client(redis_url, sidekiq_version="7").push({"class": "Leak", "args": []})

    eventually(lambda: "could open no files for 0.4 seconds (Too many open files)" in worker.log)
    if arguments:
        # The next child gets the job, and leaks in its turn.
        eventually(lambda: worker.log.count("INFO: start") >= 2)
    else:
        assert worker.wait(30) == 1
        assert not redis_client.hlen("sidekiq_py:owners")
        assert not jobs_in_flight(redis_client)


@pytest.mark.parametrize("arguments", [(), ("--processes", "1", "-c", "1")], ids=["threads", "prefork"])
def test_a_worker_whose_files_a_job_closes_ends_so_that_another_can_start(
    start_worker: Callable[..., WorkerProcess],
    redis_client: redis.Redis,
    redis_url: str,
    tmp_path: Path,
    arguments: tuple[str, ...],
) -> None:
    """Its new connections would have the numbers of old ones, and get commands that were meant for these."""
    (tmp_path / "closing_jobs.py").write_text(
        "import os\n"
        "import sidekiq_py as sidekiq\n"
        "from sidekiq_py.engine.upkeep import open_files\n"
        "open_files.LOOK_SECONDS = 0.1\n"
        "@sidekiq.job(name='Close', retry=False)\n"
        "def close():\n"
        "    os.closerange(3, 1000)\n"
    )
    worker = start_worker("closing_jobs", arguments=["-t", "0.2", *arguments])

    Client(redis_url, sidekiq_version="7").push({"class": "Close", "args": []})

    eventually(lambda: "A job has closed all files of this process" in worker.log)
    if arguments:
        eventually(lambda: "ended with exit code 1; its jobs go back to their queues" in worker.log)
    else:
        assert worker.wait(30) == 1


def test_a_stop_does_not_wait_for_an_end_that_cannot_be_written_without_files(
    start_worker: Callable[..., WorkerProcess], redis_client: redis.Redis, redis_url: str, tmp_path: Path
) -> None:
    """Celery's workers wait for jobs without a limit, so such a stop would take a week."""
    may_end = tmp_path / "may end"
    (tmp_path / "greedy_jobs.py").write_text(
        "import os, resource, time\n"
        "import sidekiq_py as sidekiq\n"
        "from sidekiq_py.engine.upkeep import open_files\n"
        "open_files.PATIENCE_SECONDS = 2\n"
        "@sidekiq.job(name='Greedy')\n"
        "def greedy():\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "    print('no more files', flush=True)\n"
        f"    while not os.path.exists({str(may_end)!r}):\n"
        "        time.sleep(0.01)\n"
        "    raise ValueError\n"
    )
    worker = start_worker("greedy_jobs", arguments=["-t", "600"])
    Client(redis_url, sidekiq_version="7").push({"class": "Greedy", "args": []})
    eventually(lambda: "no more files" in worker.log)

    redis_client.client_kill_filter(_type="normal", skipme=True)
    may_end.touch()
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(40) == 0
    assert worker.log.count("This process can open no files") == 1
    assert len(jobs_in_flight(redis_client)) == 1
