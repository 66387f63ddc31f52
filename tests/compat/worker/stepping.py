"""A program with bootsteps, which note in Redis what becomes of them."""

import os
from typing import Any

import redis
from sidekiq_celery import Celery, bootsteps, signals

URL = os.environ["REDIS_URL"]

app = Celery("stepping", broker=URL, backend=URL)


def note(text: str) -> None:
    """Remember something for the test."""
    client = redis.Redis.from_url(URL)
    client.rpush("noted:steps", text)
    client.close()


class Noting(bootsteps.StartStopStep):
    """Notes everything."""

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        note(f"{self.alias} made for {parent.hostname}")

    def create(self, parent: Any) -> None:
        note(f"{self.alias} created")

    def start(self, parent: Any) -> None:
        if os.environ.get("FAILS_AT") == self.alias:
            raise OSError("no probe file")
        note(f"{self.alias} started")

    def close(self, parent: Any) -> None:
        note(f"{self.alias} closed")

    def info(self, obj: Any) -> dict[str, Any]:
        return {f"of {self.alias}": obj.hostname}

    def stop(self, parent: Any) -> None:
        note(f"{self.alias} stopped")


class Worker(Noting):
    """Of the worker."""

    requires = {"celery.worker.components:Timer"}


class Later(Noting):
    """Behind that."""

    requires = (Worker,)

    def start(self, parent: Any) -> None:
        parent.timer.call_repeatedly(0.01, note, ("tick",), priority=10)
        super().start(parent)


class Consumer(Noting):
    """Of what fetches."""

    requires = ("celery.worker.consumer.tasks:Tasks", "celery.worker.consumer:Connection")

    def shutdown(self, parent: Any) -> None:
        note(f"{self.alias} shut down")


class Left(Noting):
    """Not wanted."""

    def include_if(self, parent: Any) -> bool:
        return False


app.steps["worker"] |= {Later, Left}
app.steps["consumer"].add(Consumer)
if "REQUIRED" in os.environ:
    Worker.requires = {os.environ["REQUIRED"]}
if "CONSUMES" in os.environ:
    app.steps["consumer"].add(type("Orders", (bootsteps.ConsumerStep,), {"__module__": "stepping"}))


@signals.worker_ready.connect
def tell(sender: Any, **about: Any) -> None:
    """When steps are started is known by this."""
    note(f"ready: {sender.hostname} {sender.app.main} {sender.controller.pool_name}")


@app.task
def add(x: int, y: int) -> int:
    """A sum."""
    return x + y
