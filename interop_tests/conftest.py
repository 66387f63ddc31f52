"""Fixtures for tests with real Ruby: a release as a parameter, its processes, and the Redis of `tests/`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import sidekiq_py as sidekiq
from interop_tests.support.ruby import RELEASES, RubyRelease, RubySidekiq, run_ruby, why_missing
from tests.conftest import new_redis_server, redis_client, redis_server, redis_url
from tests.support.missing_tools import skip_or_fail
from tests.support.no_skips import pytest_make_collect_report, pytest_runtest_makereport
from tests.support.no_threads_left import pytest_unconfigure
from tests.support.report import pytest_terminal_summary, report
from tests.support.worker_process import WorkerProcess

__all__ = [
    "new_redis_server",
    "pytest_make_collect_report",
    "pytest_runtest_makereport",
    "pytest_terminal_summary",
    "pytest_unconfigure",
    "redis_client",
    "redis_server",
    "redis_url",
    "report",
]

RUBY_SWITCH = "SIDEKIQ_PY_REQUIRE_RUBY"
PYTHON_JOBS = "interop_tests.support.python_jobs"

RunRuby = Callable[..., Any]
StartRuby = Callable[..., RubySidekiq]
StartPython = Callable[..., WorkerProcess]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that use a Ruby release with `ruby`, and deselect those for features that a release does not have."""
    for item in items:
        if "ruby_release" in getattr(item, "fixturenames", ()):
            item.add_marker("ruby")
    kept = [item for item in items if _has_it(item)]
    config.hook.pytest_deselected(items=[item for item in items if not _has_it(item)])
    items[:] = kept


def _has_it(item: pytest.Item) -> bool:
    """Whether the release of this item is in the range of its mark `releases(since="7.3", before="8.1")`."""
    mark = item.get_closest_marker("releases")
    release = getattr(item, "callspec", None) and item.callspec.params.get("ruby_release")  # type: ignore[attr-defined]
    if mark is None or not isinstance(release, RubyRelease):
        return True
    since, before = (_numbers(mark.kwargs.get(name)) for name in ("since", "before"))
    return (since is None or release.numbers >= since) and (before is None or release.numbers < before)


def _numbers(version: str | None) -> tuple[int, ...] | None:
    return tuple(map(int, version.split("."))) if version else None


@pytest.fixture(scope="session", params=RELEASES, ids=lambda release: release.sidekiq_version)
def ruby_release(request: pytest.FixtureRequest) -> RubyRelease:
    """Each release of Ruby Sidekiq in turn. A missing release skips the test, or fails it in CI."""
    release: RubyRelease = request.param
    reason = why_missing(release)
    if reason is not None:
        skip_or_fail(reason, switch=RUBY_SWITCH)
    return release


@pytest.fixture
def ruby(ruby_release: RubyRelease, redis_url: str) -> RunRuby:
    """Runs Ruby code on the shared Redis: `ruby('Sidekiq::Queue.new.size')`. Keyword values become methods there."""
    return lambda code, **values: run_ruby(ruby_release, code, redis_url, **values)


@pytest.fixture
def python_client(ruby_release: RubyRelease, redis_url: str) -> None:
    """Configures this test process to enqueue to the shared Redis, in the format of the release at the other end."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version=ruby_release.sidekiq_version)


@pytest.fixture
def start_ruby(ruby_release: RubyRelease, redis_url: str, tmp_path: Path) -> Iterator[StartRuby]:
    """Starts real Ruby workers, waits until each is ready, and kills them after the test."""
    with ExitStack() as workers:
        count = 0

        def start(**options: Any) -> RubySidekiq:
            nonlocal count
            count += 1
            options.setdefault("log_path", tmp_path / f"ruby-{count}.log")
            worker = RubySidekiq(ruby_release, redis_url=redis_url, **options)
            workers.callback(worker.print_log_tail)
            return workers.enter_context(worker)

        yield start


@pytest.fixture
def start_python(ruby_release: RubyRelease, redis_url: str, tmp_path: Path) -> Iterator[StartPython]:
    """
    Starts Python workers with the jobs of `support/python_jobs.py`, and stops them after the test.

    They write in the format of the release at the other end. With `environment={"FIXTURE_SIDEKIQ_VERSION": None}` they
    detect it themselves.
    """
    with ExitStack() as workers:
        count = 0

        def start(*arguments: str, **options: Any) -> WorkerProcess:
            nonlocal count
            count += 1
            options.setdefault("log_path", tmp_path / f"python-{count}.log")
            pinned = {"FIXTURE_SIDEKIQ_VERSION": ruby_release.sidekiq_version}
            options["environment"] = pinned | options.get("environment", {})
            require = options.pop("require", PYTHON_JOBS)
            worker = WorkerProcess(require, redis_url=redis_url, arguments=arguments, **options)
            workers.callback(worker.print_log_tail)
            return workers.enter_context(worker)

        yield start
