"""Tasks that run in the caller's process."""

import asyncio
import subprocess
import sys
from datetime import date
from typing import Any

import pytest
import redis
from kombu.exceptions import EncodeError
from sidekiq_celery import Celery, Task, signals
from sidekiq_celery.exceptions import Ignore, MaxRetriesExceededError


@pytest.fixture
def eager(app: Celery) -> Celery:
    """An app that sends nothing."""
    app.conf.task_always_eager = True
    return app


def test_apply_runs_a_task_and_keeps_what_it_returns(app: Celery, redis_client: redis.Redis) -> None:
    """Nothing is sent, and nothing stored."""

    @app.task(name="proj.add", bind=True)
    def add(self: Any, x: int, y: int = 0) -> Any:
        return x + y, self.request.is_eager, self.request.id, self.request.called_directly

    result = add.apply((1,), {"y": 2}, task_id="my-id")

    assert (result.get(), result.state, result.id) == ((3, True, "my-id", False), "SUCCESS", "my-id")
    assert redis_client.keys() == []


def test_a_task_that_calls_itself_has_the_arguments_of_each_call(app: Celery) -> None:
    """Inside and afterwards. With a `__call__` of its own, the run keeps its request."""

    class Own(Task):
        def __call__(self, *args: Any) -> Any:
            return super().__call__(*args)

    def count_down(self: Any, number: int) -> list[Any]:
        inner = self(number - 1) if number else []
        return [*inner, self.request.args]

    plain = app.task(name="proj.plain", bind=True)(count_down)
    own = app.task(name="proj.own", bind=True, base=Own)(count_down)

    assert plain.apply((2,)).get() == [(0,), (1,), (2,)]
    assert own.apply((2,)).get() == [(0,), (1,), (2,)]


def test_eager_tasks_within_one_another_have_the_first_as_their_root(app: Celery) -> None:
    """Each has the one that called it as its parent. Traces and logs put them together by the root."""
    seen: list[Any] = []

    @app.task(bind=True)
    def nested(self: Any, depth: int) -> None:
        seen.append((self.request.root_id, self.request.parent_id))
        if depth:
            nested.apply((depth - 1,), task_id=str(depth - 1))

    nested.apply((2,), task_id="2")

    assert seen == [("2", None), ("2", "2"), ("2", "1")]


