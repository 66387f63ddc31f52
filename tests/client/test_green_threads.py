"""Pushes from the green threads of web servers (`gunicorn -k gevent`, `-k eventlet`)."""

import subprocess
import sys

import pytest

from tests.client.conftest import Pushed
from tests.support.redis_server import RedisServer

PATCHES = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    # What eventlet does to `select`. The library itself warns whoever imports it, as Sentry does if it is installed.
    "eventlet": "import select; del select.poll",
}
# Each greenlet waits so long between its pushes that its connection is looked at before the next one.
PROGRAM = """
import sys, threading, time
import sidekiq_py as sidekiq

client = sidekiq.Client(sys.argv[1])

def push(number):
    for _ in range(3):
        client.push({"class": "A", "args": [number]})
        time.sleep(0.05)

threads = [threading.Thread(target=push, args=(number,)) for number in range(20)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("library", PATCHES)
def test_green_threads_push_side_by_side(library: str, redis_server: RedisServer, pushed: Pushed) -> None:
    """Also on connections that were idle."""
    if library == "gevent":
        pytest.importorskip("gevent")
    program = [sys.executable, "-c", PATCHES[library] + PROGRAM, redis_server.url]

    ran = subprocess.run(program, check=False, capture_output=True, text=True, timeout=60)

    assert (ran.returncode, "Traceback" in ran.stderr, len(pushed.queue())) == (0, False, 60), ran.stderr
