"""What a worker makes of tasks."""

import asyncio
import copy
import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from kombu import Exchange, Queue
from sidekiq_celery import Celery, Task, signals
from sidekiq_celery._run.coroutine_limits import within_limits
from sidekiq_celery._run.failed_tasks import INDEX
from sidekiq_celery._run.plan import Plan
from sidekiq_celery.app import trace
from sidekiq_celery.app.task import Context
from sidekiq_celery.backends.interface import unwritten
from sidekiq_celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded, TimeLimitExceeded, WorkerLostError
from sidekiq_celery.worker.request import Request

from sidekiq_py.errors import JobFailed, Stopped
from sidekiq_py.running_job import current_job
from tests.compat.tasks.worker import TaskWorker
from tests.support.in_flight import jobs_in_flight
from tests.support.ledger import push_jobs
from tests.support.waiting import eventually


def stored(client: redis.Redis, task_id: str) -> dict[str, Any]:
    """A result as it is in Redis."""
    raw = client.get(f"celery-task-meta-{task_id}")
    return {} if raw is None else json.loads(raw)


def state_of(client: redis.Redis, task_id: str) -> Any:
    """Its state; None where nothing is stored."""
    return stored(client, task_id).get("status")


def processed(client: redis.Redis) -> int:
    """How many attempts have ended."""
    return int(client.get("stat:processed") or 0)


