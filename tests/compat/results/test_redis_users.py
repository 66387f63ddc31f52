"""A Redis user with the rights that docs/redis.md names for results, and no more."""

import re
from collections.abc import Callable

import pytest
import redis
from sidekiq_celery import Celery

from tests.compat.results.test_waiting import LONG, when_waited_for
from tests.support.worker_process import REPOSITORY


def documented_rules() -> list[str]:
    """Those that come on top of others."""
    [rules] = re.findall(r"`(~celery-task\*[^`]+)`", (REPOSITORY / "docs" / "redis.md").read_text())
    return str(rules).split()


def test_the_documented_rights_are_enough_for_results(
    make_app: Callable[..., Celery], redis_client: redis.Redis, redis_url: str, request: pytest.FixtureRequest
) -> None:
    """Storing, waiting, groups, forgetting: nothing is refused but what every connection may be refused."""
    redis_client.execute_command(
        "ACL", "SETUSER", "results", "reset", "on", ">secret", "-@all", "+ping", "+select", *documented_rules()
    )
    request.addfinalizer(lambda: redis_client.acl_deluser("results"))
    redis_client.acl_log_reset()
    app = make_app(result_backend=redis_url.replace("://", "://results:secret@", 1))

    thread = when_waited_for(redis_client, "a", lambda: app.backend.mark_as_done("a", 1))
    assert app.AsyncResult("a").get(timeout=LONG) == 1
    thread.join()
    group = app.GroupResult("g", [app.AsyncResult("a")])
    group.save()
    assert app.GroupResult.restore("g").get(timeout=LONG) == [1]
    app.AsyncResult("a").forget()
    group.delete()

    assert redis_client.keys() == []
    refused = {entry["object"].lower() for entry in redis_client.acl_log()}
    assert refused <= {"client", "client|setinfo"}
