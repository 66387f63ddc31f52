"""What the tables of `docs/celery_reference.md` say and no other test holds."""

import json
from collections.abc import Iterator
from typing import Any

import click
import pytest
import redis
from click.testing import CliRunner
from sidekiq_celery import Celery, Task, bootsteps, signals
from sidekiq_celery.bin.base import CeleryOption
from sidekiq_celery.bin.celery import celery
from sidekiq_celery.exceptions import ImproperlyConfigured, InvalidTaskError
from sidekiq_celery.worker.request import Context, Request

from tests.compat.log.kept import logging_kept
from tests.compat.tasks.conftest import app, worker
from tests.compat.tasks.worker import TaskWorker
from tests.support.waiting import eventually

__all__ = ("app", "worker")


@pytest.fixture
def commands() -> Iterator[dict[str, click.Command]]:
    """The commands of the program, which are as before afterwards."""
    before = {name: (one, list(one.params), one.callback) for name, one in celery.commands.items()}
    yield celery.commands
    celery.commands.clear()
    for name, (one, params, callback) in before.items():
        celery.commands[name] = one
        one.params[:] = params
        one.callback = callback


def test_an_app_adds_options_to_commands(app: Celery, commands: dict[str, click.Command]) -> None:
    """By `user_options`."""
    app.user_options["report"].add(CeleryOption(("--region",), default="here"))
    asked: list[str] = []
    commands["report"].callback = lambda *_, region, **__: asked.append(region)  # type: ignore[misc]

    with logging_kept():
        app.start(["report", "--region", "north"])

    assert asked == ["north"]


def test_an_option_that_a_command_does_not_know_leaves_it_working(
    app: Celery, commands: dict[str, click.Command], capsys: pytest.CaptureFixture[str]
) -> None:
    """The command is run without the option, for which it has no use."""
    app.user_options["report"].add(CeleryOption(("--region",), default="here"))

    with logging_kept():
        app.start(["report", "--region", "north"])

    assert "software -> " in capsys.readouterr().out


@pytest.mark.parametrize(
    "command", [["call", "proj.any", "--site", "here"], ["beat", "--site", "here", "list"]], ids=lambda words: words[0]
)
def test_preload_options_are_told_of(app: Celery, commands: dict[str, click.Command], command: list[str]) -> None:
    """By `user_preload_options`, before the command does anything."""
    calls: list[Any] = []

    def listen(options: Any, **_: Any) -> None:
        calls.append(options)

    app.user_options["preload"].add(CeleryOption(("--site",), default="none"))
    signals.user_preload_options.connect(listen)
    try:
        with logging_kept():
            app.start(command)
    finally:
        signals.user_preload_options.disconnect(listen)

    assert calls == [{"site": "here"}]


def test_preload_options_reach_the_bootsteps_of_a_worker(app: Celery, commands: dict[str, click.Command]) -> None:
    """As keyword arguments, beside the worker's own options; celery-prometheus takes its address from there."""
    given: dict[str, Any] = {}

    class Exporter(bootsteps.Step):
        def __init__(self, parent: Any, **options: Any) -> None:
            given.update(options)
            raise ImproperlyConfigured("that is enough of a worker")

    app.user_options["preload"].add(CeleryOption(("--exporter-address",)))
    app.steps["worker"].add(Exporter)
    with logging_kept(), pytest.raises(click.ClickException, match="enough of a worker"):
        app.start(["worker", "--exporter-address", "here:9000"])

    assert given["exporter_address"] == "here:9000"


def test_a_program_adds_a_command(commands: dict[str, click.Command]) -> None:
    """To the group that Celery has under the same name."""

    @celery.command("greet")
    def greet() -> None:
        click.echo("hello")

    with logging_kept():
        assert CliRunner().invoke(celery, ["greet"]).output == "hello\n"


def test_a_command_of_a_program_need_not_take_preload_options(app: Celery, commands: dict[str, click.Command]) -> None:
    """Listeners are told of them, and a command that takes one gets it."""
    calls: list[Any] = []

    def listen(options: Any, **_: Any) -> None:
        calls.append(options)

    @celery.command("without")
    def without() -> None:
        calls.append("without")

    @celery.command("with-site")
    @click.pass_context
    def with_site(ctx: click.Context, site: str) -> None:
        calls.append(f"with {site}")

    app.user_options["preload"].add(CeleryOption(("--site",), default="none"))
    signals.user_preload_options.connect(listen)
    try:
        with logging_kept():
            app.start(["without", "--site", "here"])
            app.start(["with-site", "--site", "there"])
    finally:
        signals.user_preload_options.disconnect(listen)

    assert calls == [{"site": "here"}, "without", {"site": "there"}, "with there"]


