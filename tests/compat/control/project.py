"""A program whose workers are asked: tasks that run until they are told to end, and commands of its own."""

import os
import threading
from typing import Any

import redis
from sidekiq_celery import Celery, signals
from sidekiq_celery.exceptions import WorkerShutdown
from sidekiq_celery.worker.control import control_command, inspect_command

URL = os.environ["REDIS_URL"]

app = Celery("project", broker=os.environ["BROKER"], backend=URL)
app.conf.update(
    worker_enable_remote_control="WITHOUT_CONTROL" not in os.environ,
    # A secret that must not be shown.
    redis_password="a-secret-password",
)

if "KEY_PREFIX" in os.environ:
    app.conf.broker_transport_options = {"global_keyprefix": os.environ["KEY_PREFIX"]}
    app.conf.control_exchange = "other"


class Odd:
    """Nothing that JSON has."""

    def __repr__(self) -> str:
        return "<Odd>"


@signals.worker_ready.connect
def use_the_timer(sender: Any, **kwargs: Any) -> None:
    """As bootsteps do, in the parent of prefork children."""
    sender.timer.call_after(0, int)


@app.task(rate_limit="5/s")
def hold(key: str, **kwargs: Any) -> str:
    """Runs until the test says so."""
    # redis-py's own limit ends a command that blocks for more than five seconds.
    client = redis.Redis.from_url(URL, socket_timeout=None)
    client.rpush(f"held:{key}", os.getpid())
    client.blpop([f"release:{key}"], timeout=120)
    client.close()
    return key


@app.task
def add(a: int, b: int) -> int:
    """A sum."""
    return a + b


@control_command(args=[("n", int)], signature="[N=1]")
def remember(state: Any, n: int = 1) -> dict[str, Any]:
    """Keep a number."""
    state.numbers = [*getattr(state, "numbers", []), n]
    return {"ok": {"numbers": state.numbers, "host": state.hostname, "app": state.app.main}}


@inspect_command(alias="dump_odd")
def odd(state: Any) -> Any:
    """Values that JSON lacks."""
    return {"object": Odd(), "bytes": b"\xff", "set": {1}, 5: (1, Odd()), "nan": float("nan")}


@control_command()
def stop_by_exception(state: Any) -> None:
    """As commands do that were written for Celery."""
    raise WorkerShutdown(0)


@inspect_command()
def wants_a_consumer(state: Any) -> Any:
    """As commands do that were written for Celery's own workers."""
    return state.consumer.strategies["project.add"]


@inspect_command()
def wants_the_timer(state: Any) -> Any:
    """Whether the worker's timer makes calls where commands run."""
    called = threading.Event()
    state.consumer.timer.call_after(0, called.set)
    return called.wait(5)
