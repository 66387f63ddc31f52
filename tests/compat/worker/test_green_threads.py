"""A worker in a thread of a program whose threads are greenlets, which a fork copies."""

import subprocess
import sys

import pytest

from tests.support.redis_server import RedisServer

PROGRAM = """
from gevent import monkey
monkey.patch_all()
import os, signal, sys, threading
from sidekiq_celery import Celery

app = Celery("shop", broker=sys.argv[1], backend=sys.argv[1])
app.conf.worker_redirect_stdouts = False
worker = app.Worker(pool="threads", concurrency=1, hostname="w@here")
thread = threading.Thread(target=worker.start)
thread.start()
while not app.control.ping(timeout=0.3, limit=1):
    pass
child = os.fork()
if child == 0:
    threading.Event().wait(120)
    os._exit(0)
control = app.control.inspect(timeout=10, limit=1)
answers = [facts["pid"] for _ in range(10) for facts in control.stats().values()]
print([pid == os.getpid() for pid in answers])
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
worker.stop()
thread.join()
"""


def test_commands_are_carried_out_by_the_worker_and_not_by_its_copy_in_a_forked_child(
    redis_server: RedisServer,
) -> None:
    """The copy read every other command from the socket that it shares with the worker."""
    pytest.importorskip("gevent")
    command = [sys.executable, "-c", PROGRAM, redis_server.url]

    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)

    assert f"{[True] * 10}\n" in ran.stdout, (ran.stdout, ran.stderr)