def test_a_task_that_has_started_says_so(app: Celery, worker: TaskWorker) -> None:
    """By its option or the setting; and who ignores results, may keep errors."""
    app.conf.task_track_started = True
    app.conf.update(task_ignore_result=False, task_store_errors_even_if_ignored=True)
    seen: list[str] = []

    @app.task(name="proj.tracked", bind=True)
    def tracked(self: Any) -> None:
        seen.append(self.AsyncResult(self.request.id).state)

    @app.task(name="proj.ignored", ignore_result=True)
    def ignored() -> None:
        raise ValueError("kept all the same")

    worker.start()
    tracked.delay().get(timeout=60)
    failed = app.AsyncResult(ignored.delay().id)

    assert seen == ["STARTED"]
    assert eventually(lambda: failed.state == "FAILURE", within_seconds=60)


def test_a_task_has_a_queue_of_its_own(app: Celery, redis_client: redis.Redis) -> None:
    """As an option or an attribute; the caller's comes first."""

    @app.task(name="proj.queued", queue="own")
    def queued() -> None: ...

    queued.delay()
    queued.apply_async(queue="other")

    assert (redis_client.llen("queue:own"), redis_client.llen("queue:other")) == (1, 1)


def test_a_class_of_requests_has_no_effect(app: Celery, worker: TaskWorker) -> None:
    """It is kept, and never made."""

    class Mine(Task):
        Request = "no.such.module:Request"
        Strategy = "no.such.module:strategy"

    @app.task(base=Mine, name="proj.requested")
    def requested() -> str:
        return "ran"

    worker.start()

    assert requested.Request == "no.such.module:Request"
    assert requested.delay().get(timeout=60) == "ran"


def test_a_request_of_the_worker_is_made_of_a_message(app: Celery) -> None:
    """As tests of result backends do; who wants it to run is told what to use."""

    class Mine(Request):
        pass

    @app.task(name="proj.asked")
    def asked(x: int, y: int) -> None: ...

    headers, properties, body, _ = app.amqp.as_task_v2("an-id", "proj.asked", (1,), {"y": 2}, shadow="shown", chord={})
    message = Context(headers=headers, properties=properties, body=body)

    request = Mine(message, app=app, hostname="w@here", decoded=True)

    assert (request.id, request.type, request.task, request.humaninfo()) == (
        "an-id",
        "proj.asked",
        asked,
        "shown[an-id]",
    )
    assert (request.args, request.kwargs, request.argsrepr, request.chord) == ((1,), {"y": 2}, "(1,)", {})
    assert (request.info()["hostname"], request.content_type, request.ignore_result) == ("w@here", None, False)
    assert request.request_dict == {
        **headers,
        **{"properties": properties, "reply_to": "", "correlation_id": "an-id", "hostname": "w@here"},
        **{"args": (1,), "kwargs": {"y": 2}, "delivery_info": request.delivery_info},
    }
    with pytest.raises(AttributeError, match="the task's own `request`"):
        request.execute_using_pool(None)


def test_a_request_of_a_task_s_name_needs_no_app() -> None:
    """django-celery-results makes those in its tests."""
    message = Context(headers={"id": "an-id", "task": "proj.asked", "ignore_result": False}, body=[[], {}, None])

    request = Request(message, task="proj.asked", decoded=True)

    assert (request.app, request.task, request.store_errors, request.eta) == (None, "proj.asked", True, None)


def test_a_request_whose_eta_is_no_time_is_refused(app: Celery) -> None:
    """With Celery's error for messages of that kind."""
    headers, properties, body, _ = app.amqp.as_task_v2("an-id", "proj.asked", eta="soon")

    with pytest.raises(InvalidTaskError, match="invalid ETA or expiry"):
        Request(Context(headers=headers, properties=properties, body=body), app=app, task="proj.asked", decoded=True)


def test_a_test_hands_a_request_to_a_task(app: Celery) -> None:
    """By `push_request`; what it holds can be read, changed and cleared."""

    @app.task(name="proj.asked", bind=True)
    def asked(self: Any) -> Any:
        return self.request.id, self.request.retries

    asked.push_request(id="given", retries=2)
    try:
        assert asked.run() == ("given", 2)
        assert asked.request.get("retries") == 2
        asked.request.update(retries=3)
        assert asked.request.as_execution_options()["retries"] == 3
        asked.request.clear()
        assert asked.request.id is None
    finally:
        asked.pop_request()
    assert asked.request_stack.top is None