def test_a_run_keeps_its_request_although_the_call_of_all_tasks_is_wrapped(
    app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Monitors do that. What the task writes into its request is there for its hooks."""
    call, seen = Task.__call__, list[Any]()

    def wrapped(task: Any, *args: Any) -> Any:
        return call(task, *args)

    monkeypatch.setattr(Task, "__call__", wrapped)

    class Noted(Task):
        def after_return(self, *outcome: Any) -> None:
            seen.append(getattr(self.request, "note", None))

    @app.task(name="proj.noting", bind=True, base=Noted)
    def noting(self: Any) -> None:
        self.request.note = "written"

    noting.apply()

    assert seen == ["written"]


def test_an_error_prints_nothing_in_a_program_that_has_no_logging() -> None:
    """As in Celery: only handlers that a program sets up are told of a task's end."""
    program = """if True:
        from sidekiq_celery import Celery

        app = Celery()

        @app.task
        def fail():
            raise ValueError("boom")

        print(fail.apply().state)
    """

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("FAILURE\n", "")


def test_apply_keeps_an_error_unless_it_is_to_be_thrown(app: Celery) -> None:
    """By the call, or by `task_eager_propagates`."""

    @app.task(name="proj.fail")
    def fail() -> None:
        raise ValueError("boom")

    result = fail.apply()
    assert (result.state, repr(result.result), "boom" in (result.traceback or "")) == (
        "FAILURE", "ValueError('boom')", True,
    )  # fmt: skip
    with pytest.raises(ValueError, match="boom"):
        result.get()
    with pytest.raises(ValueError, match="boom"):
        fail.apply(throw=True)
    app.conf.task_eager_propagates = True
    with pytest.raises(ValueError, match="boom"):
        fail.apply()


def test_an_eager_app_sends_nothing(eager: Celery, redis_client: redis.Redis) -> None:
    """`delay` runs the task with its arguments as a worker would get them."""
    seen: list[Any] = []

    @eager.task(name="proj.look")
    def look(value: Any) -> None:
        seen.append(value)

    look.delay((1, date(2026, 1, 2)))
    with pytest.raises(EncodeError):
        look.delay(object())

    assert seen == [[1, date(2026, 1, 2)]]
    assert redis_client.keys() == []


def test_an_eager_app_needs_no_redis() -> None:
    """Whatever its settings for tests say of a broker."""
    app = Celery("tests", broker="memory://", set_as_current=False, fixups=[])
    app.conf.update(task_always_eager=True, result_backend=None)

    @app.task(name="proj.plain", shared=False)
    def plain(x: int) -> int:
        return x

    assert plain.delay(3).get() == 3


def test_a_stored_eager_result_can_be_read_by_others(eager: Celery) -> None:
    """`task_store_eager_result`."""
    eager.conf.task_store_eager_result = True

    @eager.task(name="proj.stored")
    def stored() -> int:
        return 7

    result = stored.delay()

    assert eager.AsyncResult(result.id).get(timeout=60) == 7


def test_an_eager_retry_is_made_at_once(app: Celery) -> None:
    """Until it succeeds, or no try is left."""
    seen: list[int] = []

    @app.task(name="proj.again", bind=True, max_retries=2)
    def again(self: Any, until: int) -> str:
        seen.append(self.request.retries)
        if self.request.retries < until:
            raise self.retry(countdown=100)
        return "done"

    assert again.apply((2,)).get() == "done"
    assert seen == [0, 1, 2]
    with pytest.raises(MaxRetriesExceededError):
        again.apply((9,)).get()


def test_a_plain_call_raises_the_error_that_a_retry_was_for(app: Celery) -> None:
    """There is nobody to run it again."""

    @app.task(name="proj.called", bind=True)
    def called(self: Any) -> None:
        assert self.request.called_directly
        try:
            raise KeyError("x")
        except KeyError as exc:
            self.retry(exc=exc)

    with pytest.raises(KeyError):
        called()


def test_a_coroutine_runs_eagerly_too(app: Celery) -> None:
    """With a loop of its own, also where one runs already; and as a plain coroutine."""

    @app.task(name="proj.coroutine", bind=True)
    async def coroutine(self: Any, x: int) -> Any:
        await asyncio.sleep(0)
        return x, self.request.args, self.request.called_directly

    async def within() -> Any:
        return coroutine.apply((2,)).get(disable_sync_subtasks=False), await coroutine(3)

    assert coroutine.apply((1,)).get() == (1, (1,), False)
    assert asyncio.run(within()) == ((2, (2,), False), (3, (3,), True))


def test_hooks_and_signals_of_an_eager_run(app: Celery) -> None:
    """They are the worker's."""
    calls: list[str] = []

    def listen(state: str = "", **_: Any) -> None:
        calls.append(state)

    @app.task(name="proj.fine")
    def fine() -> None:
        pass

    signals.task_postrun.connect(listen)
    try:
        fine.apply()
    finally:
        signals.task_postrun.disconnect(listen)

    assert calls == ["SUCCESS"]


def test_callbacks_of_an_eager_call_run_at_once(eager: Celery) -> None:
    """And its errbacks."""
    seen: list[Any] = []

    @eager.task(name="proj.work")
    def work(fails: bool) -> int:
        return 1 // (not fails)

    @eager.task(name="proj.note")
    def note(what: Any) -> None:
        seen.append(what)

    work.apply_async((False,), link=note.s())
    failed = work.apply_async((True,), link_error=note.s())

    assert seen == [1, failed.id]


def test_an_errback_that_takes_an_id_runs_at_once_too(app: Celery, redis_client: redis.Redis) -> None:
    """Like one that takes the error: `apply` sends neither of them."""
    told = []

    @app.task(name="proj.fail")
    def fail() -> None:
        raise ValueError("boom")

    @app.task(name="proj.note")
    def note(task_id: str) -> None:
        told.append(task_id)

    fail.apply(link_error=note.s(), task_id="my-id")

    assert told == ["my-id"]
    assert redis_client.keys() == []


@pytest.mark.parametrize("hook", ["on_failure", "after_return"])
def test_an_error_in_a_hook_of_a_failed_task_reaches_the_caller(app: Celery, hook: str) -> None:
    """A test that runs tasks eagerly shows that a hook is broken."""

    def broken(*args: Any) -> None:
        raise LookupError("broken hook")

    @app.task(name="proj.fail", **{hook: broken})
    def fail() -> None:
        raise ValueError("boom")

    with pytest.raises(LookupError, match="broken hook"):
        fail.apply()


def test_an_error_that_reaches_the_caller_is_told_of_by_a_signal(app: Celery) -> None:
    """As in Celery, which sends `task_internal_error` for it, and no `task_failure`."""
    told: list[Any] = []

    @app.task(name="proj.fail")
    def fail() -> None:
        raise ValueError("boom")

    def note(sender: Any, exception: Any, **kwargs: Any) -> None:
        told.append((sender.name, repr(exception)))

    signals.task_internal_error.connect(note)
    try:
        with pytest.raises(ValueError, match="boom"):
            fail.apply(throw=True)
    finally:
        signals.task_internal_error.disconnect(note)

    assert told == [("proj.fail", "ValueError('boom')")]


def test_an_ignored_task_has_a_traceback(app: Celery) -> None:
    """It says where the task gave up."""

    @app.task(name="proj.skip")
    def skip() -> None:
        raise Ignore

    result = skip.apply()

    assert result.state == "IGNORED"
    assert result.traceback.endswith("sidekiq_celery.exceptions.Ignore\n")
