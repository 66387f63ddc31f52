"""Which calls of unique tasks are sent."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis
import sidekiq_celery.transport  # noqa: F401 - registers the schemes
from kombu import Connection
from kombu.exceptions import EncodeError, OperationalError
from sidekiq_celery import Celery, Task, group, signals
from sidekiq_celery._send.clients import client_of

from sidekiq_py import program
from sidekiq_py.redis_access.job_path.verbs import verbs
from sidekiq_py.testing import fake
from tests.compat.beat.beats import jobs
from tests.support.cutting_proxy import CuttingProxy, Where
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

Holders = Callable[[], list[str]]


def ids(client: redis.Redis) -> list[str]:
    """The ids of the jobs that wait, the oldest first."""
    return [job["jid"] for job in jobs(client)]


@pytest.fixture
def sync(app: Celery) -> Any:
    """A task that is unique for a minute."""

    @app.task(name="proj.sync", unique_for=60)
    def run(customer: int, depth: int = 1) -> None:
        """Does nothing."""

    return run


def test_the_same_call_is_sent_once(sync: Any, redis_client: redis.Redis, holders: Holders) -> None:
    """The second one gets the first one's result."""
    first = sync.delay(1)
    second = sync.delay(1)

    assert second.id == first.id
    assert ids(redis_client) == [first.id]
    assert holders() == [first.id]


def test_how_arguments_are_given_does_not_matter(sync: Any, redis_client: redis.Redis) -> None:
    """By place or by name, and a default or what equals it."""
    first = sync.delay(1)

    others = [sync.delay(customer=1), sync.delay(1, 1), sync.apply_async((1,), {"depth": 1}), sync.s(1).delay()]

    assert {other.id for other in others} == {first.id}
    assert ids(redis_client) == [first.id]


def test_other_arguments_are_another_call(sync: Any, redis_client: redis.Redis) -> None:
    """So are equal values of another type, and another task's."""
    sent = [sync.delay(1), sync.delay(2), sync.delay(1, 2), sync.delay(True), sync.delay(1.0), sync.delay("1")]

    @sync.app.task(name="proj.other", unique_for=60)
    def other(customer: int) -> None:
        """Does nothing."""

    sent.append(other.delay(1))

    assert ids(redis_client) == [result.id for result in sent]


def test_the_payload_says_what_its_end_must_know(app: Celery, sync: Any, redis_client: redis.Redis) -> None:
    """The digest in the lock's key, and for how long; a task that is not unique says nothing."""

    @app.task(name="proj.plain")
    def plain() -> None:
        """Does nothing."""

    sync.delay(1)
    plain.delay()

    unique, usual = (job.get("celery", {}) for job in jobs(redis_client))
    [key] = redis_client.keys("sidekiq_py:unique:*")
    assert unique["unique"] == {"lock": key.decode().rpartition(":")[2], "for": 60}
    assert "unique" not in usual


def test_a_lock_expires(sync: Any, redis_client: redis.Redis) -> None:
    """After unique_for, counted from when the task is due."""
    sync.delay(1)
    [key] = redis_client.keys("sidekiq_py:unique:*")
    assert 0 < redis_client.pttl(key) <= 60_000
    redis_client.delete(key)

    later = sync.apply_async((1,), countdown=3600)

    assert 3_600_000 < redis_client.pttl(key) <= 3_660_000
    assert sync.delay(1).id == later.id
    assert redis_client.zcard("schedule") == 1


def test_a_call_says_otherwise(app: Celery, sync: Any, redis_client: redis.Redis) -> None:
    """Options of a call come before the task's; 0 sends it in any case."""

    @app.task(name="proj.plain")
    def plain(number: int) -> None:
        """Does nothing."""

    first = sync.delay(1)
    again = sync.apply_async((1,), unique_for=0)
    one = plain.apply_async((1,), unique_for=5)
    same = plain.s(1).set(unique_for=5, unique_until="start").delay()
    forced = plain.delay(1)

    assert same.id == one.id
    assert ids(redis_client) == [first.id, again.id, one.id, forced.id]


def test_a_key_of_ones_own(app: Celery, redis_client: redis.Redis) -> None:
    """It is given positional and keyword arguments; as an option of a call, too."""

    @app.task(name="proj.order", unique_for=60, unique_key=lambda args, kwargs: str(args[0]))
    def order(number: int, note: str) -> None:
        """Does nothing."""

    @app.task(name="proj.odd", unique_for=60, unique_key=lambda args, kwargs: 1)
    def odd() -> None:
        """Does nothing."""

    first = order.delay(1, "a")

    assert order.delay(1, "b").id == first.id
    assert order.apply_async((1, "b"), unique_key=lambda args, kwargs: args[1]).id != first.id
    with pytest.raises(TypeError, match=r"unique_key of proj\.odd returned 1"):
        odd.delay()


