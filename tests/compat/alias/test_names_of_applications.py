"""
Names beyond Celery's public API that applications import at their start, and that have to be there for them to start.

Each was found in an application: grafana/oncall, nautobot, onadata, onyx, an ad server; or in test suites of packages.
"""

import logging
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import click
import pytest
import redis
import sidekiq_celery
from sidekiq_celery import Celery, _state, shared_task, signals
from sidekiq_celery._run import task_log
from sidekiq_celery._wire.context import Context
from sidekiq_celery.app import trace
from sidekiq_celery.backends.rpc import BacklogLimitExceeded
from sidekiq_celery.beat import (
    BeatLazyFunc,
    _evaluate_entry_args,
    _evaluate_entry_kwargs,
    crontab,
    logger,
    maybe_schedule,
    reraise,
)
from sidekiq_celery.bin.base import (
    CommaSeparatedList,
    ISO8601DateTime,
    ISO8601DateTimeOrFloat,
    JsonArray,
    JsonObject,
    LogLevel,
)
from sidekiq_celery.concurrency import asynpool, get_available_pool_names, get_implementation, thread
from sidekiq_celery.exceptions import ImproperlyConfigured, InvalidTaskError
from sidekiq_celery.execute import send_task
from sidekiq_celery.utils.debug import memdump, sample_mem
from sidekiq_celery.utils.iso8601 import parse_iso8601
from sidekiq_celery.utils.saferepr import saferepr
from sidekiq_celery.worker import request, strategy

from tests.compat.alias.conftest import Run
from tests.support.queued_jobs import queued_jobs


@pytest.mark.parametrize(
    "statement",
    [
        "from celery.app.trace import FAILURE, SUCCESS, logger, reset_worker_optimizations, setup_worker_optimizations",
        "from celery.backends.rpc import BacklogLimitExceeded",
        "from celery.beat import _evaluate_entry_args, _evaluate_entry_kwargs, crontab, logger, reraise",
        "from celery.bin.base import CommaSeparatedList, ISO8601DateTime, JsonArray, JsonObject, LogLevel",
        "from celery.contrib import rdb; rdb.set_trace",
        "from celery.fixups.django import DjangoWorkerFixup",
        "from celery.concurrency import asynpool; asynpool.PROC_ALIVE_TIMEOUT = 60.0",
        "from celery.concurrency.prefork import TaskPool; from celery.concurrency.thread import TaskPool as Threads",
        "from celery.bin.call import call; from celery.bin.purge import purge; from celery.bin.result import result",
        "from celery.app.base import logger; assert logger.name == 'celery.app.base'",
        "from celery.app.task import MaxRetriesExceededError, states",
        "from celery.bin.upgrade import settings",
        "from celery.result import AsyncResult, TimeoutError, states",
        "from celery.schedules import crontab, datetime, timedelta",
        "import datetime as d; datetime = d; from celery.schedules import *; assert datetime is d",
        "from celery.result import *; TimeoutError().errno",
        "from celery.utils.debug import memdump, sample_mem",
        "from celery.utils.iso8601 import parse_iso8601",
        "from celery.utils.saferepr import saferepr",
        "from celery.worker import strategy; strategy.logger.setLevel(30)",
        "from celery.worker.control import active, add_consumer, autoscale, heartbeat, ping, rate_limit, revoke",
        "from celery.worker.consumer.mingle import debug, exception, info",
        "from celery.worker.strategy import default, hybrid_to_proto2, proto1_to_proto2",
        "from celery.worker.request import Context",
        "from celery.worker.state import requests, revoked, total_count",
    ],
)
def test_what_applications_import_is_there(run: Run, statement: str) -> None:
    """Under the alias, in the words of the applications."""
    program = f"import sidekiq_celery; sidekiq_celery.install_as_celery()\n{statement}\nprint('imported')"

    done = run("-c", program)

    assert done.stdout == "imported\n", done.stderr


