"""A worker inside a program whose threads are greenlets, which a fork copies with all that they are doing."""

import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.support.redis_server import RedisServer

START = """
from gevent import monkey
monkey.patch_all()
import os, socket, sys, threading, time
from pathlib import Path
from urllib.parse import urlsplit
import sidekiq_py as sidekiq

url, fetcher, log = sys.argv[1], sys.argv[2], Path(sys.argv[3])
log.touch()
sidekiq.configure(url, sidekiq_version="8")
started, goes_on = threading.Event(), Path(sys.argv[3] + ".goes_on")

def note(text):
    with log.open("a") as file:
        file.write(f"{text} {os.getpid()}\\n")

def until(text, times):
    while log.read_text().count(text) < times:
        time.sleep(0.01)

def let_others_run():
    for _ in range(100):
        time.sleep(0)
"""

PROGRAM = (
    START
    + """
@sidekiq.job(name="Long")
def long():
    started.set()
    while not goes_on.exists():
        time.sleep(0.01)
    note("long")

@sidekiq.job(name="Short")
def short():
    note("short")
    time.sleep(0.05)

def connections():
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as copy:
                count += copy.getpeername()[1:] == (urlsplit(url).port,)
        except OSError:
            pass
    return count

worker = sidekiq.embed(concurrency=3, fetcher=fetcher)
worker.start()
for _ in range(6):
    short.perform_async()
until("short", 6)
long.perform_async()
started.wait()
child = os.fork()
if child == 0:
    until(f"long {os.getpid()}", 1)
    let_others_run()
    sidekiq.Client(url).push({"class": "OfChild", "queue": "other", "args": []})
    note(f"child with {connections()}")
    os._exit(7)
for _ in range(20):
    short.perform_async()
until("short", 26)
goes_on.touch()
_, status = os.waitpid(child, 0)
worker.stop()
note(f"parent of {os.waitstatus_to_exitcode(status)}")
"""
)

# The first of nine jobs arrives alone and waits, others arrive together. Each of these forks, while the threads that
# were woken for the next ones are about to run.
FORK_IN_A_JOB = (
    START
    + """
children = [0]

@sidekiq.job(name="Part")
def part(number):
    if number == 0:
        until("part", 18)
        return
    if number < 9 and children:
        children.append(os.fork())
        if children[-1] == 0:
            children.clear()
            let_others_run()
            os._exit(0)
    note(f"part {number}")

def push(numbers):
    sidekiq.Client(url).push_bulk({"class": "Part", "args": [[number] for number in numbers]})

with sidekiq.embed(concurrency=9):
    # All threads run and wait.
    push([9] * 10)
    until("part", 10)
    push(range(9))
    until("part", 18)
for child in children[1:]:
    os.waitpid(child, 0)
"""
)


def run(program: str, *arguments: str) -> str:
    """Run *program* and return what it printed to standard error."""
    pytest.importorskip("gevent")
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120).stderr


@pytest.mark.parametrize("fetcher", ["reliable", "basic"])
def test_a_forked_child_s_copies_of_the_worker_s_threads_do_nothing(
    fetcher: str, redis_server: RedisServer, tmp_path: Path
) -> None:
    """
    They ran jobs and wrote to Redis under the parent's name, and the end of a copied job ended the child. The child
    itself uses Redis: over the one connection that is left open at its end.
    """
    log = tmp_path / "log"

    told = run(PROGRAM, redis_server.url, fetcher, str(log))

    lines = log.read_text().splitlines()
    parent = lines[-1].split()[-1]
    assert lines[-1].startswith("parent of 7 "), (lines, told)
    assert (lines.count(f"short {parent}"), lines.count(f"long {parent}")) == (26, 1)
    assert sum(line.startswith("short") for line in lines) == 26
    assert [line for line in lines if line.startswith("child with 1 ")], lines
    assert "out of reach" not in told


def test_a_job_that_was_given_to_a_thread_before_a_fork_starts_in_the_parent_alone(
    redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path
) -> None:
    """The copy of the thread found the job in the copy of the buffer, without asking Redis."""
    log = tmp_path / "log"

    told = run(FORK_IN_A_JOB, redis_server.url, "reliable", str(log))

    parts = [line.rsplit(" ", 1) for line in log.read_text().splitlines()]
    assert sorted(part for part, _ in parts) == [f"part {number}" for number in (*range(1, 9), *[9] * 10)], told
    assert len({pid for _, pid in parts}) == 1