def test_a_class_says_by_a_method_what_is_the_same(app: Celery, redis_client: redis.Redis) -> None:
    """`unique_key` of a base class is asked like any method."""

    class OfCustomer(Task):
        unique_for = 60

        def unique_key(self, args: Any, kwargs: Any) -> str:
            return f"{self.name} {args[0]}"

    @app.task(name="proj.bill", base=OfCustomer)
    def bill(customer: int, month: int) -> None:
        """Does nothing."""

    first = bill.delay(1, 1)

    assert bill.delay(1, 2).id == first.id
    assert bill.delay(2, 1).id != first.id


def test_a_bound_task_with_retries_is_asked_by_its_own_parameters(app: Celery, redis_client: redis.Redis) -> None:
    """Neither `self` nor what autoretry puts around it counts."""

    @app.task(name="proj.wrapped", bind=True, autoretry_for=(ValueError,), unique_for=60)
    def wrapped(self: Any, a: int, *more: int, b: int = 2, **rest: int) -> None:
        """Does nothing."""

    first = wrapped.delay(1, 5, c=3)

    assert wrapped.apply_async((1, 5), {"c": 3, "b": 2}, task_id="another").id == first.id
    assert wrapped.delay(1, 5).id != first.id
    assert wrapped.delay(1, c=3).id != first.id


def test_what_is_kept_for_tests_takes_no_lock(sync: Any, holders: Holders) -> None:
    """`sidekiq_py.testing.fake` gathers each call."""
    with fake() as kept:
        sync.delay(1)
        sync.delay(1)

    assert len(kept) == 2
    assert holders() == []


def test_what_is_no_json_needs_a_key(app: Celery, redis_client: redis.Redis) -> None:
    """The error says so; with a key pickled arguments do."""

    @app.task(name="proj.any", unique_for=60, serializer="pickle")
    def anything(value: Any) -> None:
        """Does nothing."""

    with pytest.raises(EncodeError, match="needs a unique_key"):
        anything.delay(frozenset({object}))
    anything.apply_async((frozenset({1}),), unique_key=lambda args, kwargs: "all")

    assert redis_client.llen("queue:celery") == 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"unique_for": -1}, "unique_for is -1"),
        ({"unique_for": True}, "unique_for is True"),
        ({"unique_for": "60"}, "unique_for is '60'"),
        ({"unique_for": float("nan")}, "unique_for is nan"),
        ({"unique_for": 1e12}, "unique_for is"),
        ({"unique_for": 1, "unique_until": "succes"}, "unique_until is 'succes'"),
    ],
)
def test_what_cannot_be_meant_is_refused(sync: Any, options: dict[str, Any], match: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ValueError, match=match):
        sync.apply_async((1,), **options)


def test_a_task_whose_code_is_elsewhere_can_be_unique(app: Celery, redis_client: redis.Redis) -> None:
    """By options of send_task; arguments are compared as they are given."""
    first = app.send_task("elsewhere.sync", (1,), unique_for=60)

    assert app.send_task("elsewhere.sync", (1,), unique_for=60).id == first.id
    assert app.send_task("elsewhere.sync", kwargs={"customer": 1}, unique_for=60).id != first.id


def test_many_threads_at_once_send_one(sync: Any, redis_client: redis.Redis) -> None:
    """Lock and job are written in one step."""
    barrier = threading.Barrier(8)
    got: list[str] = []

    def call() -> None:
        barrier.wait()
        got.extend(sync.delay(number).id for number in range(20))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(got) == 160
    assert sorted(set(got)) == sorted(ids(redis_client))
    assert redis_client.llen("queue:celery") == 20