def test_a_scheduler_of_another_package_evaluates_its_entries() -> None:
    """As Celery's own does; a lazy argument is computed."""
    assert _evaluate_entry_args([1, BeatLazyFunc(max, 2, 3)]) == [1, 3]
    assert _evaluate_entry_kwargs({"a": BeatLazyFunc(dict, b=1)}) == {"a": {"b": 1}}
    assert (_evaluate_entry_args(None), _evaluate_entry_kwargs(None)) == ([], {})
    assert logger.name == "celery.beat"
    assert isinstance(maybe_schedule(crontab()), crontab)
    with pytest.raises(KeyError):
        reraise(KeyError, KeyError("gone"))


def test_levels_of_a_worker_s_loggers_are_set_by_their_modules(caplog: pytest.LogCaptureFixture) -> None:
    """A program may silence the line about each task that was received, and keep those about its end."""
    app = Celery("quiet", set_as_current=False)
    task = app.task(name="quiet.task")(lambda: None)
    run = Context(id="1", args=[], kwargs={})
    caplog.set_level(logging.INFO)
    strategy.logger.setLevel(logging.WARNING)
    try:
        task_log.log_received(task, run)
        task_log.log_success(task, run, None, 0.1)
    finally:
        strategy.logger.setLevel(logging.NOTSET)

    assert [record.name for record in caplog.records] == [trace.logger.name]
    assert request.logger.name == "celery.worker.request"


def test_messages_are_made_and_read_in_both_protocols() -> None:
    """By programs that consume Celery's messages themselves."""
    app = Celery("messages", set_as_current=False)
    made = {
        number: make("id", "proj.add", (1,), {"b": 2}, group_id="g", create_sent_event=True)
        for number, make in app.amqp.task_protocols.items()
    }

    body, headers, is_decoded, utc = strategy.proto1_to_proto2(made[1], dict(made[1].body))
    assert (body, is_decoded, utc) == (made[2].body, True, True)
    assert (headers["task"], headers["group"], headers["argsrepr"], headers["headers"]) == ("proj.add", "g", "(1,)", {})
    assert made[1].sent_event.keys() == {"uuid", "name", "args", "kwargs", "retries", "eta", "expires"}
    body, headers, is_decoded, utc = strategy.hybrid_to_proto2(made[2], made[1].body)
    assert (body, is_decoded, utc) == (made[2].body, True, True)
    assert headers == {**made[2].headers, "meth": None}
    for read in (strategy.proto1_to_proto2, strategy.hybrid_to_proto2):
        with pytest.raises(InvalidTaskError, match="must be a mapping"):
            read(made[1], {"kwargs": [1]})


def test_a_task_is_sent_by_an_old_name(redis_url: str, redis_client: redis.Redis) -> None:
    """Programs from Celery's early days write `from celery.execute import send_task`. It is the current app's."""
    Celery("old", broker=redis_url, fixups=[])

    sent = send_task("proj.add", (1, 2))

    [job] = queued_jobs(redis_client, "celery")
    assert (job["class"], job["jid"], job["args"]) == ("proj.add", sent.id, [1, 2])


def test_a_test_puts_shared_tasks_and_apps_back() -> None:
    """Tests of Invenio put an empty set in place of the shared tasks, and those of Thunderstore take an app away."""
    before = _state._on_app_finalizers
    _state._on_app_finalizers = set()  # type: ignore[assignment]
    try:
        shared_task(name="shared.later")(lambda: None)
        app = Celery("later", set_as_current=False)
        assert "shared.later" in app.tasks
    finally:
        _state._on_app_finalizers = before

    _state._deregister_app(app)
    assert app not in _state._get_active_apps()


