"""What a program or a package puts around calls sees the steps of workflows, too."""

from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, Task, chain, chord, group, signals
from sidekiq_celery.canvas import Signature
from sidekiq_celery.result import AsyncResult

from sidekiq_py.api import JobDraft, JobRecord
from sidekiq_py.errors import PayloadError
from tests.compat.tasks.worker import TaskWorker
from tests.support.waiting import eventually

_SECONDS = 60


def increment(number: int) -> int:
    """One more."""
    return number + 1


def total(numbers: list[int]) -> int:
    """Their sum."""
    return sum(numbers)


class Watching:
    """Counts the calls that go through it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self._patch = monkeypatch

    def wrap(self, owner: Any, name: str) -> None:
        """Put it around a method, as packages that trace do."""
        inside = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return inside(*args, **kwargs)

        self._patch.setattr(owner, name, watched)


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Watching:
    """One that watches nothing yet."""
    return Watching(monkeypatch)


@pytest.mark.parametrize("what", ["the class of all tasks", "the task", "the app", "its class", "signatures"])
def test_steps_and_bodies_go_through_what_was_put_around_calls(
    app: Celery, worker: TaskWorker, watching: Watching, what: str
) -> None:
    """The four calls that the worker makes of two steps, a part's and a chord's."""
    one_more, sum_up = app.task(name="one_more")(increment), app.task(name="sum_up")(total)
    app.finalize()
    worker.start()
    canvas = chain(one_more.s(0), one_more.s(), one_more.s())
    parts = chord([one_more.s(1), one_more.s(2)], sum_up.s())
    owners = {
        "the class of all tasks": [(Task, "apply_async")],
        "the task": [(app.tasks["one_more"], "apply_async"), (app.tasks["sum_up"], "apply_async")],
        "the app": [(app, "send_task")],
        "its class": [(Celery, "send_task")],
        "signatures": [(Signature, "apply_async")],
    }
    for owner, name in owners[what]:
        watching.wrap(owner, name)

    results = canvas.apply_async(), parts.apply_async()

    assert [result.get(timeout=_SECONDS) for result in results] == [3, 5]
    # The first step and the two parts are called here. The body is called once, although any part may be the last.
    assert watching.calls == 3 + 2 + 1


@pytest.mark.parametrize(
    ("owner", "name"), [(Celery, "send_task"), (Signature, "apply_async")], ids=["the class of apps", "signatures"]
)
def test_a_body_that_only_others_have_goes_once_through_what_was_put_around_calls(
    app: Celery, worker: TaskWorker, watching: Watching, redis_client: redis.Redis, owner: Any, name: str
) -> None:
    """The worker of the parts knows no more of it than its name and its queue."""
    one_more = app.task(name="one_more")(increment)
    worker.start()
    canvas = chord([one_more.s(1), one_more.s(2)], app.signature("sum_up", queue="others"))
    watching.wrap(owner, name)

    canvas.apply_async()

    assert redis_client.brpop(["queue:others"], timeout=_SECONDS)
    # Those of the two parts are made here.
    assert watching.calls == 2 + 1


def test_a_class_of_tasks_that_overrides_calls_is_asked(app: Celery, worker: TaskWorker) -> None:
    """Also where the step was kept in Redis meanwhile."""
    seen: list[Any] = []

    class Seen(Task):
        def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            seen.append(args)
            return super().apply_async(args, kwargs, **options)

    one_more = app.task(name="one_more", base=Seen)(increment)
    worker.start()

    assert chain(one_more.s(0), one_more.s(), one_more.s()).apply_async().get(timeout=_SECONDS) == 3

    assert [tuple(args) for args in seen] == [(0,), (1,), (2,)]


def test_who_listens_to_publishing_is_told_of_a_chord_s_body_once(app: Celery, worker: TaskWorker) -> None:
    """The task that calls it is not mentioned: each part prepares it. The body continues the trace in its headers."""
    told: list[str] = []

    def before(sender: str, headers: dict[str, Any], **_: Any) -> None:
        running = app.current_worker_task
        headers["trace"] = [*(running.request.headers or {}).get("trace", ()), sender] if running else [sender]

    def after(sender: str, **_: Any) -> None:
        told.append(sender)

    @app.task(name="trace_of", bind=True)
    def trace_of(self: Any, numbers: list[int]) -> Any:
        return self.request.headers["trace"]

    one_more = app.task(name="one_more")(increment)
    signals.before_task_publish.connect(before)
    signals.after_task_publish.connect(after)
    try:
        worker.start()
        canvas = chord([one_more.s(number) for number in range(3)], trace_of.s())
        assert canvas.apply_async().get(timeout=_SECONDS) == ["one_more", "trace_of"]
    finally:
        signals.before_task_publish.disconnect(before)
        signals.after_task_publish.disconnect(after)

    assert told == ["one_more"] * 3 + ["trace_of"]


def test_a_call_of_the_program_s_base_class_does_not_hold_up_a_chord(app: Celery, worker: TaskWorker) -> None:
    """A class for all tasks may ask each call for a tenant. The tasks that call or fail a body have none to give."""

    class OfATenant(Task):
        typing = False

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return f"{kwargs.pop('tenant')}: {super().__call__(*args, **kwargs)}"

        def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            return super().apply_async(args, kwargs, **options)

    app.Task = OfATenant

    @app.task(name="hello")
    def hello(name: str) -> str:
        return name

    @app.task(name="refuse")
    def refuse() -> None:
        raise ValueError("refused")

    worker.start()

    canvas = chord([hello.s("a", tenant="x"), hello.s("b", tenant="y")], hello.s(tenant="z"))
    assert canvas.apply_async().get(timeout=_SECONDS) == "z: ['x: a', 'y: b']"

    canvas = chord([hello.s("a", tenant="x"), refuse.s(tenant="y")], hello.s(tenant="z"))
    assert eventually(canvas.apply_async().failed, within_seconds=_SECONDS)


def test_a_before_start_that_fails_for_all_but_the_program_s_tasks_does_not_hold_up_a_chord(
    app: Celery, worker: TaskWorker
) -> None:
    """A body of several jobs never ran."""

    class OfATenant(Task):
        def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
            kwargs["tenant"]

    app.Task = OfATenant

    @app.task(name="hello")
    def hello(names: list[str], tenant: str) -> str:
        return f"{tenant}: {names}"

    worker.start()

    canvas = chord([hello.s(["a"], tenant="x")], group(hello.s(tenant="y"), hello.s(tenant="z")))
    assert canvas.apply_async().get(timeout=_SECONDS) == ["y: [\"x: ['a']\"]", "z: [\"x: ['a']\"]"]


def test_a_call_of_a_step_may_send_a_chain_of_its_own(app: Celery, worker: TaskWorker) -> None:
    """As base classes do that note down what is called; neither chain takes a step of the other."""
    ran: list[str] = []
    told: list[AsyncResult] = []

    @app.task(name="say")
    def say(before: str, word: str) -> str:
        ran.append(f"{before}{word}")
        return f"{before}{word}"

    class Noted(Task):
        def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            result = super().apply_async(args, kwargs, **options)
            if self.app.current_worker_task:
                told.append(chain(say.s("", "A"), say.s("B"), say.s("C")).apply_async())
            return result

    @app.task(name="noted", base=Noted)
    def noted(before: str, word: str) -> str:
        return f"{before}{word}"

    worker.start(concurrency=1)

    result = chain(say.s("", "a"), noted.s("b"), say.s("c"), say.s("d")).apply_async()

    assert result.get(timeout=_SECONDS) == "abcd"
    assert [each.get(timeout=_SECONDS) for each in told] == ["ABC"]
    assert sorted(ran) == ["A", "AB", "ABC", "a", "abc", "abcd"]


def test_a_step_that_takes_other_arguments_fails_the_chain(app: Celery, worker: TaskWorker) -> None:
    """The task before it has failed by that, as in Celery: nothing is sent that could not run."""
    one_more = app.task(name="one_more")(increment)
    worker.start()

    result = chain(one_more.s(0), one_more.s(1, 2)).apply_async()

    with pytest.raises(TypeError, match="positional argument"):
        result.get(timeout=_SECONDS)


@pytest.mark.parametrize("kind", ["chain", "chord"])
def test_a_task_of_a_workflow_is_not_copied(app: Celery, redis_client: redis.Redis, kind: str) -> None:
    """The end of the copy would run the next step, or count as that part of the chord, and so would the task's own."""
    step, body = app.task(name="proj.step")(increment), app.task(name="proj.total")(total)
    (chain(step.s(1), step.s()) if kind == "chain" else chord([step.s(1)] * 2, body.s())).delay()
    raw = redis_client.lindex("queue:celery", 0)
    assert isinstance(raw, bytes)

    with pytest.raises(PayloadError, match="belongs to a batch or a workflow"):
        JobDraft(JobRecord(raw))
