"""A Redis user with the rights that docs/redis.md names for results, and no more."""

import re
from collections.abc import Callable

import pytest
import redis
from sidekiq_celery import Celery, chord, stored_results, workflow_state

from tests.compat.results.test_waiting import LONG, when_waited_for
from tests.support.redis_users import documented_users, rights_on_top
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
    many = [app.AsyncResult(f"many-{number}") for number in range(20)]
    for one in many:
        app.backend.mark_as_done(one.id, 2)
    assert app.ResultSet(many).get(timeout=LONG) == [2] * 20
    for one in many:
        one.forget()
    group = app.GroupResult("g", [app.AsyncResult("a")])
    group.save()
    assert app.GroupResult.restore("g").get(timeout=LONG) == [1]
    app.AsyncResult("a").forget()
    group.delete()

    assert redis_client.keys() == []
    refused = {entry["object"].lower() for entry in redis_client.acl_log()}
    assert refused <= {"client", "client|setinfo"}


def test_the_documented_rights_are_enough_for_monitors(
    make_app: Callable[..., Celery], redis_client: redis.Redis, redis_url: str, request: pytest.FixtureRequest
) -> None:
    """They scan the results, and read chains and chords that have not ended."""
    own = [*documented_users()["enqueue"], *documented_rules(), *rights_on_top("Programs that read `sidekiq_celery.")]
    redis_client.execute_command("ACL", "SETUSER", "monitor", "reset", *own)
    request.addfinalizer(lambda: redis_client.acl_deluser("monitor"))
    whole = make_app(broker=redis_url, result_backend=redis_url)
    step = whole.task(name="step")(lambda *args: None)
    (step.si() | step.si()).delay()
    chord([step.si(), step.si()], step.s(), app=whole).delay()
    whole.backend.mark_as_done("a", 1)

    url = redis_url.replace("://", "://monitor:a-password@", 1)
    app = make_app(broker=url, result_backend=url)

    assert [one.task_id for one in stored_results.page(app).results] == ["a"]
    found = [workflow_state.read(app, one.id) for one in workflow_state.unfinished(app).workflows]
    assert sorted((len(one.steps), len(one.members)) for one in found) == [(0, 2), (1, 0)]
