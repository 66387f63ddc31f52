"""A Redis user with the rights that docs/redis.md names for events, and no more."""

import re
from collections.abc import Callable

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery.events import Event
from sidekiq_celery.events.outbox import outbox_of

from tests.compat.events.event_monitor import LONG, EventMonitor
from tests.support.redis_server import RedisServer
from tests.support.redis_users import Users, rights_on_top
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY


def documented_rules() -> list[str]:
    """Those that come on top of others."""
    [rules] = re.findall(r"`(&/0\.celeryev/\* \+publish)`", (REPOSITORY / "docs" / "redis.md").read_text())
    return str(rules).split()


def test_the_documented_rights_are_enough_to_send_events(
    make_app: Callable[..., Celery],
    redis_client: redis.Redis,
    redis_url: str,
    monitor: EventMonitor,
    request: pytest.FixtureRequest,
) -> None:
    """Nothing is refused but what every connection may be refused."""
    redis_client.execute_command(
        "ACL",
        "SETUSER",
        "teller",
        "reset",
        "on",
        ">secret",
        "resetchannels",
        "-@all",
        "+ping",
        "+select",
        *documented_rules(),
    )
    request.addfinalizer(lambda: redis_client.acl_deluser("teller"))
    redis_client.acl_log_reset()
    outbox = outbox_of(make_app(redis_url.replace("://", "://teller:secret@", 1)))

    outbox.put(Event("task-started", uuid="1"), "w1@here", "json")

    monitor.wait_for("task-started", "1")
    refused = {entry["object"].lower() for entry in redis_client.acl_log()}
    assert refused <= {"client", "client|setinfo"}


def test_the_documented_rights_are_enough_to_receive_events(
    make_app: Callable[..., Celery], new_redis_server: Callable[..., RedisServer]
) -> None:
    """A monitor subscribes to a pattern, which must be among the channels of its user as it stands."""
    server = new_redis_server()
    with server.client() as admin:
        users = Users(server, admin)
        users.create()
        rights = ["Workers and beats that answer remote control", "Workers that send events"]
        users.give("worker", [word for whose in rights for word in rights_on_top(whose)])
        app = make_app(users.url("worker"))
        outbox = outbox_of(make_app(server.url))
        with app.connection_for_read() as connection:
            received: list[str] = []
            receiver = app.events.Receiver(connection, {"*": lambda event: received.append(event["type"])})
            reading = receiver.consume(limit=None, timeout=LONG, wakeup=False)
            # The first round brings the reply to the subscription.
            next(reading)
            outbox.put(Event("task-started", uuid="1"), "w1@here", "json")
            eventually(lambda: next(reading) is None and received, within_seconds=LONG)
            reading.close()

        assert received == ["task-started"]
        assert users.refusals() == []
