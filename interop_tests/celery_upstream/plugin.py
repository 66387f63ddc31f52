"""
The pytest plug-in for Celery's tests: it adds the alias, stand-ins and our worker, and writes a file of outcomes.

The file is a JSON object from a test's id to `passed`, `failed` or `skipped`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sidekiq_celery
from sidekiq_celery.contrib import pytest as fixtures
from sidekiq_celery.utils.nodenames import anon_nodename

from interop_tests.celery_upstream import absent_names
from interop_tests.celery_upstream.plugin_names import OUTCOMES_VARIABLE

sidekiq_celery.install_as_celery()
absent_names.stand_in()

_WORKER_SECONDS = 60
_outcomes: dict[str, str] = {}

_MARKS = (
    "amqp",
    "flaky",
    "masked_modules",
    "patched_environ",
    "patched_module",
    "sleepdeprived_patched_module",
)

# After each test, Celery's suite checks that no thread is left and that its consumer's flags are unchanged. Our thread
# that listens for results stays, and there is no consumer.
_NOT_OF_THE_TESTS = frozenset({"threads_not_lingering", "sanity_no_shutdown_flags_set"})


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks of Celery's suite."""
    for mark in _MARKS:
        config.addinivalue_line("markers", f"{mark}: of Celery's suite")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Remove the fixtures that are not part of a test."""
    names = getattr(item, "fixturenames", [])
    names[:] = [name for name in names if name not in _NOT_OF_THE_TESTS]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record a test's outcome; a test that Celery expects to fail, and that does, has passed."""
    if report.failed:
        _outcomes[report.nodeid] = "failed"
    elif report.skipped and not hasattr(report, "wasxfail"):
        _outcomes.setdefault(report.nodeid, "skipped")
    elif report.when == "call":
        _outcomes.setdefault(report.nodeid, "passed")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Record a file that cannot be imported as a failure under its own name."""
    if report.failed:
        _outcomes[report.nodeid] = "failed"


def pytest_sessionfinish() -> None:
    """Write the outcomes."""
    Path(os.environ[OUTCOMES_VARIABLE]).write_text(json.dumps(_outcomes))


@pytest.fixture(scope="session")
def celery_session_worker(celery_session_app: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """`sidekiq-celery worker` in separate processes, as a user starts it; with one child, as some tests count in it."""
    log = tmp_path_factory.mktemp("worker") / "log"
    command = [sys.executable, "-m", "sidekiq_celery", "-A", "interop_tests.celery_upstream.worker_app", "worker"]
    with log.open("wb") as file:
        worker = subprocess.Popen([*command, "-c", "1", "-l", "INFO", "-n", anon_nodename()], stdout=file, stderr=file)
    try:
        celery_session_app.send_task("celery.ping").get(timeout=_WORKER_SECONDS)
        yield worker
    finally:
        worker.terminate()
        try:
            worker.wait(_WORKER_SECONDS)
        except subprocess.TimeoutExpired:
            worker.kill()
        if os.environ.get("UPSTREAM_WORKER_LOG"):
            Path(os.environ["UPSTREAM_WORKER_LOG"]).write_bytes(log.read_bytes())


if "TEST_BROKER" in os.environ:
    # Set before a conftest.py imports it from there.
    fixtures.celery_session_worker = celery_session_worker
