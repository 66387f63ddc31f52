"""A Redis user with the rights that docs/redis.md names for events, and no more."""

import re
from collections.abc import Callable

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery.events import Event
from sidekiq_celery.events.outbox import outbox_of

from tests.compat.events.event_monitor import EventMonitor
from tests.support.worker_process import REPOSITORY


def documented_rules() -> list[str]:
    """Those that come on top of others."""
    [rules] = re.findall(r"`(&/0\.celeryev\* \+publish)`", (REPOSITORY / "docs" / "redis.md").read_text())
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
        "ACL", "SETUSER", "teller", "reset", "on", ">secret", "-@all", "+ping", "+select", *documented_rules()
    )
    request.addfinalizer(lambda: redis_client.acl_deluser("teller"))
    redis_client.acl_log_reset()
    outbox = outbox_of(make_app(redis_url.replace("://", "://teller:secret@", 1)))

    outbox.put(Event("task-started", uuid="1"), "w1@here", "json")

    monitor.wait_for("task-started", "1")
    refused = {entry["object"].lower() for entry in redis_client.acl_log()}
    assert refused <= {"client", "client|setinfo"}
