"""What a result leaves in Redis."""

import asyncio
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import ModuleType
from typing import Any
from unittest.mock import Mock, patch

import pytest
import redis
from kombu.exceptions import EncodeError
from sidekiq_celery import Celery
from sidekiq_celery._wire.context import Context
from sidekiq_celery.backends.redis import RedisBackend
from sidekiq_celery.exceptions import BackendStoreError
from sidekiq_celery.result import AsyncResult

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path import settle_script

MakeApp = Callable[..., Celery]


def meta(redis_client: redis.Redis, task_id: str, prefix: str = "") -> dict[str, Any]:
    """What is stored of a task."""
    stored: dict[str, Any] = json.loads(redis_client.get(f"{prefix}celery-task-meta-{task_id}") or b"null")
    return stored


def test_a_result_is_json_under_the_tasks_id_and_goes_in_a_day(app: Celery, redis_client: redis.Redis) -> None:
    """The fields stand in Celery's order, and the state is the first."""
    app.backend.mark_as_done("a", [1, None, "é"])

    stored = meta(redis_client, "a")
    assert list(stored) == ["status", "result", "traceback", "children", "date_done", "task_id"]
    assert datetime.fromisoformat(stored.pop("date_done")).tzinfo is not None
    assert stored == {
        "status": "SUCCESS", "result": [1, None, "é"], "traceback": None, "children": None, "task_id": "a"
    }  # fmt: skip
    assert (redis_client.get("celery-task-meta-a") or b"").startswith(b'{"status": "SUCCESS", ')
    assert 86300 < redis_client.ttl("celery-task-meta-a") <= 86400


def test_what_is_stored_is_published_too(app: Celery, redis_client: redis.Redis) -> None:
    """The channel bears the name of the key: that is what Celery's clients wait for."""
    listener = redis_client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("celery-task-meta-a")
    assert listener.get_message(timeout=5) is None

    app.backend.store_result("a", {"done": 3}, "PROGRESS")

    message = listener.get_message(timeout=5)
    assert message is not None
    assert message["data"] == redis_client.get("celery-task-meta-a")
    listener.close()


@pytest.mark.parametrize("serializer", ["json", "yaml", "pickle"])
def test_a_first_success_is_not_overwritten(make_app: MakeApp, redis_client: redis.Redis, serializer: str) -> None:
    """Neither by the failure of a second run, nor by its success."""
    app = make_app(result_serializer=serializer, accept_content=[serializer])

    app.backend.mark_as_failure("a", ValueError("first"))
    app.backend.mark_as_done("a", 1)
    before = redis_client.get("celery-task-meta-a")
    app.backend.mark_as_failure("a", ValueError("second"))
    app.backend.mark_as_done("a", 2)

    assert redis_client.get("celery-task-meta-a") == before
    assert app.AsyncResult("a").get(timeout=60) == 1


def test_a_failure_names_its_exception(app: Celery, redis_client: redis.Redis) -> None:
    """By module, class and arguments; those that cannot be written become their text."""
    app.backend.mark_as_failure("a", ValueError("no", object), traceback="Traceback …")

    stored = meta(redis_client, "a")
    assert stored["result"] == {
        "exc_type": "ValueError", "exc_message": ["no", "<class 'object'>"], "exc_module": "builtins"
    }  # fmt: skip
    assert stored["traceback"] == "Traceback …"


def test_celerys_exceptions_bear_celerys_names(app: Celery, redis_client: redis.Redis) -> None:
    """A client of Celery's would not find ours."""
    app.backend.mark_as_revoked("a", "terminated")

    assert meta(redis_client, "a")["result"]["exc_module"] == "celery.exceptions"


def test_failures_may_go_sooner(make_app: MakeApp, redis_client: redis.Redis) -> None:
    """`result_failure_expires` is for them alone."""
    app = make_app(result_failure_expires=60, result_expires=timedelta(hours=1))

    app.backend.mark_as_failure("a", ValueError())
    app.backend.mark_as_done("b", 1)

    assert redis_client.ttl("celery-task-meta-a") <= 60
    assert 3500 < redis_client.ttl("celery-task-meta-b") <= 3600


