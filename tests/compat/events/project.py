"""A program with tasks that end in every way."""

import itertools
import os
import time
from typing import Any

from sidekiq_celery import Celery, signals
from sidekiq_celery.exceptions import Ignore, Reject
from sidekiq_celery.utils.log import get_task_logger

URL = os.environ["REDIS_URL"]

app = Celery("project", broker=URL, backend=URL, set_as_current=False)
_numbers = itertools.count()
app.conf.task_send_sent_event = "PROJECT_TELLS_OF_SENT_TASKS" in os.environ


@signals.heartbeat_sent.connect(weak=False)
def tell_of_the_heart(sender: Any, **_: Any) -> None:
    """Sends an event of the program's own with the sender's dispatcher."""
    sender.eventer.send("heart-heard", of=sender.eventer.hostname, number=next(_numbers))


@app.task
def add(a: int, b: int) -> int:
    """A sum."""
    return a + b


@app.task
def total(numbers: list[int]) -> int:
    """Their sum."""
    return sum(numbers)


@app.task
def fail() -> None:
    """Fails."""
    raise ValueError("no")


@app.task(bind=True, max_retries=1)
def again(self: Any) -> None:
    """Is tried twice, at once."""
    raise self.retry(exc=KeyError("again"), countdown=0)


@app.task(bind=True, max_retries=None, ignore_result=True)
def later(self: Any) -> None:
    """Waits for its next try."""
    raise self.retry(exc=KeyError("later"), countdown=3600)


@app.task(acks_late=True)
def reject(requeue: bool = False) -> None:
    """Gives its job up."""
    raise Reject("no use", requeue=requeue)


@app.task
def reject_early() -> None:
    """Gives its job up, which Celery has acknowledged by then."""
    raise Reject("no use")


@app.task
def ignore() -> None:
    """Ends without a word."""
    raise Ignore


@app.task(bind=True)
def progress(self: Any) -> str:
    """Sends an event of its own."""
    self.send_event("task-progress", done=3)
    return "x" * 5000


@app.task(send_events=False)
def silent() -> None:
    """Nobody is told of it."""


@app.task
async def coroutine() -> str:
    """Runs on the loop."""
    return "from the loop"


class Stumbling(app.Task):
    """Its hooks fail with what the task was called with, and so does what they log."""

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Fails."""
        raise ValueError(args[0])

    def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Logs an error."""
        try:
            raise LookupError(args[0])
        except LookupError:
            get_task_logger(__name__).exception("the program's own line")


@app.task(base=Stumbling)
def stumble(text: str) -> str:
    """What it was called with."""
    return text


@app.task
def wait() -> None:
    """Runs until something ends it."""
    time.sleep(600)
