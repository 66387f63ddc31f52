"""Test apps and test workers: real queues, in threads of this process."""

import json
import logging
import os
import subprocess
import sys
from datetime import datetime

import pytest
from sidekiq_celery import Celery, chord, current_app, shared_task, signals
from sidekiq_celery._send.clients import client_of
from sidekiq_celery.concurrency import get_implementation
from sidekiq_celery.contrib.testing import private_broker
from sidekiq_celery.contrib.testing.app import TestApp, Trap, setup_default_app
from sidekiq_celery.contrib.testing.manager import Manager
from sidekiq_celery.contrib.testing.mocks import ContextMock, TaskMessage, TaskMessage1, task_message_from_sig
from sidekiq_celery.contrib.testing.worker import (
    TestWorkController,
    start_worker,
    test_worker_started,
    test_worker_stopped,
)
from sidekiq_celery.exceptions import CeleryWarning, ImproperlyConfigured, TaskRevokedError

from tests.support.celery_program import environment


@shared_task
def multiply(x, y):
    """A task of every app."""
    return x * y


@shared_task
def total(numbers):
    """For the end of a chord."""
    return sum(numbers)


@pytest.fixture
def app():
    """A test app; afterwards the current app is what it was."""
    one = TestApp()
    with setup_default_app(one):
        yield one


def test_a_worker_runs_tasks_and_workflows(app):
    """A broker of `memory://` is a real Redis, and results are in this process."""
    with start_worker(app, loglevel=0) as worker:
        assert isinstance(worker, TestWorkController)
        assert multiply.delay(3, 4).get(timeout=20) == 12
        assert chord([multiply.s(1, 2), multiply.s(3, 4)])(total.s()).get(timeout=20) == 14
        assert multiply.apply_async((2, 3), countdown=0.1).get(timeout=20) == 6


def test_a_worker_runs_on_the_redis_that_the_settings_name(redis_url, redis_client):
    """Where a suite has a Redis of its own, nothing else is started."""
    app = TestApp(config={"broker_url": redis_url, "result_backend": redis_url})

    with setup_default_app(app), start_worker(app, loglevel=0):
        result = multiply.delay(3, 4)
        assert result.get(timeout=20) == 12

    assert redis_client.exists(f"celery-task-meta-{result.id}")


def test_a_plain_app_may_have_memory_as_its_broker_too():
    """Celery's own examples make the app by hand."""
    app = Celery("shop", broker="memory://", backend="cache+memory://")
    app.log.loglevel = 0

    with setup_default_app(app), start_worker(app, loglevel=0):
        assert multiply.delay(3, 4).get(timeout=20) == 12


def test_an_error_in_the_block_stops_the_worker(app):
    """The test sees the task's exception, and nothing hangs."""

    @app.task
    def fail():
        raise NotImplementedError("on purpose")

    with pytest.raises(NotImplementedError), start_worker(app, loglevel=0):
        fail.delay().get(timeout=20)


def test_a_task_that_is_sent_last_is_run_as_well(app):
    """As in Celery: suites look at what it has done after the block, and the next test's worker must not find it."""
    ran = []

    @app.task
    def note(number):
        ran.append(number)

    for number in range(3):
        with start_worker(app, loglevel=0):
            note.delay(number)
        assert ran == [*range(number + 1)]


def test_a_task_that_is_declared_later_is_run_as_well(app):
    """Celery wants `worker.reload()` for that; here it may be called."""
    with start_worker(app, loglevel=0) as worker:

        @app.task
        def late(word):
            return word

        assert late.delay("hello").get(timeout=20) == "hello"
        worker.reload()
        assert late.delay("again").get(timeout=20) == "again"


def test_a_log_level_that_a_test_sets_later_brings_no_lines_about_calls(app, caplog):
    """As with Celery, a test that looks at its own lines with caplog meets only those of its tasks."""

    @app.task
    def speak():
        logging.getLogger("shop").info("spoken")

    caplog.set_level("ERROR")
    with start_worker(app):
        caplog.set_level("INFO")

        @app.task
        def speak_too():
            logging.getLogger("shop").info("spoken too")

        speak.delay().get(timeout=20)
        speak_too.delay().get(timeout=20)

    assert [record.getMessage() for record in caplog.records if record.threadName != "MainThread"] == [
        "spoken",
        "spoken too",
    ]


def test_a_worker_that_starts_at_info_logs_calls(app, caplog):
    """A suite whose level is INFO finds in its log which tasks ran."""
    caplog.set_level("INFO")

    with start_worker(app, loglevel="INFO"):
        multiply.delay(3, 4).get(timeout=20)

    assert f"Task {multiply.name}" in caplog.text


def test_a_name_and_signals_are_as_in_celery(app):
    """The worker's name is what was asked for; who listens is told of its life."""
    calls = []

    def hear(name):
        return lambda **about: calls.append((name, about.get("worker")))

    receivers = [hear(name) for name in ("started", "stopped", "ended")]
    for signal, receiver in zip(
        (test_worker_started, test_worker_stopped, signals.worker_shutdown), receivers, strict=True
    ):
        signal.connect(receiver)
    try:
        with start_worker(app, loglevel=0, hostname="name@host") as worker:
            assert worker.hostname == "name@host"
    finally:
        for signal, receiver in zip(
            (test_worker_started, test_worker_stopped, signals.worker_shutdown), receivers, strict=True
        ):
            signal.disconnect(receiver)

    assert calls == [("started", worker), ("ended", None), ("stopped", worker)]