def test_results_may_stay_for_ever(make_app: MakeApp, redis_client: redis.Redis) -> None:
    """`result_expires=0`."""
    make_app(result_expires=0).backend.mark_as_done("a", 1)

    assert redis_client.ttl("celery-task-meta-a") == -1


def test_keys_may_bear_a_prefix(make_app: MakeApp, redis_client: redis.Redis) -> None:
    """An underscore parts it from the rest, unless it ends with a sign."""
    for own in ("shop", "club:"):
        app = make_app(result_backend_transport_options={"global_keyprefix": own})
        app.backend.mark_as_done("a", 1)
        assert app.AsyncResult("a").get(timeout=60) == 1

    assert sorted(redis_client.keys()) == [b"club:celery-task-meta-a", b"shop_celery-task-meta-a"]


def test_the_call_is_stored_along_when_asked_for(make_app: MakeApp, redis_client: redis.Redis) -> None:
    """`result_extended`; group and parent stand there anyway."""
    app = make_app(result_extended=True)
    request = Context(
        id="a", task="proj.add", args=[1], kwargs={"b": 2}, hostname="w@h", retries=3, group="g", parent_id="p",
        delivery_info={"routing_key": "high"}, stamped_headers=["s"], stamps={"s": ["x"], "t": 1},
    )  # fmt: skip

    app.backend.mark_as_done("a", 1, request=request)

    stored = meta(redis_client, "a")
    assert {key: stored[key] for key in ("group_id", "parent_id", "s", "stamped_headers")} == {
        "group_id": "g", "parent_id": "p", "s": ["x"], "stamped_headers": ["s"]
    }  # fmt: skip
    result = app.AsyncResult("a")
    assert (result.name, result.args, result.kwargs, result.worker, result.retries, result.queue) == (
        "proj.add", [1], {"b": 2}, "w@h", 3, "high"
    )  # fmt: skip


def test_the_results_of_called_tasks_are_stored_as_tuples(app: Celery) -> None:
    """And come back as results."""
    request = Context(id="a")
    request.children.append(app.AsyncResult("child", parent=app.AsyncResult("a")))

    app.backend.mark_as_done("a", 1, request=request)

    [child] = app.AsyncResult("a").children
    assert (child.id, child.parent.id) == ("child", "a")


def test_types_that_json_lacks_come_back(app: Celery) -> None:
    """As kombu writes them."""
    values = [datetime(2026, 1, 2, tzinfo=UTC), Decimal("1.50"), b"\xff"]

    app.backend.mark_as_done("a", values)

    assert app.AsyncResult("a").get(timeout=60) == values


@pytest.mark.parametrize("serializer", ["yaml", "pickle"])
def test_other_serializers_and_compression(make_app: MakeApp, redis_client: redis.Redis, serializer: str) -> None:
    """By kombu's registry; a reader that compresses nothing reads what is compressed."""
    own = {"result_serializer": serializer, "accept_content": [serializer]}
    make_app(result_compression="gzip", **own).backend.mark_as_done("a", {"x": "y" * 100})

    assert (redis_client.get("celery-task-meta-a") or b"").startswith(b"\x00celery-compressed\x00")
    assert make_app(**own).AsyncResult("a").get(timeout=60) == {"x": "y" * 100}


def test_results_are_not_compressed_for_clients_that_read_text(
    make_app: MakeApp, redis_url: str, redis_client: redis.Redis
) -> None:
    """Those of Celery with such a URL could not read them."""
    text = make_app(result_compression="gzip", result_backend=f"{redis_url}?decode_responses=true")

    with pytest.warns(UserWarning, match="result_compression has no effect"):
        text.backend.mark_as_done("a", "\u00e9")

    assert b'"status": "SUCCESS"' in (redis_client.get("celery-task-meta-a") or b"")
    assert isinstance(text.backend.client.get("celery-task-meta-a"), str)


def test_what_cannot_be_written_is_an_error(app: Celery, redis_client: redis.Redis) -> None:
    """kombu's, as in Celery."""
    with pytest.raises(EncodeError):
        app.backend.mark_as_done("a", object())

    assert redis_client.keys() == []


