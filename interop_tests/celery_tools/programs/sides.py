"""What the programs share: the alias, if they should use it, and tasks with each kind of outcome."""

import os
from typing import Any

if os.environ["SIDE"] == "alias":
    import sidekiq_celery

    sidekiq_celery.install_as_celery()

from celery import Celery, chain

ENDS = 30


def made_app() -> Any:
    """Create an app with its tasks."""
    app = Celery("tools", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"])
    app.conf.broker_connection_retry_on_startup = True

    @app.task(name="tools.add")
    def add(x, y):
        return x + y

    @app.task(name="tools.fails")
    def fails():
        raise ValueError("boom")

    @app.task(name="tools.tries", bind=True, max_retries=1)
    def tries(self):
        if not self.request.retries:
            raise self.retry(countdown=0)
        return "done"

    @app.task(name="tools.silent", ignore_result=True)
    def silent():
        pass

    return app


def wait_for(app: Any) -> None:
    """Wait until a worker answers."""
    for _ in range(80):
        if app.control.ping(timeout=1, limit=1):
            return
    raise SystemExit("no worker answers")


def send_all(app: Any) -> None:
    """Send six tasks and wait: two succeed, one fails, one is tried twice, and two are a chain."""
    tasks = app.tasks
    add, silent = tasks["tools.add"], tasks["tools.silent"]
    silent.delay()
    for sent in (
        add.delay(2, 2),
        tasks["tools.fails"].delay(),
        tasks["tools.tries"].delay(),
        chain(add.s(1, 1), add.s(3))(),
    ):
        try:
            sent.get(timeout=ENDS)
        except ValueError:
            continue


def write(line: str) -> None:
    """Add a line to the tool's report."""
    with open(os.environ["SEEN"], "a") as seen:
        seen.write(f"{line}\n")
