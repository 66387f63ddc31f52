"""Bootsteps of a program in a worker."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, bootsteps
from sidekiq_celery.contrib.testing.worker import start_worker
from sidekiq_celery.exceptions import ImproperlyConfigured

from tests.compat.events.event_monitor import listening
from tests.support.celery_program import StartWorker, command, environment, starting, wait_for_an_answer
from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess

_PROGRAM = "tests.compat.worker.stepping"
_SECONDS = 60


@pytest.fixture
def start(redis_url: str) -> Iterator[StartWorker]:
    """Starts workers of the program with steps."""
    with starting(_PROGRAM, redis_url) as start:
        yield start


def noted(client: redis.Redis) -> list[str]:
    """What the steps have noted, without the timer's."""
    return [text.decode() for text in client.lrange("noted:steps", 0, -1) if text not in (b"tick", b"tock")]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_steps_are_made_started_and_stopped_with_the_worker(
    start: StartWorker, redis_client: redis.Redis, redis_url: str, pool: str
) -> None:
    """In the order in which they require each other, once, in the first process; a timer runs for them."""
    worker = start("-P", pool, "-c", "1", "-n", "w1@here")
    for beat in ("tick", "tock"):
        eventually(lambda beat=beat: redis_client.lpos("noted:steps", beat) is not None, within_seconds=_SECONDS)
    app = Celery(broker=redis_url, set_as_current=False)
    wait_for_an_answer(app, limit=1)
    reply = app.control.inspect(timeout=_SECONDS, limit=1).stats()
    app.close()
    assert {name: reply["w1@here"][name] for name in ("of Worker", "of Later", "of Consumer")} == {
        "of Worker": "w1@here",
        "of Later": "w1@here",
        "of Consumer": "w1@here",
    }
    assert worker.stop() == 0

    seen = noted(redis_client)
    assert sorted(text for text in seen if "made" in text) == [
        f"{name} made for w1@here" for name in ("Consumer", "Later", "Left", "Worker")
    ]
    assert [text for text in seen if not text.startswith("Consumer") and "made" not in text] == [
        *("Worker created", "Later created", "Worker started", "Later started"),
        f"ready: w1@here stepping {pool}",
        *("Worker closed", "Later closed", "Later stopped", "Worker stopped"),
    ]
    assert [text for text in seen if text.startswith(("Consumer", "ready", "Worker s")) and "made" not in text] == [
        *("Consumer created", "Worker started", "Consumer started"),
        f"ready: w1@here stepping {pool}",
        *("Consumer closed", "Consumer stopped", "Worker stopped", "Consumer shut down"),
    ]


def started_with_a_step_of_the_pool(start: StartWorker, client: redis.Redis, pool: str) -> SidekiqProcess:
    """A worker that is ready, one of whose steps requires the pool."""
    worker = start("-P", pool, "-c", "1", ETERNAL="1")
    eventually(lambda: any(text.startswith("ready") for text in noted(client)), within_seconds=_SECONDS)
    return worker


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_step_that_requires_the_pool_stops_before_running_tasks_are_waited_for(
    start: StartWorker, redis_client: redis.Redis, redis_url: str, pool: str
) -> None:
    """It may end them, as the one of celery-eternal does; a step that does not require the pool stops afterwards."""
    worker = started_with_a_step_of_the_pool(start, redis_client, pool)
    app = Celery(broker=redis_url, set_as_current=False)
    app.send_task("tests.compat.worker.stepping.eternal")
    eventually(lambda: "running" in noted(redis_client), within_seconds=_SECONDS)
    app.close()

    assert worker.stop() == 0

    stopped = [text for text in noted(redis_client) if text.endswith(("stopped", "aborted"))]
    assert stopped == [
        *("Consumer stopped", "tests.compat.worker.stepping.eternal aborted", "OfThePool stopped"),
        *("Later stopped", "Worker stopped"),
    ]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_cold_stop_terminates_the_workers_steps(
    start: StartWorker, redis_client: redis.Redis, redis_url: str, pool: str
) -> None:
    """As in Celery, which stops those of the consumer. `worker_shutting_down` says that it is cold."""
    worker = started_with_a_step_of_the_pool(start, redis_client, pool)

    worker.send_signal(signal.SIGQUIT)
    assert worker.wait(_SECONDS) == 0

    seen = noted(redis_client)
    assert "stopping by SIGQUIT: Cold" in seen
    assert "OfThePool terminated" in seen
    assert "Consumer stopped" in seen


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        (
            {"REQUIRED": "celery.worker.autoscale:WorkerComponent"},
            "the bootstep tests.compat.worker.stepping.Worker requires celery.worker.autoscale:WorkerComponent,",
        ),
        (
            {"REQUIRED": "celery.worker.consumer.gossip:Gossip"},
            "requires celery.worker.consumer.gossip:Gossip, which a worker does not have here",
        ),
        ({"CONSUMES": "1"}, "the bootstep stepping.Orders is a ConsumerStep, which consumes messages of its own"),
        ({"FAILS_AT": "Later"}, "a bootstep failed to start: OSError('no probe file')"),
        ({"FAILS_AT": "Consumer"}, "a bootstep failed to start: OSError('no probe file')"),
    ],
)
def test_a_step_that_cannot_be_had_ends_the_worker_with_its_name(
    redis_url: str, variables: dict[str, str], error: str
) -> None:
    """Before it runs any task where that is known, and never in silence."""
    words = command("-A", _PROGRAM, "worker", "-c", "1")
    worker = SidekiqProcess(words, redis_url=redis_url, environment=environment(**variables)).start()

    assert worker.wait(_SECONDS) not in (0, None)
    assert error in worker.log