def test_who_listens_hears_of_what_is_sent(
    sync: Any, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """after_task_publish comes for a call that was sent; the log tells of the other."""
    calls: list[str] = []

    def listen(headers: Any, **_: Any) -> None:
        calls.append(headers["id"])

    signals.after_task_publish.connect(listen)
    try:
        first = sync.delay(1)
        with caplog.at_level(logging.INFO, logger="celery.app.base"):
            sync.delay(1)
    finally:
        signals.after_task_publish.disconnect(listen)

    assert calls == [first.id]
    assert f"the same call already exists, as {first.id}" in caplog.text


def test_a_push_that_is_refused_leaves_no_lock(sync: Any, redis_client: redis.Redis, holders: Holders) -> None:
    """Another type than a list stands at the queue's key."""
    redis_client.set("queue:celery", "odd")

    with pytest.raises(OperationalError, match="WRONGTYPE"):
        sync.delay(1)

    assert holders() == []


@pytest.mark.parametrize(("where", "jobs_there"), [("before reply", 2), ("in request", 1)])
def test_lock_and_job_are_there_together_or_not_at_all(
    redis_server: RedisServer, redis_client: redis.Redis, holders: Holders, where: Where, jobs_there: int
) -> None:
    """The connection breaks, and nobody knows which; it is not sent again by itself."""
    with CuttingProxy(redis_server.port) as proxy:
        app = Celery("proj", broker=proxy.url, set_as_current=False, fixups=[])
        app.send_task("elsewhere.first", unique_for=60)
        proxy.cut(verbs.script().digest, where)
        with pytest.raises(OperationalError):
            app.send_task("elsewhere.sync", unique_for=60)
        client_of(app).close()

    eventually(lambda: redis_client.llen("queue:celery") == jobs_there)
    assert sorted(ids(redis_client)) == holders()


def test_a_push_that_middleware_stops_takes_no_lock(sync: Any, holders: Holders) -> None:
    """Nothing is sent that would release it."""

    def stop(*_: Any) -> None:
        """Does not go on."""

    program.client_middleware.add(stop)
    try:
        sync.delay(1)
    finally:
        program.client_middleware.remove(stop)

    assert holders() == []


def test_pushes_that_wait_for_a_commit_take_the_lock_then(
    sync: Any, redis_client: redis.Redis, holders: Holders
) -> None:
    """The second one finds out at its own commit; a rollback leaves no lock."""
    postponed: list[Callable[[], None]] = []

    def after_commit(push: Callable[[], None]) -> bool:
        postponed.append(push)
        return True

    program.push_after_commit(after_commit)
    try:
        first = sync.delay(1)
        sync.delay(1)
    finally:
        program.push_after_commit(None)
    assert holders() == []
    for push in postponed:
        push()

    assert ids(redis_client) == holders() == [first.id]


def test_calls_of_workflows_are_sent_in_any_case(app: Celery, sync: Any, redis_client: redis.Redis) -> None:
    """Something waits for their ends; they take no lock either."""
    first = sync.delay(1)

    (sync.si(1) | sync.si(1)).delay()
    group(sync.si(1), sync.si(1)).delay()

    assert redis_client.llen("queue:celery") == 4
    assert [job["celery"].get("unique") is not None for job in jobs(redis_client)] == [True, False, False, False]
    assert ids(redis_client)[0] == first.id


def test_eager_calls_are_made_in_any_case(app: Celery, holders: Holders) -> None:
    """`apply` and task_always_eager run here and now, and take no lock."""
    runs: list[int] = []

    @app.task(name="proj.note", unique_for=60)
    def note(number: int) -> None:
        runs.append(number)

    note.apply((1,), unique_for=60)
    app.conf.task_always_eager = True
    note.delay(1)
    note.apply_async((1,), unique_for=60)

    assert runs == [1, 1, 1]
    assert holders() == []


def test_a_purged_task_leaves_no_lock(app: Celery, sync: Any, redis_client: redis.Redis, holders: Holders) -> None:
    """However many are purged, and whatever stands among them; the lock of another's is left alone."""
    for number in range(1005):
        sync.delay(number)
    redis_client.lpush(
        "queue:celery", "no job", '{"celery":"lock"}', '{"celery":{"unique":{"lock":"x\\ud800","for":9}}}'
    )
    stolen = redis_client.keys("sidekiq_py:unique:*")[0]
    redis_client.set(stolen, "another")

    assert app.control.purge() == 1008

    assert holders() == ["another"]
    redis_client.delete(stolen)
    assert ids(redis_client) == []
    assert [sync.delay(1).id] == ids(redis_client)


def test_kombu_purges_without_a_lock_too(
    redis_url: str, sync: Any, redis_client: redis.Redis, holders: Holders
) -> None:
    """As `celery purge` of the real one does, by our transport."""
    sync.delay(1)

    with Connection(redis_url.replace("redis://", "sidekiq://")) as connection:
        assert connection.default_channel.queue_purge("celery") == 1

    assert holders() == []
    assert redis_client.smembers("queues") == set()
