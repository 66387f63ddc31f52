"""Waiting for results in the green threads of web servers."""

import subprocess
import sys

import pytest

from tests.support.redis_server import RedisServer

# Three greenlets wait for a result that a fourth one stores.
PROGRAM = """
import sys, threading, time
from sidekiq_celery import Celery

app = Celery("shop", broker=sys.argv[1], backend=sys.argv[1])
answers = []

def wait():
    answers.append(app.AsyncResult("a").get(timeout=30))

def store():
    while len(app.backend._listener._waiting.get(b"celery-task-meta-a", ())) < 3:
        time.sleep(0.01)
    app.backend.mark_as_done("a", 42)

threads = [threading.Thread(target=run) for run in (wait, wait, wait, store)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(answers)
"""


def run(program: str, url: str) -> subprocess.CompletedProcess[str]:
    """What became of *program*."""
    return subprocess.run([sys.executable, "-c", program, url], check=False, capture_output=True, text=True, timeout=60)


def test_greenlets_of_gevent_wait_side_by_side(redis_server: RedisServer) -> None:
    """None of them keeps the others from running."""
    pytest.importorskip("gevent")

    ran = run("from gevent import monkey; monkey.patch_all()" + PROGRAM, redis_server.url)

    assert (ran.stdout, ran.stderr) == ("[42, 42, 42]\n", "")


def test_eventlet_is_refused_with_advice(redis_server: RedisServer) -> None:
    """It removes `select.poll`."""
    ran = run(
        "import select, sys\n"
        "del select.poll\n"
        "from sidekiq_celery import Celery\n"
        "app = Celery('shop', broker=sys.argv[1], backend=sys.argv[1])\n"
        "app.AsyncResult('b').get(timeout=10)\n",
        redis_server.url,
    )

    assert "RuntimeError: waiting for a result does not work under eventlet" in ran.stderr