def test_a_test_worker_has_steps_too(redis_url: str) -> None:
    """One that fails is seen by the test."""
    app = Celery("proj", broker=redis_url, backend=redis_url, set_as_current=False)
    seen: list[str] = []

    class Seen(bootsteps.StartStopStep):
        def start(self, parent: object) -> None:
            seen.append("start")

        def stop(self, parent: object) -> None:
            seen.append("stop")

    class Failing(Seen):
        def start(self, parent: object) -> None:
            raise OSError("no probe file")

    app.steps["worker"].add(Seen)
    with start_worker(app, perform_ping_check=False) as worker:
        assert seen == ["start"]
        with pytest.raises(AttributeError, match="a consumer has no 'strategies' here"):
            _ = worker.consumer.strategies
        consumer = worker.consumer
        assert (consumer.pool, consumer.hub) == (worker.pool, worker.hub)
        assert worker.pool.num_processes == worker.pool.limit == worker.concurrency
        with pytest.raises(AttributeError, match=r"has no 'grow' here.*pool_grow"):
            worker.pool.grow(1)
    assert seen == ["start", "stop"]

    app.steps["consumer"].add(Failing)
    with pytest.raises(OSError, match="no probe file"), start_worker(app, perform_ping_check=False):
        raise AssertionError("it has started")


def test_a_consumer_shows_which_queues_the_worker_serves(redis_url: str) -> None:
    """Nautobot's receiver of `worker_ready` reads them, to tell its database which queues have a worker."""
    app = Celery("proj", broker=redis_url, backend=redis_url, set_as_current=False)

    with start_worker(app, perform_ping_check=False, queues="mails,reports", hostname="w1@here") as worker:
        served = worker.consumer.task_consumer.queues
        wait_for_an_answer(app, limit=1)
        app.control.add_consumer("later", destination=["w1@here"], reply=True, timeout=_SECONDS, limit=1)
        served_later = worker.consumer.task_consumer.queues

    assert sorted(queue.name for queue in served) == ["mails", "reports"]
    assert sorted(queue.name for queue in served_later) == ["later", "mails", "reports"]


def test_a_step_sends_an_event_of_its_own_through_the_consumer_s_dispatcher(redis_url: str) -> None:
    """A step requires `Connection` and `Events` to use the consumer's `connection` and `event_dispatcher`."""
    app = Celery("proj", broker=redis_url, backend=redis_url, set_as_current=False)
    connections: list[Any] = []

    class Telling(bootsteps.StartStopStep):
        requires = ("celery.worker.consumer.connection:Connection", "celery.worker.consumer.events:Events")

        def start(self, parent: Any) -> None:
            connections.append(parent.connection)
            parent.event_dispatcher.send("cache-filled", entries=3)

    app.steps["consumer"].add(Telling)
    with listening(redis_url) as monitor, start_worker(app, perform_ping_check=False, hostname="w1@here"):
        event = monitor.wait_for("cache-filled")
        assert connections[0].connected

    assert (event["hostname"], event["entries"]) == ("w1@here", 3)
    assert not connections[0].connected


def test_a_step_is_given_the_options_of_the_worker_s_beat(redis_url: str) -> None:
    """By name, as all options of the command are; a step may require them, as `scheduler` here."""
    app = Celery("proj", broker=redis_url, backend=redis_url, set_as_current=False)
    given: list[object] = []

    class Asking(bootsteps.Step):
        def __init__(
            self, parent: object, *, beat: bool, scheduler: str, schedule_filename: str, **options: object
        ) -> None:
            super().__init__(parent, **options)
            given.extend((beat, scheduler, schedule_filename))

    app.steps["worker"].add(Asking)
    with start_worker(app, perform_ping_check=False, beat=False, scheduler="proj:Mine", schedule_filename="state"):
        assert given == [False, "proj:Mine", "state"]


def test_a_step_may_ask_for_parts_that_a_worker_has_only_sometimes(redis_url: str) -> None:
    """In Celery, too, `statedb` and `autoscaler` are None unless the worker was started with that option."""
    app = Celery("proj", broker=redis_url, backend=redis_url, set_as_current=False)

    with start_worker(app, perform_ping_check=False) as worker:
        assert (worker.use_eventloop, worker.statedb, worker.autoscaler) == (False, None, None)


def test_a_worker_and_its_consumer_show_their_node_and_phase(redis_url: str) -> None:
    """As Celery's guide on extensions prints them; the text of a worker is its node's name."""
    app = Celery("phases", broker=redis_url, backend=redis_url, set_as_current=False)
    seen = []

    class Shown(bootsteps.Step):
        def __init__(self, parent: object, **kwargs: object) -> None:
            super().__init__(parent, **kwargs)
            seen.append(repr(parent))

        def include(self, parent: Any) -> None:
            parent.steps.append(self)

        def start(self, parent: object) -> None:
            seen.append(repr(parent))

        def stop(self, parent: object) -> None:
            seen.append(repr(parent))

    app.steps["worker"].add(Shown)
    app.steps["consumer"].add(Shown)

    with start_worker(app, perform_ping_check=False, hostname="w1@here") as worker:
        assert str(worker) == "w1@here"

    assert seen == [
        *("<Worker: w1@here (initializing)>", "<Consumer: w1@here (initializing)>"),
        *("<Worker: w1@here (running)>", "<Consumer: w1@here (running)>"),
        *("<Consumer: w1@here (closing)>", "<Worker: w1@here (closing)>"),
    ]


def test_a_step_that_is_nowhere_is_refused_by_its_path() -> None:
    """With what to do instead."""
    with pytest.raises(ImproperlyConfigured, match=r"there is no bootstep proj\.nowhere:Step"):
        bootsteps.Blueprint(["proj.nowhere:Step"]).apply(object())