def test_settings_give_a_priority(app: Celery, redis_client: redis.Redis) -> None:
    """To tasks that say nothing."""
    app.conf.update(
        task_default_priority=6,
        broker_transport_options={"queue_order_strategy": "priority"},
    )

    @app.task(name="proj.urgent")
    def urgent() -> None: ...

    urgent.delay()

    [raw] = redis_client.lrange("queue:celery:6", 0, -1)
    assert json.loads(raw)["celery"]["priority"] == 6


def test_a_worker_empties_its_queues_first(
    app: Celery, redis_client: redis.Redis, capfd: pytest.CaptureFixture[str]
) -> None:
    """With `--purge`; no other queue is touched."""
    from sidekiq_celery.apps.worker import Worker

    app.send_task("proj.old")
    app.send_task("proj.old", queue="other")

    assert Worker(app=app, quiet=True, pool="solo").purge_messages() == 1
    assert "1 task was removed from the queues" in capfd.readouterr().err
    assert redis_client.llen("queue:other") == 1


def test_a_called_task_may_have_its_parent_s_priority(app: Celery, worker: TaskWorker) -> None:
    """By `task_inherit_parent_priority`."""
    app.conf.task_inherit_parent_priority = True
    seen: list[Any] = []

    @app.task(name="proj.child", bind=True)
    def child(self: Any) -> None:
        seen.append(self.request.delivery_info["priority"])

    @app.task(name="proj.parent")
    def parent() -> None:
        child.delay()

    worker.start()
    parent.apply_async(priority=4)

    assert eventually(lambda: seen == [4], within_seconds=60)


def test_a_class_tells_what_its_tasks_are_called_and_show(
    app: Celery, worker: TaskWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """`shadow_name`, `resultrepr_maxsize`, `trail`, `on_bound`."""
    bound: list[Any] = []

    class Shown(Task):
        resultrepr_maxsize = 10
        trail = False

        @classmethod
        def on_bound(cls, app: Any) -> None:
            bound.append(app)

        def shadow_name(self, args: Any, kwargs: Any, options: Any) -> str:
            return "proj.called_otherwise"

    @app.task(base=Shown, name="proj.shown")
    def shown() -> str:
        shown_child.delay()
        return "x" * 100

    @app.task(name="proj.shown_child")
    def shown_child() -> None: ...

    worker.start()
    with caplog.at_level("INFO", logger="celery.app.trace"):
        result = shown.delay()
        result.get(timeout=60)

    assert app in bound
    assert not result.children
    [line] = [record.getMessage() for record in caplog.records if result.id in record.getMessage()]
    assert line.startswith("Task proj.called_otherwise[")
    assert line.endswith("'xxxxxxxxxx...'")


def test_a_function_may_be_wrapped_around_a_task_s_attribute(app: Celery) -> None:
    """By `add_around`."""

    @app.task(name="proj.wrapped")
    def wrapped(x: int) -> int:
        return x

    task = app.tasks["proj.wrapped"]
    type(task).add_around("run", lambda run: lambda self, x: run(x) + 1)

    assert task.run(1) == 2


def test_results_that_were_read_may_be_kept(app: Celery) -> None:
    """By `result_cache_max`; else each handle asks Redis."""
    app.conf.result_cache_max = 10
    app.backend.store_result("kept", 42, "SUCCESS")
    assert app.AsyncResult("kept").result == 42

    app.backend.delete(app.backend.get_key_for_task("kept"))

    assert app.AsyncResult("kept").result == 42


def test_a_worker_has_a_queue_for_itself(app: Celery) -> None:
    """By `worker_direct`."""
    from sidekiq_celery.apps.worker import Worker

    app.conf.worker_direct = True
    Worker(app=app, quiet=True, pool="solo", hostname="w1@here")

    assert "w1@here.dq2" in app.amqp.queues.consume_from


def test_settings_name_the_mailboxes_of_remote_control(app: Celery) -> None:
    """And two that exclude each other are refused."""
    app.conf.update(control_exchange="ours", control_queue_ttl=7.0, control_queue_expires=9.0)

    assert app.control.mailbox.namespace == "ours"
    assert (app.control.mailbox.queue_ttl, app.control.mailbox.queue_expires) == (7.0, 9.0)
    other = Celery("proj", set_as_current=False)
    other.conf.update(control_queue_durable=True, control_queue_exclusive=True)
    with pytest.raises(ImproperlyConfigured, match="cannot both be True"):
        _ = other.control.mailbox