def test_prefork_is_threads_and_says_so(app):
    """A test runner is not forked; a suite that names prefork runs all the same."""
    with pytest.warns(CeleryWarning, match="name 'threads'"), start_worker(app, loglevel=0, pool="prefork") as worker:
        assert multiply.delay(3, 4).get(timeout=20) == 12
    assert worker.pool_cls is type(worker.pool) is get_implementation("threads")


def test_a_worker_that_cannot_start_says_why():
    """Celery waits for ever."""
    app = TestApp(config={"broker_url": "redis://127.0.0.1:1/0"})

    with setup_default_app(app), pytest.raises(Exception, match=r"127\.0\.0\.1:1"), start_worker(app, loglevel=0):
        pass


def test_nothing_of_an_app_is_left_behind():
    """Neither the current app nor jobs in the queues of `memory://`."""
    before = current_app._get_current_object()
    app = TestApp()

    with setup_default_app(app):
        app.set_current()
        multiply.delay(1, 2)
        assert client_of(app).pool.command("LLEN", "queue:celery") == 1

    assert current_app._get_current_object() is before
    assert client_of(app).pool.command("LLEN", "queue:celery") == 0
    assert app._backend is None


def test_a_trap_finds_code_that_uses_the_current_app():
    """Whatever is asked of it, it refuses."""
    app = TestApp()

    with setup_default_app(app, use_trap=True), pytest.raises(RuntimeError, match="Test depends on current_app"):
        multiply.delay(1, 2)

    assert not isinstance(current_app._get_current_object(), Trap)


def test_memory_without_a_server_program_says_what_to_install(monkeypatch):
    """A sentence, when it is needed and not before."""
    monkeypatch.setattr(private_broker, "_server", None)
    monkeypatch.setattr("sidekiq_py.embedded.find_server_program", lambda: None)
    app = TestApp()

    with pytest.raises(ImproperlyConfigured, match="apt-get install redis-server"):
        client_of(app)


def test_a_test_worker_answers_remote_control_from_its_start_on(app):
    """So tests may ask it what it runs, or revoke a task, without a wait for it to listen. dvc-task's tests do."""
    # Its connection is made beforehand, so that the question is on its way at once.
    app.control.ping(timeout=0.1)

    with start_worker(app, loglevel=0, perform_ping_check=False) as worker:
        assert app.control.ping([worker.hostname], timeout=5) == [{worker.hostname: {"ok": "pong"}}]
        assert app.control.inspect([worker.hostname], timeout=5).active() == {worker.hostname: []}

        task = multiply.apply_async((1, 2), countdown=0.5)
        task.revoke()
        with pytest.raises(TaskRevokedError):
            task.get(timeout=60)


def test_a_manager_joins_results(app):
    """A set of results or a single one."""
    with start_worker(app, loglevel=0):
        manager, result = Manager(app), multiply.delay(3, 4)
        manager.join(result, timeout=20)

        assert result.result == 12


def test_a_manager_waits_for_facts(app, capsys):
    """It calls until the exception does not come; the last one is raised."""
    tries = iter([KeyError("a"), KeyError("b"), None])

    def look():
        error = next(tries)
        if error:
            raise error
        return "seen"

    manager = Manager(app)

    assert manager.wait_for(look, (KeyError,), interval_start=0, interval_step=0, emit_warning=True) == "seen"
    with pytest.raises(AssertionError, match="Should not have happened: a cow"):
        manager.ensure_not_for_a_while(lambda: True, (KeyError,), desc="a cow")


def test_a_mock_of_a_context_gives_itself():
    """And swallows no exception."""
    mock = ContextMock(name="context")

    def fail_within():
        with mock as entered:
            assert entered is mock
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fail_within()


def test_mocks_of_messages_have_celery_s_form():
    """In both protocols, of a name or of a signature, whose links and times go into the message."""
    first = TaskMessage1("proj.add", "id", (1,), {"y": 2}, eta="soon")
    second = TaskMessage("proj.add", "id", (1,), retries=3)
    signature = multiply.s(2, 3).set(task_id="id", link=[multiply.s(4)], eta=datetime(2030, 1, 2), expires=60)
    of_signature = task_message_from_sig(Celery("mocked", set_as_current=False), signature)

    embedded = {"callbacks": None, "errbacks": None, "chain": None}
    assert (second.headers["id"], second.headers["retries"]) == ("id", 3)
    assert (second.content_type, json.loads(second.body)) == ("application/json", [[1], {}, embedded])
    assert second.payload == ((1,), {}, embedded)
    assert (first.headers, first.payload["eta"], json.loads(first.body)["kwargs"]) == ({}, "soon", {"y": 2})
    assert (of_signature.headers["id"], of_signature.headers["eta"]) == ("id", "2030-01-02T00:00:00")
    assert datetime.fromisoformat(of_signature.headers["expires"])
    assert [callback["args"] for callback in of_signature.payload[2]["callbacks"]] == [(4,)]


def test_importing_the_module_registers_no_task() -> None:
    """`celery.ping` is a task of those who import `contrib.testing.tasks`, or start a worker that is pinged."""
    program = (
        "from sidekiq_celery import Celery; import sidekiq_celery.contrib.testing.worker; app = Celery('proj')\n"
        "print('celery.ping' in app.tasks)\n"
        "import sidekiq_celery.contrib.testing.tasks; print('celery.ping' in app.tasks)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment()},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["False", "True"]
