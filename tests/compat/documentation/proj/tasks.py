"""The tasks that the guides call."""

import sys
from typing import Any

import redis
from pydantic import BaseModel
from sidekiq_celery import Task, chain, group, shared_task
from sidekiq_celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded
from sidekiq_celery.result import allow_join_result
from sidekiq_celery.utils.log import get_task_logger

from tests.compat.documentation.proj.celery import URL, app

logger = get_task_logger(__name__)


def note(key: str, text: Any) -> None:
    """Leave a line for the test."""
    client = redis.Redis.from_url(URL)
    client.rpush(f"noted:{key}", str(text))
    client.close()


@app.task
def add(x: Any, y: Any, debug: bool = False) -> Any:
    """A sum."""
    return x + y


@app.task
def mul(x: Any, y: Any) -> Any:
    """A product."""
    return x * y


@app.task
def subtract(x: Any, y: Any) -> Any:
    """A difference."""
    return x - y


@app.task
def xsum(numbers: list[Any]) -> Any:
    """A total."""
    return sum(numbers)


@app.task
def newest(times: list[Any]) -> Any:
    """The last of some times."""
    return max(times)


@shared_task
def shared_add(x: Any, y: Any) -> Any:
    """A sum, of whichever app is current."""
    return x + y


@app.task
def fail(text: str = "something something") -> None:
    """Never succeeds."""
    raise ValueError(text)


@app.task
def log_error(request: Any, exc: BaseException, traceback: str) -> None:
    """An errback that is given the request and the error."""
    note("errors", f"{request.id} {exc!r}")


@app.task
def on_error(task_id: str) -> None:
    """An errback that is given an id alone."""
    with allow_join_result():
        error = app.AsyncResult(task_id).get(propagate=False)
    note("errors", f"{task_id} {error!r}")


@app.task
def reset_buffers() -> None:
    """A callback that wants no result."""
    note("resets", "done")


@app.task(bind=True)
def hello(self: Any, a: int, b: int) -> str:
    """Tells how far it is."""
    self.update_state(state="PROGRESS", meta={"progress": 50})
    self.update_state(state="PROGRESS", meta={"progress": 90})
    return f"hello world: {a + b}"


@app.task(bind=True)
def dump_context(self: Any, x: int, y: int) -> dict[str, Any]:
    """What a task knows of its call."""
    request = self.request
    return {
        "id": request.id,
        "args": request.args,
        "kwargs": request.kwargs,
        "retries": request.retries,
        "queue": request.delivery_info["routing_key"],
        "called_directly": request.called_directly,
        "hostname": request.hostname,
        "name": request.task,
        "headers": request.headers,
    }