@pytest.mark.parametrize("name", ["prefork", "threads", "solo", "asyncio"])
def test_a_program_asks_for_the_kind_of_a_worker_s_pool(name: str) -> None:
    """In a receiver of `worker_init`, to set up tracing there or in each child."""
    app = Celery("kinds", broker="redis://localhost:1", set_as_current=False)
    seen: list[type] = []

    def listen(sender: Any = None, **_: Any) -> None:
        seen.append(sender.pool_cls)

    signals.worker_init.connect(listen)
    try:
        worker = app.Worker(pool=name)
    finally:
        signals.worker_init.disconnect(listen)

    assert seen == [type(worker.pool)] == [get_implementation(name)]
    assert worker.pool_cls.__name__ == "TaskPool"
    assert worker.pool_cls.__module__ == f"sidekiq_celery.concurrency.{name.removesuffix('s')}"
    assert name in get_available_pool_names()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (thread.TaskPool, "threads"),
        ("celery.concurrency.prefork:TaskPool", "prefork"),
        ("celery.concurrency.threads:TaskPool", "threads"),
        ("sidekiq_celery.concurrency.solo.TaskPool", "solo"),
    ],
)
def test_a_program_names_a_pool_by_its_class(given: Any, name: str) -> None:
    """`worker_pool` holds its path in old settings, and the class itself in programs that look it up."""
    app = Celery("named", broker="redis://localhost:1", set_as_current=False, fixups=[])
    app.conf.worker_pool = given

    assert app.Worker().pool_cls is get_implementation(given) is get_implementation(name)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (StringIO, "no pool '_io:StringIO'; the pools are prefork"),
        ("celery.concurrency.gevent:TaskPool", "no pool 'gevent': use -P threads"),
        ("celery.concurrency.Prefork:TaskPool", "the pools are prefork"),
    ],
)
def test_a_class_that_is_no_pool_here_is_rejected(given: Any, why: str) -> None:
    """A class of a program's own cannot be a pool, because the engine has the processes."""
    with pytest.raises(ImproperlyConfigured, match=why):
        get_implementation(given)


def test_a_program_shows_whose_celery_it_uses() -> None:
    """Celery's own metadata, beside its version."""
    names = ("__author__", "__contact__", "__homepage__", "__docformat__", "__keywords__")

    assert [type(getattr(sidekiq_celery, name)) for name in names] == [str] * 5


def test_memory_is_sampled_and_printed() -> None:
    """The samples at equal distances, then what is left after a collection."""
    samples = [sample_mem() for _ in range(4)]
    out = StringIO()

    memdump(samples=2, file=out)
    memdump(file=out)

    lines = out.getvalue().splitlines()
    assert lines[:2] == [f"- rss (sample): {samples[0]}", f"- rss (sample): {samples[2]}"]
    assert [line.split(":")[0] for line in lines[2:]] == ["- rss (end)", "- rss (end)"]


def test_small_helpers_do_as_celery_s() -> None:
    """A time, a text, an error and a number."""
    assert parse_iso8601("2026-11-27T10:30:00Z") == datetime(2026, 11, 27, 10, 30, tzinfo=UTC)
    with pytest.raises(ValueError, match="tomorrow"):
        parse_iso8601("tomorrow")
    assert (saferepr([1, "b"]), saferepr("x" * 20, 10)) == ("[1, 'b']", "'xxxxxxxxxx...'")
    assert issubclass(BacklogLimitExceeded, Exception)
    assert asynpool.PROC_ALIVE_TIMEOUT == 4.0


def test_types_of_options_convert_and_refuse() -> None:
    """Commands of plug-ins create them from the classes of `celery.bin.base`."""

    def converted(kind: click.ParamType, text: str) -> object:
        return kind.convert(text, None, None)

    assert converted(CommaSeparatedList(), "a,b") == ["a", "b"]
    assert converted(JsonArray(), "[1]") == [1]
    assert converted(JsonObject(), '{"a": 1}') == {"a": 1}
    assert converted(ISO8601DateTime(), "2026-11-27") == datetime(2026, 11, 27)
    assert converted(ISO8601DateTimeOrFloat(), "1.5") == 1.5
    assert converted(ISO8601DateTimeOrFloat(), "2026-11-27") == datetime(2026, 11, 27)
    assert converted(LogLevel(), "info") == logging.INFO
    for kind, text in ((JsonArray(), "{}"), (JsonObject(), "[]"), (ISO8601DateTime(), "1.5"), (LogLevel(), "loud")):
        with pytest.raises(click.BadParameter):
            converted(kind, text)
