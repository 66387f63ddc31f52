"""Programs on Windows enqueue, too. Here Linux lacks what Windows lacks; there is no real one to run them on."""

import subprocess
import sys

from tests.client.conftest import Pushed
from tests.support.redis_server import RedisServer

# Modules and names that the library or its dependencies could use on Linux, and that Windows does not have.
WITHOUT = """
import os, select, sys

for name in ("fcntl", "resource", "pwd", "grp", "termios", "curses"):
    sys.modules[name] = None
for module, names in ((os, ("fork", "register_at_fork", "getuid", "sched_getaffinity")), (select, ("poll", "epoll"))):
    for name in names:
        delattr(module, name)
"""
PROGRAM = """
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


def test_windows_enqueues_and_waits_for_results(redis_server: RedisServer, pushed: Pushed) -> None:
    """One by one, in bulk, in a coroutine, and with the API of Celery."""
    program = [sys.executable, "-c", WITHOUT + PROGRAM, redis_server.url]

    ran = subprocess.run(program, check=False, capture_output=True, text=True, timeout=60)

    assert (ran.stdout, ran.stderr) == ("5 42\n", "")
    assert len(pushed.queue()) == 5
