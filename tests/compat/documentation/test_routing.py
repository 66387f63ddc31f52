"""Celery's guide "Routing Tasks", walked through with the import changed."""

import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import redis
from kombu import Exchange, Queue, binding
from kombu.common import Broadcast
from sidekiq_celery import Celery
from sidekiq_celery.exceptions import ImproperlyConfigured

from tests.compat.documentation.conftest import WAIT_SECONDS
from tests.support.celery_program import StartWorker


@pytest.fixture
def routed(guide_redis: Any) -> Iterator[Any]:
    """An app to give routes to, and where its calls go: `routed("name", **options)`."""
    # A database in which no worker takes them away.
    url = f"{guide_redis.url.rsplit('/', 1)[0]}/5"
    app = Celery("routed", broker=url, set_as_current=False)
    client = redis.Redis.from_url(url, decode_responses=True)

    def queue_of(task: str, **options: Any) -> str:
        result = app.send_task(task, **options)
        [key] = [key for key in client.keys("queue:*") if result.id in str(client.lindex(key, 0))]
        return str(key).removeprefix("queue:")

    queue_of.app = app  # type: ignore[attr-defined]
    yield queue_of
    client.flushdb()
    client.close()
    app.close()


def test_routes_by_name_pattern_and_expression(routed: Any) -> None:
    """Section "Automatic routing": the first that fits decides."""
    routed.app.conf.update(task_routes={"feed.tasks.import_feed": {"queue": "feeds"}})
    assert (routed("feed.tasks.import_feed"), routed("other")) == ("feeds", "celery")

    routed.app.conf.update(
        task_routes=(
            [
                ("feed.tasks.*", {"queue": "feeds"}),
                ("web.tasks.*", {"queue": "web"}),
                (re.compile(r"(video|image)\.tasks\..*"), {"queue": "media"}),
            ],
        )
    )
    assert [routed(f"{name}.tasks.x") for name in ("feed", "web", "video", "image")] == [
        "feeds",
        "web",
        "media",
        "media",
    ]


def test_the_default_queue_may_have_another_name(routed: Any) -> None:
    """Section "Changing the name of the default queue"."""
    routed.app.conf.task_default_queue = "default"

    assert routed("any.task") == "default"


def test_queues_are_declared_with_exchanges_and_keys(routed: Any) -> None:
    """Section "Manual routing": a topic's key finds the queue that is bound so."""
    routed.app.conf.task_default_queue = "default"
    routed.app.conf.task_queues = (Queue("default", routing_key="task.#"), Queue("feed_tasks", routing_key="feed.#"))
    routed.app.conf.task_default_exchange = "tasks"
    routed.app.conf.task_default_exchange_type = "topic"
    routed.app.conf.task_default_routing_key = "task.default"
    routed.app.conf.task_routes = {"feeds.import": {"queue": "feed_tasks", "routing_key": "feed.import"}}

    assert (routed("feeds.import"), routed("other")) == ("feed_tasks", "default")


def test_a_queue_without_an_exchange_is_bound_to_the_default_one(routed: Any) -> None:
    """Section "Manual routing": a call with only a key finds its queue, because the default exchange is a topic."""
    routed.app.conf.update(
        task_default_queue="default",
        task_queues=(Queue("default", routing_key="task.#"), Queue("feed_tasks", routing_key="feed.#")),
        task_default_exchange="tasks",
        task_default_exchange_type="topic",
        task_default_routing_key="task.default",
    )

    queues = [routed("feeds.import", routing_key=key) for key in ("feed.import", "task.other")]

    assert queues == ["feed_tasks", "default"]


def test_a_task_is_routed_to_one_worker(routed: Any) -> None:
    """Guide "Configuration", section "worker_direct": its node name is the key. No other worker has that queue."""
    routed.app.conf.task_routes = {"tasks.add": {"exchange": "C.dq2", "routing_key": "w1@example.com"}}

    by_route, by_call = routed("tasks.add"), routed("tasks.mul", exchange="C.dq2", routing_key="w2@example.com")

    assert (by_route, by_call) == ("w1@example.com.dq2", "w2@example.com.dq2")


def test_exchanges_lead_to_queues(routed: Any) -> None:
    """Section "Defining queues": several queues on one exchange, several keys to one queue."""
    media = Exchange("media", type="direct")
    routed.app.conf.task_queues = (
        Queue("default", Exchange("default"), routing_key="default"),
        Queue("videos", media, routing_key="media.video"),
        Queue("images", media, routing_key="media.image"),
        Queue("both", [binding(Exchange("pair"), routing_key="a"), binding(Exchange("pair"), routing_key="b")]),
    )
    routed.app.conf.task_default_queue = "default"

    assert routed("x", exchange="media", routing_key="media.video") == "videos"
    assert routed("x", exchange="media", routing_key="media.image") == "images"
    assert routed("x", exchange="pair", routing_key="b") == "both"
    assert routed("x") == "default"


def route_task(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **kw: Any) -> Any:
    """A router."""
    return {"queue": "video", "routing_key": "video.compress"} if name == "compress_video" else None


def test_routers_are_functions_or_names_of_them(routed: Any) -> None:
    """Section "Routers": alone, in a list, or with a mapping behind."""
    routes: Any
    for routes in ((route_task,), (f"{__name__}.route_task",), [route_task, {"other": {"queue": "rest"}}]):
        routed.app.conf.update(task_routes=routes)
        assert routed("compress_video") == "video"
    assert (routed("other"), routed("none")) == ("rest", "celery")


def test_priorities_on_redis(routed: Any) -> None:
    """Section "Redis Message Priorities": 0 is the most urgent; here the names of lists are the queue's and a step."""
    routed.app.conf.broker_transport_options = {"queue_order_strategy": "priority"}

    assert [routed("x", priority=priority) for priority in (0, 4, 9)] == ["celery", "celery:3", "celery:9"]


def test_a_worker_takes_urgent_tasks_first(proj: ModuleType, app: Any, client: redis.Redis) -> None:
    """Section "Redis Message Priorities": with steps of one's own, a step is a queue."""
    app.conf.broker_transport_options = {"priority_steps": list(range(10)), "queue_order_strategy": "priority"}

    proj.add.apply_async((1, 1), priority=5, queue="steps")

    assert client.llen("queue:steps:5") == 1


def test_broadcasts_are_refused_with_advice(routed: Any) -> None:
    """Section "Broadcast": knowingly absent, as Sidekiq has no such queues."""
    routed.app.conf.task_queues = (Broadcast("broadcast_tasks"),)
    routed.app.conf.task_routes = {"reload": {"queue": "broadcast_tasks", "exchange": "broadcast_tasks"}}

    with pytest.raises(ImproperlyConfigured, match="broadcast 'broadcast_tasks'"):
        routed.app.send_task("reload")
    # It was sent to a queue that nobody reads.
    with pytest.raises(ImproperlyConfigured, match="broadcast 'other_tasks'"):
        routed.app.send_task("reload", queue=Broadcast("other_tasks"))


def test_a_worker_serves_named_queues_under_its_own_name(proj: ModuleType, start: StartWorker) -> None:
    """Section "Manual routing": `-Q feed_tasks --hostname=z@%h`."""
    start("-Q", "feed_tasks", "--hostname=z@%h", "-P", "solo")

    context = proj.dump_context.apply_async((1, 2), queue="feed_tasks").get(timeout=WAIT_SECONDS)

    assert (context["hostname"].split("@")[0], context["queue"]) == ("z", "feed_tasks")
