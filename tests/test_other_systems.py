"""
Windows, where programs enqueue, and macOS, where workers run, too, while they are developed.

There is no real one to run on. Here Linux lacks what they lack.
"""

import subprocess
import sys

import pytest
import redis

from tests.support.redis_server import RedisServer

# Modules and names that the library or its dependencies could use on Linux.
AS_ON_WINDOWS = """
import os, select, signal, sys, time

for name in ("fcntl", "resource", "pwd", "grp", "termios", "curses"):
    sys.modules[name] = None
for module, names in (
    (os, ("fork", "register_at_fork", "getuid", "sched_getaffinity")),
    (os, [name for name in vars(os) if name.startswith("EX_") and name != "EX_OK"]),
    (signal, ("SIGALRM", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGURG", "SIGUSR1", "pthread_kill", "pthread_sigmask")),
    (select, ("poll", "epoll")),
    (time, ("clock_gettime", "CLOCK_BOOTTIME", "CLOCK_MONOTONIC")),
):
    for name in names:
        delattr(module, name)
"""
AS_ON_MACOS = """
import builtins, os, select, signal, socket, sys, time

for module, names in (
    (os, ("sched_getaffinity", "pipe2", "pidfd_open", "waitid")),
    (select, ("epoll",)),
    (signal, ("sigtimedwait", "sigwaitinfo")),
    (socket, ("SOCK_CLOEXEC", "SOCK_NONBLOCK", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT")),
    (time, ("CLOCK_BOOTTIME",)),
):
    for name in names:
        delattr(module, name)

open_file = builtins.open

def open_but_no_proc(path, *args, **kwargs):
    if str(path).startswith("/proc"):
        raise FileNotFoundError(path)
    return open_file(path, *args, **kwargs)

builtins.open = open_but_no_proc
"""
PRODUCER = """
import asyncio
import sidekiq_py as sidekiq
from sidekiq_celery import Celery
from sidekiq_py.api import Queue

sidekiq.configure(redis_url=sys.argv[1])
receipt = sidekiq.ruby_job("SendReceipt")
receipt.perform_async("A-1001")
receipt.perform_bulk([["A-1002"], ["A-1003"]])
asyncio.run(receipt.aperform_async("A-1004"))

app = Celery("shop", broker=sys.argv[1], backend=sys.argv[1])
app.send_task("shop.charge", ("A-1001",), queue="default")
app.backend.mark_as_done("a", 42)
print(Queue("default").size, app.AsyncResult("a").get(timeout=30))
"""
WORKER = """
from sidekiq_celery import Celery
from sidekiq_py.contrib import statsd

app = Celery("shop", broker=sys.argv[1], backend=sys.argv[1])

@app.task(time_limit=0.5)
def hang():
    time.sleep(60)

@app.task(time_limit=60)
def close():
    app.AsyncResult("the-hanging").get(timeout=60, propagate=False, disable_sync_subtasks=False)
    while not app.control.ping(timeout=1):
        pass  # what is said before the worker listens is heard by nobody
    app.control.shutdown()

statsd.start("127.0.0.1", 9)
hang.apply_async(task_id="the-hanging")
close.apply_async(task_id="the-last")
app.worker_main(["worker", "--loglevel=WARNING"])
"""
WORKER_COMMAND = """
from {package}.__main__ import main

sys.argv[1:] = ["worker"]
main()
"""


def run(program: str, redis_server: RedisServer) -> subprocess.CompletedProcess[str]:
    """What became of *program*."""
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushdb()
    command = [sys.executable, "-c", program, redis_server.url]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


def test_windows_enqueues_and_waits_for_results(redis_server: RedisServer) -> None:
    """One by one, in bulk, in a coroutine, and with the API of Celery."""
    ran = run(AS_ON_WINDOWS + PRODUCER, redis_server)

    assert (ran.stdout, ran.stderr) == ("5 42\n", "")


@pytest.mark.parametrize("package", ["sidekiq_py", "sidekiq_celery"])
def test_windows_is_told_where_workers_run(package: str, redis_server: RedisServer) -> None:
    """In one sentence, not with the traceback of the first thing that Windows lacks."""
    ran = run(AS_ON_WINDOWS + WORKER_COMMAND.format(package=package), redis_server)

    assert ran.returncode == 1
    assert ran.stderr == (
        "Error: Workers need Unix signals, which Windows lacks: run them on Linux, in WSL or in a container.\n"
    )


def test_macos_runs_workers(redis_server: RedisServer) -> None:
    """Its processes are forked, and one whose task is past its hard limit is replaced; with metrics to StatsD."""
    ran = run(AS_ON_MACOS + WORKER, redis_server)

    with redis.Redis.from_url(redis_server.url) as client:
        state = client.get("celery-task-meta-the-last")
    assert ran.returncode == 0, ran.stderr
    assert b'"status":"SUCCESS"' in bytes(state or b"").replace(b" ", b""), ran.stderr