def test_a_result_is_stored(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """By the script that ends the job."""

    @app.task(name="proj.add")
    def add(x: int, y: int) -> int:
        return x + y

    worker.start()
    result = add.delay(2, y=3)

    eventually(lambda: state_of(redis_client, result.id) == "SUCCESS")
    assert stored(redis_client, result.id)["result"] == 5


def test_a_job_of_rubys_is_a_call_with_positional_arguments(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """Its last object is none of keyword arguments, as nobody says so."""
    seen: list[Any] = []

    @app.task(name="Import", bind=True)
    def run_import(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.append((args, kwargs, self.request.id, self.request.retries))

    worker.start()
    raw = '{"class":"Import","args":[1,{"a":2}],"jid":"0123456789abcdef01234567","queue":"celery","retry":true}'
    push_jobs(redis_client, [raw.encode()], queue="celery")

    eventually(lambda: seen == [((1, {"a": 2}), {}, "0123456789abcdef01234567", 0)])


def test_a_task_knows_its_call(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """`request` has the fields that Celery's has."""
    seen: list[Any] = []

    @app.task(name="proj.look", bind=True)
    def look(self: Any, a: int, b: int = 0) -> None:
        request = self.request
        seen.append(
            (request.id, request.args, request.kwargs, request.task, request.root_id, request.headers,
             request.tenant, request.delivery_info["routing_key"], request.delivery_info["priority"],
             request.called_directly, request.hostname, app.current_task.name, request.argsrepr, request.kwargsrepr,
             request.lang, request.utc)
        )  # fmt: skip
        assert {"argsrepr", "kwargsrepr", "lang"} <= set(dir(request))
        with pytest.raises(AttributeError):
            _ = request.no_such_field

    worker.start(hostname="w@h")
    id_ = look.apply_async((1,), {"b": 2}, headers={"tenant": "a"}, priority=3).id

    [fields] = eventually(lambda: seen)
    assert fields == (
        id_, [1], {"b": 2}, "proj.look", id_, {"tenant": "a"}, "a", "celery", 3, False, "w@h", "proj.look",
        "(1,)", "{'b': 2}", "py", None,
    )  # fmt: skip


def test_a_task_knows_the_queue_of_a_call_that_names_an_exchange(app: Celery, worker: TaskWorker) -> None:
    """`delivery_info` is that of any other call of the queue: a job keeps neither exchange nor routing key."""
    seen: list[dict[str, Any]] = []
    app.conf.task_queues = [Queue("celery", Exchange("media"), routing_key="media.video")]

    @app.task(name="proj.compress", bind=True)
    def compress(self: Any) -> None:
        seen.append(self.request.delivery_info)

    worker.start()
    compress.apply_async(exchange="media", routing_key="media.video")

    [info] = eventually(lambda: seen)
    assert (info["exchange"], info["routing_key"]) == ("", "celery")


def test_a_task_knows_how_its_call_was_compressed(app: Celery, worker: TaskWorker) -> None:
    """Under kombu's name; as in Celery, a call without compression has no such field, and a retry drops it."""
    seen: list[Any] = []

    @app.task(name="proj.packed", bind=True, default_retry_delay=0)
    def packed(self: Any) -> None:
        seen.append((self.request.get("compression", "none"), self.request.headers))
        if self.request.get("compression") and not self.request.retries:
            raise self.retry()

    worker.start()
    packed.apply_async(compression="gzip")
    eventually(lambda: len(seen) == 2)
    packed.delay()

    eventually(lambda: len(seen) == 3)
    assert seen == [("application/x-gzip", None), ("none", None), ("none", None)]


def test_a_task_may_look_for_an_option_that_its_call_did_not_have(app: Celery, worker: TaskWorker) -> None:
    """As Superset's tasks do. Celery's messages always have properties; eager tasks have none there, either."""
    seen: list[Any] = []

    @app.task(name="proj.prune", bind=True)
    def prune(self: Any) -> None:
        properties = self.request.properties
        seen.append(None if properties is None else properties.get("retention_period_days"))

    worker.start()
    for options in ({}, {"retention_period_days": 7}):
        prune.apply_async(**options)

    assert sorted(eventually(lambda: seen if len(seen) == 2 else None), key=str) == [7, None]
    assert isinstance(Context(called_directly=False).properties, dict)
    assert (Context().properties, Context(called_directly=False, is_eager=True).properties) == (None, None)


def test_what_a_task_writes_into_its_requests_properties_stays_there() -> None:
    """Also if its call had no further options, as in Celery."""
    request = Context(called_directly=False)

    request.properties["seen"] = True

    assert request.properties == copy.copy(request).properties == {"seen": True}
    assert Context(called_directly=False).properties == {}


def test_a_request_lists_the_fields_that_can_be_read() -> None:
    """Some are only there in a worker: a debugger that reads all that `dir` lists gets no error without one."""
    request = Context(id="a", args=[], kwargs={})

    assert [name for name in dir(request) if not hasattr(request, name)] == []


@pytest.mark.parametrize(
    ("of_task", "of_call", "told"), [(True, None, True), (True, False, False), (False, True, True)]
)
def test_a_task_knows_whether_its_result_is_kept(
    app: Celery, worker: TaskWorker, of_task: bool, of_call: bool | None, told: bool
) -> None:
    """As its call says, else as it does itself; and unstamped it has no stamps."""
    seen: list[Any] = []

    @app.task(name="proj.look", bind=True, ignore_result=of_task)
    def look(self: Any) -> None:
        seen.append((self.request.ignore_result, self.request.stamps))

    worker.start()
    look.apply_async(ignore_result=of_call)

    assert eventually(lambda: seen) == [(told, {})]


@pytest.mark.parametrize(("of_call", "told"), [(None, True), (False, False), (True, True)])
def test_a_caller_that_knows_a_task_by_name_alone_decides_whether_its_result_is_kept(
    app: Celery, worker: TaskWorker, redis_url: str, of_call: bool | None, told: bool
) -> None:
    """The task's own setting is in its worker; a call that says nothing follows it."""
    seen: list[bool] = []

    @app.task(name="proj.look", bind=True, ignore_result=True)
    def look(self: Any) -> None:
        seen.append(self.request.ignore_result)

    worker.start()
    with Celery("elsewhere", broker=redis_url, backend=redis_url, set_as_current=False) as elsewhere:
        elsewhere.send_task("proj.look", ignore_result=of_call)

    assert eventually(lambda: seen) == [told]


def test_headers_of_a_caller_are_headers_whatever_their_names(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """Marks of the same names say of a job where its workflow goes on, and how urgent it is."""
    seen: list[Any] = []

    @app.task(name="proj.look", bind=True)
    def look(self: Any) -> None:
        request = self.request
        seen.append((request.headers, request.flow, request.chain, request.delivery_info["priority"]))

    worker.start()
    headers = {"flow": "north", "priority": "much", "chain": "of shops"}
    look.apply_async(headers=headers)
    look.apply_async(headers=headers, priority=4)

    eventually(lambda: len(seen) == 2)
    assert sorted(seen, key=lambda one: one[3]) == [(headers, "north", None, 0), (headers, "north", None, 4)]


def test_a_task_that_keeps_no_result_writes_nothing(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """It is acknowledged with others, like a native job."""

    @app.task(name="proj.quiet", ignore_result=True)
    def quiet(x: int) -> int:
        return x

    worker.start()
    ids = [quiet.delay(number).id for number in range(50)]

    eventually(lambda: processed(redis_client) == 50)
    assert [state_of(redis_client, one) for one in ids] == [None] * 50


def test_signals_and_hooks_come_in_celerys_order(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """For a success and for a failure."""
    told: list[str] = []

    class Telling(Task):
        def before_start(self, *_: Any) -> None:
            told.append("before_start")

        def on_success(self, *_: Any) -> None:
            told.append("on_success")

        def on_failure(self, exc: Any, *_: Any) -> None:
            told.append(f"on_failure {exc!r}")

        def after_return(self, status: str, *_: Any) -> None:
            told.append(f"after_return {status}")

    @app.task(name="proj.tell", base=Telling)
    def tell(fails: bool) -> None:
        told.append("run")
        if fails:
            raise ValueError("boom")

    def listener(name: str) -> Any:
        def listen(**_: Any) -> None:
            told.append(name)

        return listen

    listeners = {name: listener(name) for name in ("task_prerun", "task_postrun", "task_success", "task_failure")}
    for name, listen in listeners.items():
        getattr(signals, name).connect(listen)
    try:
        worker.start()
        for fails in (False, True):
            told.clear()
            tell.delay(fails)
            eventually(lambda: told[-1:] == ["task_postrun"])
            end = (
                ["on_failure ValueError('boom')", "task_failure", "after_return FAILURE"]
                if fails
                else ["on_success", "task_success", "after_return SUCCESS"]
            )
            assert told == ["task_prerun", "before_start", "run", *end, "task_postrun"]
    finally:
        for name, listen in listeners.items():
            getattr(signals, name).disconnect(listen)


def test_a_task_s_hooks_and_signals_read_the_result_that_its_end_will_store(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """From there, a program may tell a browser how the task has ended, on whatever thread it does so."""
    seen: list[tuple[str, str, Any]] = []

    def look(place: str, task_id: str) -> None:
        with ThreadPoolExecutor(1) as threads:
            found = threads.submit(lambda: app.AsyncResult(task_id).state).result()
        seen.append((place, found, app.AsyncResult(task_id).result))

    class Telling(Task):
        def on_success(self, retval: Any, task_id: str, *_: Any) -> None:
            look("on_success", task_id)

        def on_failure(self, exc: Any, task_id: str, *_: Any) -> None:
            look("on_failure", task_id)

        def on_retry(self, exc: Any, task_id: str, *_: Any) -> None:
            look("on_retry", task_id)

    @app.task(name="proj.tell", base=Telling, bind=True, max_retries=1, default_retry_delay=0)
    def tell(self: Any, fails: bool) -> int:
        if fails:
            raise self.retry(exc=ValueError("boom"))
        return 42

    def listen(task_id: str, **_: Any) -> None:
        look("task_postrun", task_id)

    signals.task_postrun.connect(listen)
    try:
        worker.start()
        tell.delay(False).get(timeout=30)
        with pytest.raises(ValueError, match="boom"):
            tell.delay(True).get(timeout=30)
    finally:
        signals.task_postrun.disconnect(listen)

    assert [(place, state, str(result)) for place, state, result in seen] == [
        ("on_success", "SUCCESS", "42"),
        ("task_postrun", "SUCCESS", "42"),
        ("on_retry", "RETRY", "boom"),
        ("task_postrun", "RETRY", "boom"),
        ("on_failure", "FAILURE", "boom"),
        ("task_postrun", "FAILURE", "boom"),
    ]
    assert not unwritten


def test_a_failure_is_stored_and_kept(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """In Sidekiq's dead set, where Ruby's pages show it, and it can be run again."""

    @app.task(name="proj.fail")
    def fail() -> None:
        raise ValueError("boom")

    worker.start()
    result = fail.delay()

    [member] = eventually(lambda: redis_client.zrange("dead", 0, -1))
    job = json.loads(member)
    assert (job["jid"], job["error_class"], job["error_message"]) == (result.id, "ValueError", "boom")
    assert stored(redis_client, result.id)["result"]["exc_type"] == "ValueError"
    assert redis_client.zrange(INDEX, 0, -1) == [member]
    eventually(lambda: redis_client.get("stat:failed") == b"1")


def test_failed_tasks_push_nobody_else_out(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """There are at most so many of them, whatever else is in the dead set."""
    app.conf.task_keep_failed = 3
    redis_client.zadd("dead", {"of the Rails team": 1.0})

    @app.task(name="proj.fail")
    def fail(number: int) -> None:
        raise ValueError(number)

    worker.start()
    for number in range(8):
        fail.delay(number)

    eventually(lambda: processed(redis_client) == 8)
    eventually(lambda: redis_client.zcard(INDEX) == 3)
    left = redis_client.zrange("dead", 0, -1)
    assert left[0] == b"of the Rails team"
    assert left[1:] == redis_client.zrange(INDEX, 0, -1)


def test_an_expected_error_is_not_kept(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """Nor is that of a task that says so."""

    @app.task(name="proj.expected", throws=(KeyError,))
    def expected() -> None:
        raise KeyError("x")

    @app.task(name="proj.not_kept", keep_failed=False)
    def not_kept() -> None:
        raise ValueError("x")

    worker.start()
    ids = [expected.delay().id, not_kept.delay().id]

    eventually(lambda: [state_of(redis_client, one) for one in ids] == ["FAILURE", "FAILURE"])
    assert redis_client.zcard("dead") == 0


def test_a_retry_waits_in_sidekiqs_retry_set(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """With the error that Ruby's page shows, and everything else of the job as it was."""

    @app.task(name="proj.again", bind=True)
    def again(self: Any, number: int) -> None:
        try:
            raise ValueError("not yet")
        except ValueError as exc:
            raise self.retry(exc=exc, countdown=100) from exc

    worker.start()
    result = again.apply_async((7,), queue="high", headers={"tenant": "a"})

    [(member, score)] = eventually(lambda: redis_client.zrange("retry", 0, -1, withscores=True))
    job = json.loads(member)
    assert 90 < score - time.time() <= 100
    assert (job["jid"], job["args"], job["queue"]) == (result.id, [7], "high")
    assert (job["error_class"], job["error_message"], job["retry_count"]) == ("ValueError", "not yet", 0)
    assert (job["celery"]["retries"], job["celery"]["headers"]) == (1, {"tenant": "a"})
    assert state_of(redis_client, result.id) == "RETRY"
    assert redis_client.zcard("dead") == 0


@pytest.mark.parametrize(("size", "shown"), [(None, repr("x" * 3000)), (2, "'xx...'"), (0, ", ...")])
def test_the_log_shows_as_much_of_a_result_as_its_task_says(
    app: Celery, worker: TaskWorker, caplog: pytest.LogCaptureFixture, size: int | None, shown: str
) -> None:
    """`resultrepr_maxsize`: None is no limit, and 0 keeps a result out of the log."""

    @app.task(name="proj.long", resultrepr_maxsize=size)
    def long() -> str:
        return "x" * 3000

    worker.start()
    with caplog.at_level("INFO", logger="celery.app.trace"):
        assert long.delay().get(timeout=60) == "x" * 3000

    [line] = [record.getMessage() for record in caplog.records if "succeeded" in record.getMessage()]
    assert line.partition("s: ")[2] == shown


def test_a_task_is_tried_until_no_try_is_left(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """`autoretry_for`, at once; then it has failed by its own error."""
    seen: list[int] = []

    @app.task(name="proj.auto", bind=True, autoretry_for=(ValueError,), max_retries=2, default_retry_delay=0)
    def auto(self: Any) -> None:
        seen.append(self.request.retries)
        raise ValueError("never")

    worker.start()
    result = auto.delay()

    eventually(lambda: state_of(redis_client, result.id) == "FAILURE")
    assert seen == [0, 1, 2]
    [member] = redis_client.zrange("dead", 0, -1)
    assert json.loads(member)["celery"]["retries"] == 2


@pytest.mark.parametrize("error", [JobFailed, Stopped])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_task_whose_input_is_bad_or_that_was_asked_to_stop_is_not_tried_again_by_itself(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, is_async: bool, error: type[Exception]
) -> None:
    """`JobFailed` and `Stopped` say so, though `autoretry_for=(Exception,)`, which many projects have, covers them."""
    seen: list[int] = []

    def reject(self: Any) -> None:
        seen.append(self.request.retries)
        raise error("row 3 has no e-mail")

    async def areject(self: Any) -> None:
        reject(self)

    task = app.task(areject if is_async else reject, bind=True, autoretry_for=(Exception,), default_retry_delay=0)
    worker.start()
    result = task.delay()

    eventually(lambda: state_of(redis_client, result.id) == "FAILURE")
    assert seen == [0]
    assert redis_client.zcard("dead") == 1


def test_a_number_of_retries_counts_for_the_run_that_gave_it(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """In Celery the next error of the task in that process takes it, too, whatever it runs for."""

    @app.task(name="proj.own_number", bind=True, autoretry_for=(ValueError,), max_retries=0)
    def own_number(self: Any, tries: int | None) -> None:
        if tries:
            raise self.retry(max_retries=tries, countdown=100)
        raise ValueError("not again")

    worker.start()
    first = own_number.delay(5)
    eventually(lambda: state_of(redis_client, first.id) == "RETRY")
    second = own_number.delay(None)

    assert eventually(lambda: state_of(redis_client, second.id)) == "FAILURE"


def test_a_task_that_has_used_up_its_own_number_of_retries_has_failed(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """`retry` raises the task's error then, and `autoretry_for` must not begin to count anew with the task's number."""
    seen: list[int] = []

    @app.task(bind=True, autoretry_for=(ValueError,), max_retries=3, default_retry_delay=0)
    def used_up(self: Any) -> None:
        seen.append(self.request.retries)
        raise self.retry(exc=ValueError("no"), max_retries=1)

    worker.start()
    result = used_up.delay()

    eventually(lambda: state_of(redis_client, result.id) == "FAILURE")
    assert seen == [0, 1]


def test_no_death_is_announced_of_a_failed_task_that_is_tried_again(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """It called `retry(throw=False)` before it failed. Who is told of its death would clean up after it too early."""
    told: list[str] = []

    @app.task(bind=True)
    def fail(self: Any, is_tried_again: bool) -> None:
        if is_tried_again:
            self.retry(countdown=100, throw=False)
        raise ValueError("no")

    worker.hooks.on_death(lambda job, error: told.append(job["jid"]))
    worker.start(concurrency=1)
    fail.delay(True)
    last = fail.delay(False)

    eventually(lambda: last.id in told)
    assert told == [last.id]
    assert redis_client.zcard("retry") == 1


def test_a_retry_at_a_moment_says_when(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """As hooks, `task_retry` and the log show it."""
    moment = datetime(2040, 1, 1, tzinfo=UTC)
    seen: list[Any] = []

    @app.task(bind=True)
    def later(self: Any) -> None:
        seen.append(self.retry(eta=moment, throw=False).when)

    worker.start()
    result = later.delay()

    eventually(lambda: state_of(redis_client, result.id) == "SUCCESS")
    assert seen == [moment]


def test_a_retry_that_the_task_swallows_is_made_all_the_same(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """In Celery the message has been sent by then."""

    @app.task(name="proj.swallow", bind=True)
    def swallow(self: Any) -> str:
        try:
            self.retry(countdown=50)
        except Exception:  # noqa: BLE001 - it is what programs do
            pass
        return "done"

    worker.start()
    result = swallow.delay()

    eventually(lambda: state_of(redis_client, result.id) == "SUCCESS")
    assert redis_client.zcard("retry") == 1


def test_a_task_may_retry_with_other_arguments(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """And without waiting."""
    seen: list[Any] = []

    @app.task(name="proj.other", bind=True)
    def other(self: Any, a: int, b: int = 0) -> None:
        seen.append((a, b))
        if a < 2:
            self.retry(args=(a + 1,), countdown=0)

    worker.start()
    other.delay(0, b=5)

    eventually(lambda: seen == [(0, 5), (1, 5), (2, 5)])


def test_an_ignored_task_leaves_its_state_alone(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """It has set its own, or wants none."""

    @app.task(name="proj.ignored", bind=True)
    def ignored(self: Any) -> None:
        self.update_state(state="MINE", meta={"n": 1})
        raise Ignore()

    worker.start()
    result = ignored.delay()

    eventually(lambda: processed(redis_client) == 1)
    assert (stored(redis_client, result.id)["status"], stored(redis_client, result.id)["result"]) == ("MINE", {"n": 1})


def test_a_rejected_task_goes_back_only_if_asked_to(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """`Reject` alone takes it away. A task that is back knows that it was there before."""
    seen: list[bool] = []

    @app.task(name="proj.rejected", bind=True)
    def rejected(self: Any) -> None:
        seen.append(self.request.delivery_info["redelivered"])
        raise Reject("no", requeue=len(seen) < 3)

    worker.start()
    rejected.delay()

    eventually(lambda: processed(redis_client) == 1)
    assert seen == [False, True, True]
    assert redis_client.keys("queue:*") == []


def test_who_waits_for_a_task_that_rejects_itself_is_told(app: Celery, worker: TaskWorker) -> None:
    """
    It will not run again: the result is a failure, and errbacks are called. As in Celery 5.7, `task_failure` comes
    after `task_postrun` with a text for a traceback, and the result has none.
    """
    sent: list[Any] = []

    def postrun(state: str = "", **_: Any) -> None:
        sent.append(state)

    def failure(traceback: Any = None, exception: Any = None, **_: Any) -> None:
        sent.append((type(traceback), type(exception)))

    @app.task(name="proj.rejects")
    def rejects() -> None:
        raise Reject("no", requeue=False)

    told = app.task(name="proj.told")(lambda task_id: task_id)
    signals.task_postrun.connect(postrun, sender=rejects)
    signals.task_failure.connect(failure, sender=rejects)
    worker.start()
    result = rejects.apply_async(link_error=told.s().set(task_id="told"))

    with pytest.raises(Reject):
        result.get(timeout=30)
    assert result.failed()
    assert result.traceback is None
    assert sent == ["REJECTED", (str, Reject)]
    assert app.AsyncResult("told").get(timeout=30) == result.id


@pytest.fixture
def failing(app: Celery) -> Any:
    """A task that fails."""

    @app.task(name="proj.failing")
    def failing() -> None:
        raise KeyError("on purpose")

    return failing


def test_an_errback_that_is_called_at_once_finds_the_failure_stored(
    app: Celery, worker: TaskWorker, failing: Any
) -> None:
    """It is called where the task has failed, before the job ends, and may look for the result."""
    seen: list[str] = []

    @app.task(name="proj.look")
    def look(request: Any, error: Any, traceback: Any) -> None:
        seen.append(app.AsyncResult(request.id).state)

    worker.start()
    failing.apply_async(link_error=look.s())

    eventually(lambda: len(seen) == 1)
    assert seen == ["FAILURE"]


def test_errbacks_that_are_sent_form_a_group(app: Celery, worker: TaskWorker, failing: Any) -> None:
    """As in Celery, a single one too. One that is called here is no member."""
    seen: list[Any] = []

    @app.task(name="proj.look")
    def look(request: Any, error: Any, traceback: Any) -> None:
        seen.append("look")

    @app.task(name="proj.told", bind=True)
    def told(self: Any, task_id: str) -> None:
        seen.append((self.request.group_index, self.request.group))

    worker.start()
    failing.apply_async(link_error=[told.s()])
    eventually(lambda: len(seen) == 1)
    failing.apply_async(link_error=[look.s(), told.s(), told.s()])
    eventually(lambda: len(seen) == 4)

    (index, alone), *others = [one for one in seen if one != "look"]
    assert (index, sorted(index for index, _ in others)) == (0, [0, 1])
    [together] = {group for _, group in others}
    assert None not in (alone, together)
    assert alone != together


def test_an_errback_that_cannot_be_called_keeps_no_other_from_it(app: Celery, worker: TaskWorker, failing: Any) -> None:
    """Neither one that is sent, nor one that is called here."""
    seen: list[str] = []

    @app.task(name="proj.look")
    def look(request: Any, error: Any, traceback: Any) -> None:
        seen.append("look")

    @app.task(name="proj.told")
    def told(task_id: str) -> None:
        seen.append(task_id)

    worker.start()
    id_ = failing.apply_async(link_error=[told.s("one too many"), look.s(), told.s().set(priority="high"), told.s()]).id

    eventually(lambda: len(seen) == 2)
    assert sorted(seen) == sorted(["look", id_])


def test_an_expired_task_is_revoked(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """It does not run, and is not told of as received either, as in Celery."""
    ran: list[int] = []
    told: list[Any] = []

    @app.task(name="proj.late")
    def late() -> None:
        ran.append(1)

    def listen(expired: bool = False, **_: Any) -> None:
        told.append(expired)

    def receive(**_: Any) -> None:
        told.append("received")

    result = late.apply_async(expires=-5)
    signals.task_revoked.connect(listen)
    signals.task_received.connect(receive)
    try:
        worker.start()
        eventually(lambda: state_of(redis_client, result.id) == "REVOKED")
    finally:
        signals.task_revoked.disconnect(listen)
        signals.task_received.disconnect(receive)
    assert (ran, told) == ([], [True])


def test_a_soft_time_limit_raises_celerys_error(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """In the task, which may clean up; by the task's limit, or the call's."""

    @app.task(name="proj.slow")
    def slow() -> str:
        try:
            while True:
                time.sleep(0.01)
        except SoftTimeLimitExceeded:
            return "cleaned up"

    worker.start()
    result = slow.apply_async(soft_time_limit=0.1)

    eventually(lambda: state_of(redis_client, result.id) == "SUCCESS")
    assert stored(redis_client, result.id)["result"] == "cleaned up"


def test_a_coroutine_runs_on_the_loop(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """With its own request, its result, its soft limit, and its next try."""

    @app.task(name="proj.coroutine", bind=True)
    async def coroutine(self: Any, seconds: float) -> Any:
        own = self.request.id
        await asyncio.sleep(seconds)
        return own == self.request.id

    @app.task(name="proj.coroutine_again", bind=True, autoretry_for=(ValueError,), default_retry_delay=50)
    async def coroutine_again(self: Any) -> None:
        raise ValueError("x")

    worker.start()
    fine = [coroutine.delay(0.01).id for _ in range(5)]
    slow = coroutine.apply_async((30,), soft_time_limit=0.2).id
    retried = coroutine_again.delay().id

    eventually(lambda: [state_of(redis_client, one) for one in fine] == ["SUCCESS"] * 5)
    assert [stored(redis_client, one)["result"] for one in fine] == [True] * 5
    eventually(lambda: state_of(redis_client, slow) == "FAILURE")
    assert stored(redis_client, slow)["result"]["exc_type"] == "SoftTimeLimitExceeded"
    eventually(lambda: state_of(redis_client, retried) == "RETRY")
    assert redis_client.zcard("retry") == 1


def test_a_coroutine_can_clean_up_at_its_soft_limit(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is raised in it, where it waits; at its time limit it is cancelled. The log says both, as in Celery."""

    @app.task(name="proj.cleaning", soft_time_limit=0.1)
    async def cleaning() -> str:
        try:
            await asyncio.sleep(60)
        except SoftTimeLimitExceeded:
            await asyncio.sleep(0)
            return "cleaned up"
        return "late"

    @app.task(name="proj.stubborn", soft_time_limit=0.1, time_limit=0.3)
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except SoftTimeLimitExceeded:
                pass

    worker.start()
    cleaned, late = cleaning.delay().id, stubborn.delay().id

    eventually(lambda: state_of(redis_client, cleaned) == "SUCCESS")
    assert stored(redis_client, cleaned)["result"] == "cleaned up"
    eventually(lambda: state_of(redis_client, late) == "FAILURE")
    assert stored(redis_client, late)["result"]["exc_type"] == "TimeLimitExceeded"
    assert f"Soft time limit (0.1s) exceeded for proj.cleaning[{cleaned}]" in caplog.messages
    assert f"Hard time limit (0.3s) exceeded for proj.stubborn[{late}]" in caplog.messages


def test_a_hard_limit_is_kept_where_both_come_due_at_once() -> None:
    """As on a machine that stalls; two cancellations arrive as one."""

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except SoftTimeLimitExceeded:
                pass

    async def stalled() -> None:
        asyncio.get_running_loop().call_soon(time.sleep, 0.05)
        await within_limits(stubborn(), 0.02, 0.01, lambda seconds, *, is_hard: None)

    with pytest.raises(TimeLimitExceeded):
        asyncio.run(asyncio.wait_for(stalled(), 20))


def test_callbacks_and_errbacks_follow(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """A callback gets the result, an errback the id; a new one gets request, exception and traceback."""
    seen: list[Any] = []

    @app.task(name="proj.work")
    def work(fails: bool) -> str:
        if fails:
            raise ValueError("boom")
        return "result"

    @app.task(name="proj.note", ignore_result=True)
    def note(what: Any) -> None:
        seen.append(what)

    @app.task(name="proj.note_error")
    def note_error(request: Any, exc: Any, traceback: Any) -> None:
        seen.append((request.id, repr(exc), "boom" in traceback))

    worker.start()
    work.apply_async((False,), link=note.s())
    eventually(lambda: seen == ["result"])
    seen.clear()
    result = work.apply_async((True,), link_error=[note.s(), note_error.s()])
    eventually(lambda: len(seen) == 2)
    assert sorted(map(str, seen)) == sorted([result.id, str((result.id, "ValueError('boom')", True))])


def test_what_cannot_be_read_is_kept_and_not_run(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """A forbidden serializer, a broken body, keyword arguments that are none."""
    ran: list[int] = []
    app.conf.accept_content = ["json"]

    @app.task(name="proj.careful", typing=False)
    def careful(*args: Any, **kwargs: Any) -> None:
        ran.append(1)

    worker.start()
    careful.apply_async((1,), serializer="yaml")
    bodies = ('{"kw":true}', '{"body":"%%%","content_type":"application/json"}', "5", '{"expires":"soon"}')
    for number, task_headers in enumerate(bodies):
        raw = f'{{"class":"proj.careful","args":[1],"jid":"j{number}","queue":"celery","celery":{task_headers}}}'
        push_jobs(redis_client, [raw.encode()], queue="celery")

    eventually(lambda: redis_client.zcard("dead") == 1 + len(bodies))
    assert ran == []
    errors = {json.loads(member)["error_class"].rpartition(".")[2] for member in redis_client.zrange("dead", 0, -1)}
    assert {"ContentDisallowed", "InvalidTaskError"} <= errors
    told = [json.loads(member)["error_message"] for member in redis_client.zrange("dead", 0, -1)]
    assert any("celery.body is '%%%'; it must be the base64" in message for message in told)


def test_wrong_arguments_fail_the_task(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """As in Celery, where a worker finds them out."""

    @app.task(name="proj.strict")
    def strict(a: int) -> None:
        pass

    worker.start()
    result = app.send_task("proj.strict", (1, 2, 3))

    eventually(lambda: state_of(redis_client, result.id) == "FAILURE")
    assert stored(redis_client, result.id)["result"]["exc_type"] == "TypeError"


@pytest.mark.parametrize("early", [False, True])
def test_an_explicit_acks_late_false_means_at_most_once(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, early: bool
) -> None:
    """Without it a job stays in Redis while it runs."""
    seen: list[int] = []
    options = {"acks_late": False} if early else {}

    @app.task(name="proj.once", **options)
    def once() -> None:
        seen.append(len(jobs_in_flight(redis_client)))

    worker.start()
    result = once.delay()

    eventually(lambda: state_of(redis_client, result.id) == "SUCCESS")
    assert seen == [0 if early else 1]


def test_hooks_that_fail_change_nothing(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """The result is as it was; the log says what went wrong."""

    class Broken(Task):
        def on_success(self, *_: Any) -> None:
            raise KeyError("hook")

        def on_failure(self, *_: Any) -> None:
            raise KeyError("hook")

    @app.task(name="proj.broken", base=Broken)
    def broken(fails: bool) -> int:
        return 1 // (not fails)

    with caplog.at_level(logging.ERROR, logger="celery.app.trace"):
        worker.start()
        ids = [broken.delay(fails).id for fails in (False, True)]
        eventually(lambda: [state_of(redis_client, one) for one in ids] == ["SUCCESS", "FAILURE"])

    assert sum("KeyError('hook')" in line for line in caplog.messages) == 2


@pytest.mark.parametrize("hook", ["on_success", "after_return"])
def test_a_hook_that_rejects_a_task_when_it_is_done_changes_nothing(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, hook: str
) -> None:
    """The result and the next step are what they would be, as in Celery."""
    hooks = {hook: lambda self, *_: _reject()}

    @app.task(name="proj.done", base=type("Rejecting", (Task,), hooks))
    def done() -> int:
        return 3

    @app.task(name="proj.after")
    def after(x: int) -> int:
        return x + 1

    worker.start()
    last = (done.s() | after.s()).delay()

    eventually(lambda: state_of(redis_client, last.id) == "SUCCESS")
    assert stored(redis_client, last.id)["result"] == 4
    assert stored(redis_client, last.parent.id)["result"] == 3


def _reject() -> None:
    raise Reject("late", requeue=False)


def test_only_a_hook_of_the_failure_itself_is_an_internal_error(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """`on_success` and `after_return` are only logged: the outcome is decided. The signal's request is a dict."""
    told: list[tuple[str, str]] = []
    requests: list[Any] = []

    class Broken(Task):
        def on_success(self, *_: Any) -> None:
            raise KeyError("on_success")

        def on_failure(self, *_: Any) -> None:
            raise KeyError("on_failure")

        def after_return(self, *_: Any) -> None:
            raise KeyError("after_return")

    @app.task(name="proj.broken_hooks", base=Broken)
    def broken(fails: bool) -> int:
        return 1 // (not fails)

    def note(task_id: str, request: Any, exception: Exception, **_: Any) -> None:
        told.append((task_id, repr(exception)))
        requests.append(request)

    signals.task_internal_error.connect(note)
    try:
        worker.start()
        ids = [broken.delay(fails).id for fails in (False, True)]
        eventually(lambda: [state_of(redis_client, one) for one in ids] == ["SUCCESS", "FAILURE"])
    finally:
        signals.task_internal_error.disconnect(note)

    assert told == [(ids[1], "KeyError('on_failure')")]
    [request] = requests
    assert (type(request), request["id"], request["args"], request["retries"]) == (dict, ids[1], [True], 0)


def test_server_middleware_of_the_engine_runs_around_tasks(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """One that returns nothing loses no result; one that raises fails the task."""
    seen: list[Any] = []

    def around(job: Any, payload: dict[str, Any], queue: str, call_next: Any) -> None:
        seen.append((job.name, current_job().jid == payload["jid"]))  # type: ignore[union-attr]
        call_next()
        if payload["args"] == [0]:
            raise RuntimeError("from outside")

    worker.middleware.add(around)

    @app.task(name="proj.around")
    def inner(x: int) -> int:
        return x

    worker.start()
    ids = [inner.delay(number).id for number in (1, 0)]

    eventually(lambda: [state_of(redis_client, one) for one in ids] == ["SUCCESS", "FAILURE"])
    assert stored(redis_client, ids[0])["result"] == 1
    assert seen == [("proj.around", True)] * 2


def test_a_task_that_replaces_itself_goes_on_under_its_id(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """The replacement is enqueued by the step that ends the first."""

    @app.task(name="proj.first", bind=True)
    def first(self: Any) -> Any:
        return self.replace(second.s(7))

    @app.task(name="proj.second")
    def second(x: int) -> int:
        return x

    worker.start()
    result = first.delay()

    eventually(lambda: state_of(redis_client, result.id) == "SUCCESS")
    assert stored(redis_client, result.id)["result"] == 7


@pytest.mark.parametrize("field", ["callbacks", "chain", "errbacks"])
def test_a_task_may_name_what_follows_it_while_it_runs(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, field: str
) -> None:
    """Also if nothing was to follow it."""
    ran: list[str] = []

    @app.task(name="proj.first", bind=True)
    def first(self: Any) -> None:
        setattr(self.request, field, [second.si()])
        if field == "errbacks":
            raise ValueError("boom")

    @app.task(name="proj.second")
    def second() -> None:
        ran.append("second")

    worker.start()
    first.delay()

    eventually(lambda: ran == ["second"])


def test_a_task_that_nobody_has_registered_fails_at_once(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """
    It is kept, with its result; where the worker is not the app's alone, Ruby's jobs go by Sidekiq's rules.

    The log's first words are Celery's, for which people search.
    """
    told: list[Any] = []

    def listen(name: str = "", id: str = "", message: Any = None, exc: Any = None, **_: Any) -> None:
        told.append((name, id, message.properties["correlation_id"], message.headers["task"], repr(exc)))

    def others(**_: Any) -> None:
        told.append("as of a task that is known")

    app.conf.result_extended = True
    worker.start()
    signals.task_unknown.connect(listen)
    known = (signals.task_received, signals.task_prerun, signals.task_postrun, signals.task_failure)
    for signal in known:
        signal.connect(others)
    try:
        result = app.send_task("proj.nowhere", (1,))
        eventually(lambda: state_of(redis_client, result.id) == "FAILURE")
    finally:
        signals.task_unknown.disconnect(listen)
        for signal in known:
            signal.disconnect(others)
    push_jobs(redis_client, ['{"class":"Nowhere","args":[],"jid":"j","queue":"celery","retry":true}'], queue="celery")

    meta = stored(redis_client, result.id)
    assert meta.pop("date_done")
    assert meta == {
        "status": "FAILURE",
        "result": {"exc_type": "NotRegistered", "exc_message": ["proj.nowhere"], "exc_module": "celery.exceptions"},
        "traceback": None, "children": [], "task_id": result.id,
        **dict.fromkeys(("name", "args", "kwargs", "worker", "retries", "queue")),
    }  # fmt: skip
    assert told == [("proj.nowhere", result.id, result.id, "proj.nowhere", "KeyError('proj.nowhere')")]
    assert f"Received unregistered task of type 'proj.nowhere': task {result.id} has failed." in caplog.messages
    assert redis_client.zcard("dead") == 1
    [retried] = eventually(lambda: redis_client.zrange("retry", 0, -1))
    assert json.loads(retried)["class"] == "Nowhere"


def test_an_unregistered_task_is_told_by_its_own_name(
    app: Celery, worker: TaskWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """Not by its shadow, which no module has; and what a payload calls a task forges no line of the log."""
    worker.start()

    app.send_task("proj.nowhere\nforged", shadow="imports", task_id="a")
    [record] = eventually(lambda: [record for record in caplog.records if "unregistered" in record.getMessage()])

    assert record.getMessage() == r"Received unregistered task of type 'proj.nowhere\nforged': task a has failed."
    assert "\nforged" not in logging.Formatter().format(record)


@pytest.mark.parametrize("jid", [7, 1.5, [7]])
def test_a_result_is_stored_under_a_jid_that_is_no_text(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, jid: Any
) -> None:
    """Other programs may number their jobs. Read as a count of bytes, such a number would make a key of that length."""

    @app.task(name="proj.add")
    def add(x: int, y: int) -> int:
        return x + y

    push_jobs(redis_client, [json.dumps({"class": "proj.add", "args": [2, 3], "jid": jid})], queue="celery")
    worker.start()

    eventually(lambda: processed(redis_client) == 1)
    assert redis_client.keys("celery-task-meta-*") == [f"celery-task-meta-{jid}".encode()]


def test_an_unregistered_task_fails_for_its_callers_although_they_ignore_results(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """As in Celery: who looks for the task learns why it never ran."""
    worker.start()

    result = app.send_task("proj.nowhere", ignore_result=True)

    eventually(lambda: state_of(redis_client, result.id) == "FAILURE")


def test_lines_of_one_s_own_show_a_call_as_celery_s_do(
    app: Celery, worker: TaskWorker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text may name the arguments, a tuple as in Celery, and when a task is due. A missing value costs the line."""
    monkeypatch.setattr(trace, "LOG_RECEIVED", "%(name)s%(args)s %(kwargs)s for %(eta)s")
    monkeypatch.setattr(trace, "LOG_SUCCESS", "%(name)s%(args)s %(kwargs)s done")

    @app.task(name="proj.due")
    def task(x: int, y: int) -> int:
        return x + y

    with caplog.at_level(logging.INFO, logger="celery"):
        worker.start()
        task.apply_async((1,), {"y": 2}, eta="2020-01-01T00:00:00+00:00").get(timeout=60)

    assert "proj.due(1,) {'y': 2} for 2020-01-01T00:00:00+00:00" in caplog.messages
    assert "proj.due(1,) {'y': 2} done" in caplog.messages


def test_who_listens_to_receipts_is_given_celery_s_request(app: Celery, worker: TaskWorker) -> None:
    """With the attributes that monitors read, before the task has started."""
    seen: list[Any] = []

    def listen(sender: Any = None, request: Any = None, **_: Any) -> None:
        seen.append((sender, request))

    @app.task(name="proj.seen")
    def task(x: int, y: int = 0) -> int:
        return x + y

    sender = object()
    signals.task_received.connect(listen)
    try:
        worker.start(hostname="w@here", consumer=sender)
        sent = task.apply_async(
            (1,), {"y": 2}, expires=600, headers={"trace": "t"}, time_limit=50, shadow="shown", kwargsrepr="<hidden>"
        )
        assert sent.get(timeout=60) == 3
    finally:
        signals.task_received.disconnect(listen)

    [(seen_sender, request)] = seen
    assert seen_sender is sender
    assert isinstance(request, Request)
    assert (request.id, request.task_id, request.name, request.task_name) == (sent.id, sent.id, "shown", "shown")
    assert (request.type, request.args, request.kwargs, request.hostname) == ("proj.seen", [1], {"y": 2}, "w@here")
    assert (request.task, request.app, request.root_id, request.parent_id) == (task, app, sent.id, None)
    assert (request.time_limits, request.acknowledged, request.utc) == ([50, None], False, True)
    assert request.expires.tzinfo is not None
    assert request.request_dict["trace"] == "t"
    assert json.loads(request.body)[:2] == [[1], {"y": 2}]
    assert str(request).startswith(f"shown[{sent.id}]   expires:[")
    assert repr(request) == f"<Request: shown[{sent.id}] (1,) <hidden>>"
    assert [request.message.headers[name] for name in ("argsrepr", "kwargsrepr")] == ["(1,)", "<hidden>"]
    assert request.info() == {
        "id": sent.id,
        "name": "shown",
        "args": [1],
        "kwargs": {"y": 2},
        "type": "proj.seen",
        "hostname": "w@here",
        "time_start": None,
        "acknowledged": False,
        "delivery_info": {"exchange": "", "routing_key": "celery", "priority": 0, "redelivered": False},
        "worker_pid": None,
    }
    assert [request.info(safe=True)[name] for name in ("args", "kwargs")] == ["(1,)", "<hidden>"]
    with pytest.raises(AttributeError, match="a request has no 'on_ack' here"):
        _ = request.on_ack


def test_who_listens_to_sent_tasks_is_told_of_each(app: Celery) -> None:
    """By the old signal that some monitors still use; of the call that goes the short way, too."""
    seen: list[Any] = []

    def listen(sender: Any = None, task_id: str = "", args: Any = None, kwargs: Any = None, **_: Any) -> None:
        seen.append((sender, task_id, list(args), kwargs))

    @app.task(name="proj.sent")
    def task(x: int) -> int:
        return x

    signals.task_sent.connect(listen)
    try:
        sent = task.delay(1)
    finally:
        signals.task_sent.disconnect(listen)

    assert seen == [("proj.sent", sent.id, [1], {})]


def test_a_worker_of_an_app_alone_takes_any_unknown_job_for_a_task(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """Ruby's jobs too fail at once, with a sentence that helps; as others' they are kept whatever is kept of tasks."""
    app.conf.task_keep_failed = 0
    plain = {"class": "Nowhere", "args": [], "jid": "j", "queue": "celery", "retry": True}
    wrapped = {**plain, "class": "Sidekiq::ActiveJob::Wrapper", "wrapped": "ImportJob", "jid": "k"}
    push_jobs(redis_client, [json.dumps(plain), json.dumps(wrapped)], queue="celery")

    worker.start(claims_all=True)
    eventually(lambda: redis_client.zcard("dead") == 2)

    dead = {job["jid"]: job for job in map(json.loads, redis_client.zrange("dead", 0, -1))}
    assert stored(redis_client, "j")["result"]["exc_message"] == ["Nowhere"]
    assert "this worker has no task named Nowhere: add its module to imports" in dead["j"]["error_message"]
    assert "ImportJob" in dead["k"]["error_message"]
    assert redis_client.zcard("retry") == redis_client.zcard(INDEX) == 0


def test_an_error_tracker_may_wrap_what_a_task_runs(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Sentry's does, by its own `build_tracer` in the place of ours."""
    caught: list[str] = []
    original = trace.build_tracer

    def build_tracer(name: str, task: Any, *args: Any, **kwargs: Any) -> Any:
        run = task.run

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                return run(*args, **kwargs)
            except Exception as error:
                caught.append(repr(error))
                raise

        task.run = wrapped
        return original(name, task, *args, **kwargs)

    monkeypatch.setattr(trace, "build_tracer", build_tracer)

    @app.task(name="proj.tracked")
    def tracked() -> None:
        raise ValueError("boom")

    worker.start()
    tracked.delay()

    eventually(lambda: caught == ["ValueError('boom')"])


@pytest.mark.parametrize("way", ["a worker", "eagerly"])
def test_what_is_put_around_a_tracer_is_called_for_each_run(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It sees the call and how that has ended, may change the request, and the task ends as it would without it."""
    seen: list[Any] = []
    original = trace.build_tracer

    def build_tracer(name: str, task: Any, *args: Any, **kwargs: Any) -> Any:
        tracer = original(name, task, *args, **kwargs)

        def around(uuid: str, args: Any, kwargs: Any, request: Any = None) -> Any:
            request["headers"] = {"added": 1}
            ended = tracer(uuid, args, kwargs, request)
            seen.append((name, uuid, list(args), request["id"], getattr(ended.info, "state", ended.retval)))
            return ended

        return around

    @app.task(name="proj.divided", bind=True, max_retries=1)
    def divided(self: Any, x: int) -> Any:
        try:
            return [1 // x, self.request.headers]
        except ZeroDivisionError as error:
            raise self.retry(countdown=0, exc=error) from None

    monkeypatch.setattr(trace, "build_tracer", build_tracer)
    if way == "a worker":
        worker.start()
        sent = [divided.apply_async((x,), task_id=f"d{x}") for x in (1, 0)]
    else:
        sent = [divided.apply((x,), task_id=f"d{x}") for x in (1, 0)]

    assert sent[0].get(timeout=60) == [1, {"added": 1}]
    with pytest.raises(ZeroDivisionError):
        sent[1].get(timeout=60)
    assert sorted(map(str, seen)) == sorted(
        map(
            str,
            [
                ("proj.divided", "d1", [1], "d1", [1, {"added": 1}]),
                ("proj.divided", "d0", [0], "d0", "RETRY"),
                ("proj.divided", "d0", [0], "d0", "FAILURE"),
            ],
        )
    )


def test_what_is_put_around_a_task_for_its_tracer_is_called(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As New Relic does: the tracer is made of another object, which passes on to the task; `async def` or not."""
    called: list[str] = []
    original = trace.build_tracer

    class Around:
        def __init__(self, task: Any) -> None:
            self.__dict__["task"] = task

        def __getattr__(self, name: str) -> Any:
            return getattr(self.task, name)

        def run(self, *args: Any, **kwargs: Any) -> Any:
            called.append(self.task.name)
            return self.task.run(*args, **kwargs)

    def build_tracer(name: str, task: Any, *args: Any, **kwargs: Any) -> Any:
        return original(name, Around(task), *args, **kwargs)

    @app.task(name="proj.plain", bind=True)
    def plain(self: Any) -> Any:
        return self.request.id

    @app.task(name="proj.awaited")
    async def awaited() -> str:
        return "awaited"

    monkeypatch.setattr(trace, "build_tracer", build_tracer)
    worker.start()

    assert plain.apply_async(task_id="p").get(timeout=60) == "p"
    assert awaited.delay().get(timeout=60) == "awaited"
    assert called == ["proj.plain", "proj.awaited"]


def test_a_tracer_runs_a_task(app: Celery) -> None:
    """For code that builds one itself."""

    @app.task(name="proj.traced", bind=True, ignore_result=True)
    def traced(self: Any, x: int) -> Any:
        return 1 // x, self.request.id

    run = trace.build_tracer("proj.traced", traced, app=app)

    assert run("an-id", (1,), {}, {})[:2] == ((1, "an-id"), None)
    failed = run("an-id", (0,), {}, {})
    assert (failed.info.state, failed.retval.type) == ("FAILURE", ZeroDivisionError)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SystemExit(3), "Worker exited prematurely: exitcode 3."),
        (SystemExit("no disk"), "Worker exited prematurely: exitcode 1."),
        (SystemExit(), "Worker exited prematurely: exitcode 0."),
        (SystemExit(True), "Worker exited prematurely: exitcode 1."),
        (KeyboardInterrupt(), "Worker exited prematurely: KeyboardInterrupt."),
        (GeneratorExit("end"), "The task raised GeneratorExit('end'), which is not an Exception"),
        (asyncio.CancelledError(), "The task raised CancelledError(), which is not an Exception"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("is_coroutine", [False, True])
def test_what_would_end_a_program_is_stored_as_a_lost_worker(
    app: Celery, worker: TaskWorker, redis_client: redis.Redis, error: BaseException, text: str, is_coroutine: bool
) -> None:
    """In Celery's words, whose worker process has gone by it; errbacks are told the same."""

    @app.task(name="proj.leaves")
    def leaves() -> None:
        raise type(error)(*error.args)

    @app.task(name="proj.leaves_loop")
    async def leaves_loop() -> None:
        raise type(error)(*error.args)

    @app.task(name="proj.mourn")
    def mourn(request: Any, exc: Any, traceback: Any) -> None:
        redis_client.set("mourned", type(exc).__name__)

    worker.start()
    result = (leaves_loop if is_coroutine else leaves).apply_async(link_error=mourn.s())

    with pytest.raises(WorkerLostError) as raised:
        result.get(timeout=60)
    assert str(raised.value).startswith(text)
    assert stored(redis_client, result.id)["result"]["exc_module"] == "billiard.exceptions"
    assert result.traceback.count("raise type(error)") == 1
    assert "direct cause" in result.traceback
    assert eventually(lambda: redis_client.get("mourned")) == b"WorkerLostError"
    assert eventually(lambda: redis_client.zcard("dead")) == 1


def test_a_task_without_limits_is_told_so(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """By a list of two, as in Celery."""
    seen: list[Any] = []

    @app.task(name="proj.looks", bind=True)
    def looks(self: Any) -> None:
        request = self.request
        seen.append((request.timelimit, request.time_limit, request.soft_time_limit))

    worker.start()
    looks.delay()
    looks.apply_async(shadow="other")
    looks.apply_async(soft_time_limit=30)

    eventually(lambda: len(seen) == 3)
    assert sorted(seen, key=repr) == [([None, 30], None, 30), *[([None, None], None, None)] * 2]


@pytest.mark.parametrize("name", [None, 3, b"proj.add"])
def test_a_task_is_sent_by_its_name_alone(app: Celery, name: Any) -> None:
    """Anything else is refused before it is sent."""
    with pytest.raises(TypeError, match="takes the name of a task"):
        app.send_task(name)


def test_the_cleanup_of_a_custom_backend_is_called_after_each_run(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever its class is; that of our base class, which does nothing, is not."""
    app = Celery("custom", broker=redis_url, backend=redis_url, set_as_current=False)
    task = app.task(lambda: None, name="custom.task")
    assert Plan(task).cleans_up == []

    class Backend(type(task.backend)):  # type: ignore[misc]
        def process_cleanup(self) -> None:
            """Do something."""

    Backend.process_cleanup.__module__ = "acme.backends.interface"
    monkeypatch.setattr(task.backend, "__class__", Backend)

    assert Plan(task).cleans_up == [task.backend.process_cleanup]