def test_a_result_is_written_while_another_thread_imports_kombu(
    app: Celery, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its module is there by then, and empty."""
    monkeypatch.setitem(sys.modules, "kombu.serialization", ModuleType("kombu.serialization"))

    app.backend.mark_as_done("a", 1)

    assert meta(redis_client, "a")["result"] == 1


def test_a_programs_own_json_is_used(app: Celery) -> None:
    """Registered with kombu in place of its own."""
    from kombu.serialization import registry

    known = registry._encoders["json"]
    registry._encoders["json"] = known._replace(encoder=lambda data: "own")
    try:
        assert app.backend.encode({"x": 1}) == "own"
    finally:
        registry._encoders["json"] = known
    assert app.backend.encode({"x": 1}) == '{"x": 1}'


def test_what_is_too_long_for_redis_is_an_error(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the task."""
    monkeypatch.setattr(app.backend, "_MAX_STR_VALUE_SIZE", 100)

    with pytest.raises(BackendStoreError) as caught:
        app.backend.mark_as_done("a", "x" * 100)

    assert (caught.value.task_id, caught.value.state) == ("a", "SUCCESS")


def test_a_counter_is_incremented(app: Celery, redis_client: redis.Redis) -> None:
    """Programs that use the backend as a store may count there."""
    assert [app.backend.incr("visits"), app.backend.incr("visits")] == [1, 2]
    assert redis_client.get("visits") == b"2"


def test_a_group_is_stored_under_its_id(app: Celery, redis_client: redis.Redis) -> None:
    """With its parent, its members and theirs; and can be removed."""
    inner = app.GroupResult("inner", [app.AsyncResult("b")])
    group = app.GroupResult("outer", [app.AsyncResult("a"), inner], parent=app.AsyncResult("p"))

    group.save()

    stored = json.loads(redis_client.get("celery-taskset-meta-outer") or b"null")
    assert stored == {
        "result": [
            ["outer", [["p", None], None]],
            [[["a", None], None], [["inner", None], [[["b", None], None]]]],
        ]
    }
    assert redis_client.ttl("celery-taskset-meta-outer") > 0
    assert app.GroupResult.restore("outer") == group
    group.delete()
    assert app.GroupResult.restore("outer") is None


def test_forgetting_removes_a_result(app: Celery, redis_client: redis.Redis) -> None:
    """And those of the steps before."""
    for task_id in "ab":
        app.backend.mark_as_done(task_id, 1)
    result = app.AsyncResult("b", parent=app.AsyncResult("a"))
    assert result.exists()

    result.forget()

    assert redis_client.keys() == []
    assert not result.exists()


def test_a_result_that_was_read_and_forgotten_is_not_waited_for(app: Celery) -> None:
    """`get` returns None, as in Celery: as a rule nothing will ever be stored again."""
    app.backend.mark_as_done("a", 1)
    result = app.AsyncResult("a")
    assert result.get(timeout=60) == 1

    result.forget()

    assert result.state == "PENDING"
    assert result.get(timeout=0.1) is None
    assert asyncio.run(result.aget(timeout=0.1)) is None


def test_a_forgotten_result_that_is_stored_again_is_returned(app: Celery) -> None:
    """As in Celery: a program may send the task again under its id, and a task that failed may be retried by hand."""
    app.backend.mark_as_done("a", 1)
    result = app.AsyncResult("a")
    result.get(timeout=60)
    result.forget()

    app.backend.mark_as_done("a", 2)
    assert asyncio.run(result.aget(timeout=60)) == 2
    result.forget()
    app.backend.mark_as_failure("a", ValueError("no"))

    with pytest.raises(ValueError, match="no"):
        result.get(timeout=60)


def test_a_group_that_was_read_and_forgotten_is_not_waited_for(app: Celery) -> None:
    """As a single result: `get` returns what is stored now."""
    group = app.GroupResult("g", [app.AsyncResult("a"), app.AsyncResult("b")])
    for task_id in "ab":
        app.backend.mark_as_done(task_id, 1)
    group.get(timeout=60)
    group.forget()

    app.backend.mark_as_done("b", 2)

    assert group.get(timeout=0.1) == [None, 2]


def test_a_large_group_is_forgotten_in_few_commands(app: Celery, redis_client: redis.Redis) -> None:
    """One for each result took seconds for 10,000. Chains, groups within it and steps before it go, too."""
    chained = app.AsyncResult("chained", parent=app.AsyncResult("step before"))
    inner = app.GroupResult("inner", [app.AsyncResult("inside")])
    many = [app.AsyncResult(str(number)) for number in range(2500)]
    group = app.GroupResult("g", [*many, chained, inner])
    calls: list[Any] = []
    many[0].then(calls.append)
    for task_id in ("0", "1", "2499", "chained", "step before", "inside"):
        app.backend.set(app.backend.get_key_for_task(task_id), "{}")
    redis_client.config_resetstat()

    group.forget()

    assert redis_client.keys("celery-task-meta-*") == []
    assert redis_client.info("commandstats")["cmdstat_del"]["calls"] == 3 + 2
    assert app.backend._awaited == {}


@pytest.mark.parametrize("name", ["forget", "_forget", "delete"])
def test_a_backend_with_its_own_way_to_forget_is_asked_for_each_result(app: Celery, redis_url: str, name: str) -> None:
    """As before there was another way."""
    asked: list[Any] = []
    kind = type("Own", (RedisBackend,), {name: lambda backend, what: asked.append(what)})
    backend = kind(redis_url, app=app)

    app.ResultSet([app.AsyncResult(task_id, backend=backend) for task_id in "ab"]).forget()

    assert asked == ([b"celery-task-meta-a", b"celery-task-meta-b"] if name == "delete" else ["a", "b"])


def test_what_a_program_s_tests_put_in_place_of_forget_is_called(app: Celery) -> None:
    """As while each result was asked: such tests count the calls, and a mocked backend has every method."""
    mocked = Mock()
    app.ResultSet([app.AsyncResult("a", backend=mocked), app.AsyncResult("b", backend=mocked)]).forget()
    assert [call.args for call in mocked.forget.mock_calls] == [("a",), ("b",)]

    for owner in (app.backend, RedisBackend):
        with patch.object(owner, "forget") as of_backend:
            app.ResultSet([app.AsyncResult("a"), app.AsyncResult("b")]).forget()
        assert of_backend.call_count == 2

    result = app.AsyncResult("a")
    for owner in (result, AsyncResult):
        with patch.object(owner, "forget") as of_result:
            app.ResultSet([result]).forget()
        assert of_result.call_count == 1


def test_a_result_that_is_forgotten_before_it_comes_is_waited_for(app: Celery) -> None:
    """The task may still end."""
    result = app.AsyncResult("a")

    result.forget()
    app.backend.mark_as_done("a", 1)

    assert result.get(timeout=60) == 1


def test_a_result_in_the_jobs_own_database_is_written_with_the_jobs_end(
    app: Celery, redis_client: redis.Redis, redis_url: str
) -> None:
    """The effects leave just what storing it leaves, and a first success as it is."""
    effects = app.backend.effects_for("a", "SUCCESS", 1)
    assert effects is not None
    assert redis_client.keys() == []
    pool = Pool(RedisSettings(redis_url))

    with pool.link() as link:
        settle_script.write(link, effects)
        settle_script.write(link, app.backend.effects_for("a", "FAILURE", ValueError()) or ())

    pool.close()
    assert (meta(redis_client, "a")["status"], meta(redis_client, "a")["result"]) == ("SUCCESS", 1)


@pytest.mark.parametrize("elsewhere", ["redis://localhost:1/0", "redis://127.0.0.1:1/3"])
def test_results_elsewhere_are_no_part_of_the_jobs_end(make_app: MakeApp, elsewhere: str) -> None:
    """Another server, or another database: they are written first."""
    app = make_app(broker_url="redis://127.0.0.1:1/0", result_backend=elsewhere)

    effects = app.backend.effects_for("a", "SUCCESS", 1)

    assert (effects is not None) == elsewhere.endswith("/0")


def test_jobs_under_a_prefix_and_results_under_the_same_are_one_step(make_app: MakeApp) -> None:
    """The engine puts the prefix in front itself; results beside it are elsewhere."""
    prefixed = make_app(
        broker_transport_options={"global_keyprefix": "shop:"},
        result_backend_transport_options={"global_keyprefix": "shop:"},
    )
    beside = make_app(broker_transport_options={"global_keyprefix": "shop:"})

    [effect] = prefixed.backend.effects_for("a", "SUCCESS", 1) or ()

    assert effect.key == "celery-task-meta-a"
    assert beside.backend.effects_for("a", "SUCCESS", 1) is None
