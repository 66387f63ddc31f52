"""Celery's guide "First Steps with Celery", walked through with the import and the command changed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sidekiq_celery import Celery
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.result import AsyncResult

from tests.compat.documentation.conftest import WAIT_SECONDS, Run
from tests.support.celery_program import environment
from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess


def test_an_app_and_a_task(guide_redis: Any) -> None:
    """Section "Application"."""
    app = Celery("tasks", broker=guide_redis.url)

    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    assert add(2, 3) == 5
    assert app.main == "tasks"
    app.close()


def test_the_worker_tells_what_it_is(guide_worker: SidekiqProcess) -> None:
    """Section "Running the Celery worker server": broker, results, tasks and queues are in its log."""
    for text in (
        "broker  ",
        "results  ",
        "concurrency",
        "queues",
        "tests.compat.documentation.proj.tasks.add",
        "ready",
    ):
        assert eventually(lambda text=text: text in guide_worker.log, within_seconds=WAIT_SECONDS)


@pytest.mark.parametrize("arguments", [("--help",), ("worker", "--help"), ("beat", "--help")])
def test_there_is_help(run: Run, arguments: tuple[str, ...]) -> None:
    """Section "Running the Celery worker server"."""
    asked = run(*arguments)

    assert asked.returncode == 0
    assert "Usage:" in asked.stdout


def test_a_call_gives_a_result_to_ask(tasks: ModuleType) -> None:
    """Sections "Calling the task" and "Keeping Results"."""
    result = tasks.add.delay(4, 4)

    assert isinstance(result, AsyncResult)
    assert result.get(timeout=WAIT_SECONDS) == 8
    assert result.ready()


def test_an_error_is_raised_again_or_returned(tasks: ModuleType) -> None:
    """Section "Keeping Results": `propagate` and `traceback`."""
    result = tasks.fail.delay()

    with pytest.raises(ValueError, match="something something"):
        result.get(timeout=WAIT_SECONDS)
    assert isinstance(result.get(propagate=False), ValueError)
    assert "ValueError" in result.traceback


def test_results_are_off_by_default() -> None:
    """Section "Keeping Results"; asking for one says which setting is missing."""
    app = Celery("tasks", broker="redis://", set_as_current=False)

    with pytest.raises(NotImplementedError, match=r"(?i)result.backend"):
        app.AsyncResult("any").get(timeout=0.01)


def test_rpc_results_are_refused_with_advice() -> None:
    """Section "Keeping Results" uses `rpc://`, which needs a broker of AMQP: knowingly absent."""
    app = Celery("tasks", backend="rpc://", broker="redis://", set_as_current=False)

    with pytest.raises(ImproperlyConfigured, match="redis"):
        app.backend.get_state("any")


def test_an_amqp_broker_is_refused_with_advice() -> None:
    """Section "Application" uses RabbitMQ: knowingly absent, and told when something is sent."""
    app = Celery("tasks", broker="pyamqp://guest@localhost//", set_as_current=False)

    with pytest.raises(ImproperlyConfigured, match="bridge"):
        app.send_task("tasks.add")


def test_settings_are_set_on_the_app() -> None:
    """Section "Configuration"."""
    app = Celery("tasks", set_as_current=False)
    app.conf.task_serializer = "json"
    app.conf.update(accept_content=["json"], result_serializer="json", timezone="Europe/Oslo", enable_utc=True)

    assert (app.conf.task_serializer, app.conf.timezone) == ("json", "Europe/Oslo")


def test_settings_come_from_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section "Configuration": `celeryconfig.py`, with a route and an annotation; it can be tried by `python -m`."""
    (tmp_path / "celeryconfig.py").write_text(
        'broker_url = "redis://"\n'
        'task_routes = {"tasks.add": "low-priority"}\n'
        'task_annotations = {"tasks.add": {"rate_limit": "10/m"}}\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    app = Celery("tasks", set_as_current=False)

    app.config_from_object("celeryconfig")

    @app.task(name="tasks.add")
    def add(x: int, y: int) -> int:
        return x + y

    assert app.tasks["tasks.add"].rate_limit == "10/m"
    assert app.amqp.router.route({}, "tasks.add")["queue"].name == "low-priority"
    tried = subprocess.run([sys.executable, "-m", "celeryconfig"], cwd=tmp_path, env=environment(), check=False)
    assert tried.returncode == 0
    sys.modules.pop("celeryconfig", None)


def test_an_unknown_id_is_pending(app: Any) -> None:
    """Section "Troubleshooting": a task that nobody knows of."""
    assert app.AsyncResult("nobody-knows").state == "PENDING"


def test_a_task_without_a_result_stays_pending(tasks: ModuleType, noted: Callable[..., list[str]]) -> None:
    """Section "Troubleshooting": `ignore_result`."""
    result = tasks.store.delay("stored", "ignored")

    assert noted("ignored") == ["stored"]
    assert result.state == "PENDING"
