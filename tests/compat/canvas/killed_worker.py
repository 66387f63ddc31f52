"""
A worker of the tasks of this folder, in a process of its own, that may be killed.

Run as `python -m tests.compat.canvas.killed_worker <redis url>`.
"""

import signal
import sys
import threading

from sidekiq_celery import Celery

from tests.compat.canvas.tasks import declare
from tests.compat.tasks.worker import TaskWorker


def main(url: str) -> None:
    """Work until TERM, or a kill."""
    app = Celery("proj", broker=url, backend=url, fixups=[])
    declare(app)
    worker = TaskWorker(app, url, ("celery",))
    asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    worker.start()
    asked_to_stop.wait()
    worker.stop()


if __name__ == "__main__":
    main(sys.argv[1])
