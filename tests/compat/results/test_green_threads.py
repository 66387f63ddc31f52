"""Waiting for results in the green threads of web servers."""

import subprocess
import sys

import pytest

from tests.support.redis_server import RedisServer

# Three greenlets wait for a result that a fourth one stores.
PROGRAM = """
import sys, threading, time
from sidekiq_celery import Celery, uuid

app = Celery("shop", broker=sys.argv[1], backend=sys.argv[1])
task_id = uuid()
answers = []

def wait():
    answers.append(app.AsyncResult(task_id).get(timeout=30))

def store():
    while len(app.backend._listener.watching(f"celery-task-meta-{task_id}".encode())) < 3:
        time.sleep(0.01)
    app.backend.mark_as_done(task_id, 42)

threads = [threading.Thread(target=run) for run in (wait, wait, wait, store)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(answers)
"""


def run(program: str, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What became of *program*."""
    command = [sys.executable, "-c", program, url, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


PATCHES = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    # What eventlet does to `select`. The library itself warns whoever imports it, as Sentry does if it is installed.
    "eventlet": "import select; del select.poll",
}


@pytest.mark.parametrize("library", PATCHES)
def test_green_threads_wait_side_by_side(library: str, redis_server: RedisServer) -> None:
    """None of them keeps the others from running."""
    if library == "gevent":
        pytest.importorskip("gevent")

    ran = run(PATCHES[library] + PROGRAM, redis_server.url)

    assert (ran.stdout, ran.stderr) == ("[42, 42, 42]\n", "")


FORK = """
import os, sys, threading, time
import redis
from sidekiq_celery import Celery, uuid
from sidekiq_celery.backends import listening

app = Celery("shop", broker=sys.argv[1], backend=sys.argv[1])
client = redis.Redis.from_url(sys.argv[1])
ours, of_child = uuid(), uuid()

def until_subscribed(task_id):
    while client.pubsub_numsub(f"celery-task-meta-{task_id}")[0][1] == 0:
        time.sleep(0.01)

def wait():
    # Keys are read again after ten seconds, even if nothing is heard.
    print(app.AsyncResult(ours).get(timeout=8), flush=True)

thread = threading.Thread(target=wait)
thread.start()
until_subscribed(ours)
if sys.argv[2] == "reads":
    listening.REREAD_SECONDS = 0.8
    client.client_pause(1500)
    time.sleep(1.2)
child = os.fork()
if child == 0:
    print(app.AsyncResult(of_child).get(timeout=30), flush=True)
    os._exit(0)
until_subscribed(of_child)
app.backend.mark_as_done(ours, 1)
thread.join()
app.backend.mark_as_done(of_child, 2)
os.waitpid(child, 0)
"""


@pytest.mark.parametrize("listener", ["listens", "reads"])
def test_a_fork_leaves_the_results_of_the_parent_alone(redis_server: RedisServer, listener: str) -> None:
    """The child has a copy of the listening greenlet and of its connection."""
    pytest.importorskip("gevent")

    ran = run(PATCHES["gevent"] + FORK, redis_server.url, listener)

    assert (ran.stdout, ran.stderr) == ("1\n2\n", "")
