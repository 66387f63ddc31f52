"""`worker --watch`: the worker restarts when the program's code changes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("watchfiles")

import redis
from click.testing import Result

from sidekiq_py.client.sync_client import Client
from tests.support.waiting import eventually
from tests.support.worker_process import SOURCE_ROOTS

JOBS = """
import os
import redis
import sidekiq_py as sidekiq

@sidekiq.job(name="Say")
def say():
    redis.Redis.from_url(os.environ["REDIS_URL"]).rpush("said", "{text}")


@sidekiq.job(name="SayAndWait")
def say_and_wait():
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    client.rpush("said", "{text}")
    client.blpop("go_on", 60)
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(redis_url: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a watched worker of `watched_jobs.py` in the test's folder (or *folder*), and stops it after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, folder: Path = tmp_path) -> subprocess.Popen[str]:
        roots = os.pathsep.join(map(str, SOURCE_ROOTS))
        with (folder / "out.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "sidekiq_py", "worker", "-r", "watched_jobs", "--watch", "-t", "1", *arguments],
                cwd=folder,
                env={**os.environ, "REDIS_URL": redis_url, "PYTHONPATH": roots, "PYTHONDONTWRITEBYTECODE": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def write(folder: Path, text: str) -> None:
    """Write a program whose job says *text*; text that is not a program is written as it is."""
    code = text if "=" in text else JOBS.format(text=text)
    (folder / "watched_jobs.py").write_text(code)


def said(redis_url: str, client: redis.Redis) -> bytes:
    """What a job says that is pushed now."""
    Client(redis_url, sidekiq_version="7").push({"class": "Say", "args": []})
    return eventually(lambda: client.lpop("said"))  # type: ignore[arg-type, return-value]


def log_of(folder: Path) -> str:
    """The output of the watcher and its workers."""
    return (folder / "out.log").read_text()


def test_a_change_of_code_starts_the_worker_again(
    start: Start, redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    """Jobs run the new code, and TERM ends both processes."""
    write(tmp_path, "old")
    watched = start()
    assert said(redis_url, redis_client) == b"old"
    before = eventually(lambda: redis_client.smembers("processes"))

    write(tmp_path, "brand new")

    eventually(lambda: redis_client.smembers("processes") not in (before, set()))
    assert "watched_jobs.py changed; restarting the worker." in log_of(tmp_path)
    assert said(redis_url, redis_client) == b"brand new"
    watched.send_signal(signal.SIGTERM)
    assert watched.wait(30) == 0
    assert eventually(lambda: redis_client.scard("processes") == 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_a_restart_ends_the_watch(
    start: Start, redis_url: str, redis_client: redis.Redis, tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C, or a closed terminal, starts no other worker if it comes while a restart waits for running jobs."""
    write(tmp_path, "old")
    watched = start("-t", "30")
    Client(redis_url, sidekiq_version="7").push({"class": "SayAndWait", "args": []})
    eventually(lambda: redis_client.lpop("said"))
    write(tmp_path, "new")
    eventually(lambda: "Shutting down" in log_of(tmp_path))

    watched.send_signal(number)

    redis_client.rpush("go_on", "1")
    watched.wait(30)
    assert log_of(tmp_path).count("Running in Python") == 1


def test_a_closed_terminal_ends_the_watch(
    start: Start, redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    """The worker stops cleanly as with TERM, instead of being killed while the watch lives on without a terminal."""
    write(tmp_path, "old")
    watched = start()
    assert said(redis_url, redis_client) == b"old"

    watched.send_signal(signal.SIGHUP)

    assert watched.wait(30) == 0
    assert "Bye!" in log_of(tmp_path)


def test_a_program_in_a_folder_called_venv_is_watched(
    start: Start, redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    """Such folders are ignored only below the program's own."""
    home = tmp_path / "venv" / "shop"
    home.mkdir(parents=True)
    write(home, "old")
    start(folder=home)
    assert said(redis_url, redis_client) == b"old"

    write(home, "new")

    assert eventually(lambda: "watched_jobs.py changed" in log_of(home))


def test_a_program_that_does_not_start_is_tried_again_at_the_next_change(
    start: Start, redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    """A typo does not end the watch."""
    write(tmp_path, "x = (")
    start()
    eventually(lambda: "it will restart at the next change" in log_of(tmp_path))

    write(tmp_path, "repaired")

    assert said(redis_url, redis_client) == b"repaired"


def test_files_that_are_no_code_restart_nothing(
    start: Start, redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    """For example files that the program writes itself."""
    write(tmp_path, "old")
    start()
    assert said(redis_url, redis_client) == b"old"
    [identity] = eventually(lambda: redis_client.smembers("processes"))

    (tmp_path / "report.csv").write_text("1,2")
    write(tmp_path, "new")

    eventually(lambda: "changed" in log_of(tmp_path))
    assert "watched_jobs.py changed" in log_of(tmp_path)
    assert "report.csv" not in log_of(tmp_path)
    eventually(lambda: redis_client.smembers("processes") not in ({identity}, set()))


def test_without_watchfiles_the_extra_is_named(
    run: Callable[..., Result], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Production does not use it, so the package does not install it."""
    monkeypatch.setitem(sys.modules, "watchfiles", None)

    result = run("worker", "-r", "tests.cli.worker_jobs", "--watch")

    assert result.exit_code == 2
    assert 'pip install "sidekiq-py[watch]"' in result.output


def test_flags_that_cannot_be_used_are_told_before_anything_starts(run: Callable[..., Result]) -> None:
    """Otherwise the worker would start and exit again and again."""
    result = run("worker", "-r", "tests.cli.worker_jobs", "--watch", "-c", "0")

    assert result.exit_code == 2
    assert "Watching" not in result.output
