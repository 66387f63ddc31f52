"""
pytest plug-in: the fixtures `sidekiq_jobs` and `sidekiq_redis`, and a switch that keeps a whole run off Redis.

    def test_signing_up_sends_a_mail(sidekiq_jobs):
        sign_up("bob")
        sidekiq_jobs.assert_enqueued("Mailer", args=["bob"])

With `--sidekiq-off-redis`, or `sidekiq_off_redis = true` in pytest's settings, only tests that use `sidekiq_redis` can
reach Redis. pytest loads this module in every project where the library is installed, so it imports nothing until one
of these is used.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sidekiq_py.testing import EnqueuedJobs

_SWITCH_HELP = "Keep jobs of sidekiq_py in memory, and let no test reach Redis unless it asks for sidekiq_redis."


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flag and the setting."""
    parser.getgroup("sidekiq_py").addoption("--sidekiq-off-redis", action="store_true", help=_SWITCH_HELP)
    parser.addini("sidekiq_off_redis", _SWITCH_HELP, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Keep the run off Redis, if requested, before any module of the program or its tests is imported."""
    if _is_off_redis(config):
        from sidekiq_py.testing import keep_off_redis

        keep_off_redis()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Undo `pytest_configure`, for a process that goes on after the run."""
    if _is_off_redis(config):
        from sidekiq_py.testing import allow_redis

        allow_redis()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start each test with nothing enqueued."""
    if _is_off_redis(item.config):
        from sidekiq_py.testing import keep_off_redis

        keep_off_redis().clear()


@pytest.fixture
def sidekiq_jobs() -> "Iterator[EnqueuedJobs]":
    """Keep jobs in memory, for all threads and tasks of the process. The value is the jobs that were enqueued."""
    from sidekiq_py.testing import fake

    with fake(everywhere=True) as enqueued:
        yield enqueued


@pytest.fixture
def sidekiq_redis(pytestconfig: pytest.Config) -> Iterator[None]:
    """Let this test reach Redis in a run that is otherwise kept off it."""
    if not _is_off_redis(pytestconfig):
        yield
        return
    from sidekiq_py.testing import allow_redis, keep_off_redis

    allow_redis()
    yield
    keep_off_redis()


def _is_off_redis(config: pytest.Config) -> bool:
    return bool(config.getoption("--sidekiq-off-redis") or config.getini("sidekiq_off_redis"))
