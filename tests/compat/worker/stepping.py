"""A program with bootsteps, which note in Redis what becomes of them."""

import os
import time
from typing import Any

import redis
from sidekiq_celery import Celery, bootsteps, signals
from sidekiq_celery.contrib.abortable import AbortableAsyncResult, AbortableTask

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

    requires = (Worker, "celery.worker.components:Hub")

    def start(self, parent: Any) -> None:
        parent.timer.call_repeatedly(0.01, note, ("tick",), priority=10)
        parent.consumer.controller.hub.call_repeatedly(0.01, note, "tock")
        super().start(parent)


class Consumer(Noting):
    """Of what fetches."""

    requires = ("celery.worker.consumer.tasks:Tasks", "celery.worker.consumer:Connection")

    def shutdown(self, parent: Any) -> None:
        note(f"{self.alias} shut down")


class OfThePool(Noting):
    """Ends what runs, as celery-eternal's step does."""

    requires = ("celery.worker.components:Pool",)

    def stop(self, parent: Any) -> None:
        for request in parent.state.active_requests:
            note(f"{request.name} aborted")
            AbortableAsyncResult(request.task_id, app=app).abort()
        super().stop(parent)

    def terminate(self, parent: Any) -> None:
        note(f"{self.alias} terminated")


class Eternal(AbortableTask):
    """A task that runs until its worker stops."""

    abstract = True

    @classmethod
    def on_bound(cls, app: Any) -> None:
        if "ETERNAL" in os.environ:
            app.steps["worker"].add(OfThePool)


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


@signals.worker_shutting_down.connect
def tell_the_stop(sig: str, how: str, **about: Any) -> None:
    """What kind of stop it is."""
    if "ETERNAL" in os.environ:
        note(f"stopping by {sig}: {how}")


@app.task
def add(x: int, y: int) -> int:
    """A sum."""
    return x + y


@app.task(base=Eternal, bind=True)
def eternal(self: Any) -> None:
    """Run until aborted."""
    note("running")
    while not self.is_aborted():
        time.sleep(0.02)
