"""The fixtures of `sidekiq_celery.contrib.pytest` in a suite of their own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sidekiq_celery import Celery

from sidekiq_py import testing
from sidekiq_py.errors import JobNotFoundError

ROOT = Path(__file__).parents[3]

SUITE = """
import os
import threading

import pytest
from {package} import current_app, shared_task
from {package}.app.task import Task


@shared_task
def multiply(x, y):
    return x * y


@shared_task
def thread_name():
    return threading.current_thread().name


def test_an_app(celery_app):
    assert celery_app.main == "celery.tests"
    assert celery_app.conf.task_default_queue == "ours"


@pytest.mark.celery(task_default_queue="of_this_test")
def test_the_marker_has_settings(celery_app):
    assert celery_app.conf.task_default_queue == "of_this_test"


def test_a_worker(celery_app, celery_worker):
    assert multiply.delay(4, 4).get(timeout=20) == 16


def test_a_task_within_the_test(celery_app, celery_worker):
    @celery_app.task
    def local(x):
        return x

    celery_worker.reload()
    assert local.delay(1).get(timeout=20) == 1


def test_a_worker_of_the_session(celery_session_app, celery_session_worker):
    assert celery_session_worker.concurrency == 3
    assert multiply.delay(4, 4).get(timeout=20) == 16
    assert celery_session_app.tasks["by_class"].delay().get(timeout=20) == "by class"
    assert celery_session_app.tasks["included.task"].delay().get(timeout=20) == "included"


def test_depends(depends_on_current_app, celery_app):
    assert current_app._get_current_object() is celery_app
"""

CONFTEST = """
import pytest
{first}
from {package} import Task

pytest_plugins = ("{plugin}",)


class ByClass(Task):
    name = "by_class"

    def run(self):
        return "by class"


@pytest.fixture(scope="session")
def celery_config():
    return {{"task_default_queue": "ours"}}


@pytest.fixture(scope="session")
def celery_class_tasks():
    return [ByClass()]


@pytest.fixture(scope="session")
def celery_includes():
    return ["included"]


@pytest.fixture(scope="session")
def celery_worker_pool():
    return "threads"


@pytest.fixture(scope="session")
def celery_worker_parameters():
    return {{"concurrency": 3}}
"""

INCLUDED = """
from {package} import shared_task


@shared_task(name="included.task")
def task():
    return "included"
"""

ALIAS = "import sidekiq_celery; sidekiq_celery.install_as_celery()"

Suite = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """Runs the suite, written for *package*."""

    def run(
        *options: str, package: str = "sidekiq_celery", first: str = "", plugin: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        given = {"package": package, "first": first, "plugin": plugin or f"{package}.contrib.pytest"}
        for name, text in (("test_suite", SUITE), ("conftest", CONFTEST), ("included", INCLUDED)):
            (tmp_path / f"{name}.py").write_text(text.format(**given))
        path = os.pathsep.join([str(ROOT), str(ROOT / "compat"), str(tmp_path)])
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *options],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )

    return run


def test_all_fixtures_do_as_celery_s(suite: Suite) -> None:
    """Apps, workers, those of the session, the marker, and each fixture that may be overridden."""
    done = suite()

    assert "6 passed" in done.stdout, done.stdout + done.stderr


def test_a_suite_that_names_celery_runs_under_the_alias(suite: Suite) -> None:
    """With one line in its conftest.py, which comes before anything that imports celery."""
    done = suite(package="celery", first=ALIAS)

    assert "6 passed" in done.stdout, done.stdout + done.stderr


def test_a_plug_in_that_passes_everything_on_brings_the_marker_too(suite: Suite, tmp_path: Path) -> None:
    """As pytest-celery does, by a star import; a suite may refuse markers that nobody has registered."""
    (tmp_path / "passing_on.py").write_text("from sidekiq_celery.contrib.pytest import *\n")

    done = suite("--strict-markers", plugin="passing_on")

    assert "6 passed" in done.stdout, done.stdout + done.stderr


def test_the_marker_is_explained(suite: Suite) -> None:
    """`pytest --markers` knows it."""
    done = suite("--markers")

    assert "@pytest.mark.celery(**settings)" in done.stdout


def test_the_modes_of_sidekiq_py_keep_tasks_and_run_none() -> None:
    """They can be asserted; to run them there are `apply`, `task_always_eager` and a worker."""
    with Celery("modes", broker="redis://127.0.0.1:1/0", set_as_current=False, fixups=[]) as app:

        @app.task(name="modes.multiply")
        def multiply(x: int, y: int) -> int:
            return x * y

        with testing.fake() as enqueued:
            multiply.delay(4, 4)
            enqueued.assert_enqueued("modes.multiply", args=[4, 4])
            with pytest.raises(JobNotFoundError):
                enqueued.drain()

        with testing.inline(), pytest.raises(JobNotFoundError):
            multiply.delay(4, 4)

        app.conf.task_always_eager = True
        assert multiply.delay(4, 4).get() == multiply.apply(args=(4, 4)).get() == 16