class NotedTask(Task):
    """A base class with hooks."""

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        note("hooks", f"start {args}")

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        note("hooks", f"success {retval}")

    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note("hooks", f"failure {exc!r}")

    def on_retry(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note("hooks", f"retry {exc!r}")

    def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note("hooks", f"after {status}")


@app.task(base=NotedTask)
def divide(x: int, y: int) -> float:
    """Succeeds or fails, and its hooks are called."""
    return x / y


class ConnectedTask(Task):
    """Keeps a connection for the process."""

    _connection: Any = None

    @property
    def connection(self) -> Any:
        """Made when it is first wanted."""
        if self._connection is None:
            self._connection = redis.Redis.from_url(URL)
        return self._connection


@app.task(base=ConnectedTask, bind=True)
def same_connection(self: Any) -> bool:
    """Whether two uses share it."""
    return self.connection is self.connection


class _CountsUsers(Task):
    """A task that is written as a class."""

    name = "proj.users"

    def __init__(self) -> None:
        self.users = {"george": "password"}

    def run(self, username: str, password: str) -> bool:
        return self.users.get(username) == password


users = app.register_task(_CountsUsers())


class DebugTask(Task):
    """Says that it starts."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        note("debug", f"starting {self.name}")
        return self.run(*args, **kwargs)


@app.task(base=DebugTask)
def debugged(x: int) -> int:
    """Runs by way of `__call__`."""
    return x


@app.task(bind=True, default_retry_delay=30 * 60)
def retried(self: Any, number: int) -> int:
    """Overrides the delay of its class."""
    try:
        if self.request.retries == 0:
            raise ConnectionError("not yet")
    except ConnectionError as exc:
        raise self.retry(exc=exc, countdown=0) from exc
    return number


@app.task(bind=True, autoretry_for=(ConnectionError,), retry_kwargs={"max_retries": 1, "countdown": 0})
def retried_by_itself(self: Any) -> None:
    """Fails again and again."""
    note("tries", self.request.retries)
    raise ConnectionError("never")


class BaseTaskWithRetry(Task):
    """What its subclasses share."""

    autoretry_for = (TypeError,)
    max_retries = 2
    retry_backoff = True
    retry_backoff_max = 700
    retry_jitter = False


@app.task(base=BaseTaskWithRetry, bind=True)
def backs_off(self: Any) -> None:
    """Waits a second, then two."""
    raise TypeError("no such thing")


class Order(BaseModel):
    """What a task takes."""

    value: int


class Receipt(BaseModel):
    """What it gives."""

    value: str


@app.task(pydantic=True)
def validated(order: Order | None = None) -> Receipt | None:
    """Is given a model, and its model becomes a dict."""
    return None if order is None else Receipt(value=f"example: {order.value}")


@app.task(throws=(KeyError,))
def expected() -> None:
    """Fails as expected."""
    raise KeyError("nobody")


@app.task(bind=True, ignore_result=False)
def upload_files(self: Any, filenames: list[str]) -> int:
    """Has a state of its own."""
    for number, _ in enumerate(filenames):
        if not self.request.called_directly:
            self.update_state(state="PROGRESS", meta={"current": number, "total": len(filenames)})
    return len(filenames)


@app.task(bind=True)
def sets_its_state(self: Any) -> None:
    """Stores a state by hand and leaves it alone."""
    self.update_state(state="SUCCESS", meta="by hand")
    raise Ignore


@app.task(bind=True, acks_late=True)
def rejects(self: Any) -> None:
    """Is taken out of its queue without a result."""
    note("rejected", self.request.id)
    raise Reject("too big", requeue=False)


@app.task(bind=True, acks_late=True)
def requeues(self: Any) -> str:
    """Goes back to its queue once."""
    if not self.request.delivery_info["redelivered"]:
        raise Reject("no reason", requeue=True)
    return "received two times"


@app.task(ignore_result=True)
def forgets() -> int:
    """Keeps no result."""
    return 1


@app.task(typing=False)
def unchecked(x: int, y: int) -> int:
    """Its arguments are looked at by the worker alone."""
    return x + y


@app.task
def run_add_group() -> None:
    """Starts a workflow."""
    group(add.s(i, i) for i in range(3)).apply_async()


@app.task
def update_page(text: str) -> None:
    """Hands over to the steps of a chain instead of waiting for them."""
    chain(shout.s(text), store.s("pages"))()


@app.task
def shout(text: str) -> str:
    """A step."""
    return text.upper()


@app.task(ignore_result=True)
def store(text: str, key: str) -> None:
    """The last step."""
    note(key, text)


@app.task
def waits_for_another() -> int:
    """Is refused the wait for a task of its own."""
    return int(add.delay(1, 1).get(timeout=10))


@app.task
def waits_on_purpose() -> int:
    """Says that it means it."""
    return int(add.delay(1, 1).get(timeout=30, disable_sync_subtasks=False))


@app.task(bind=True)
def logs(self: Any, x: int) -> None:
    """Writes to its logger, and what it prints goes there too."""
    logger.info("logged %s", x)
    before = sys.stdout, sys.stderr
    try:
        self.app.log.redirect_stdouts_to_logger(logger, self.app.conf.worker_redirect_stdouts_level)
        print(f"printed {x}")
    finally:
        sys.stdout, sys.stderr = before


@app.task(soft_time_limit=1, time_limit=60)
def cleans_up() -> str:
    """Is told that its time is over."""
    try:
        while True:
            pass
    except SoftTimeLimitExceeded:
        return "cleaned up"


class HttpError(Exception):
    """An error with arguments that pass through results."""

    def __init__(self, status_code: int, body: str | None = None) -> None:
        self.status_code = status_code
        self.body = body
        super().__init__(status_code, body)


@app.task
def fetch(status_code: int) -> None:
    """Raises an error of the project."""
    raise HttpError(status_code, body="gone")
