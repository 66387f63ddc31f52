"""
Fixtures for the tests of programs, under Celery's names. In the root `conftest.py`:

    pytest_plugins = ("sidekiq_celery.contrib.pytest",)

`celery_app` and `celery_worker` are made for each test, `celery_session_app` and `celery_session_worker` once for all.
Most others are meant to be overridden: `celery_config` returns settings, and so on. Without a `broker_url`, queues are
in a private Redis and results in this process.

As in Celery, pytest does not load this plug-in by itself: the real Celery and pytest-celery bring the same fixtures,
and the plug-in that is named wins.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

__all__ = (
    "celery_app",
    "celery_class_tasks",
    "celery_config",
    "celery_enable_logging",
    "celery_includes",
    "celery_parameters",
    "celery_session_app",
    "celery_session_worker",
    "celery_worker",
    "celery_worker_parameters",
    "celery_worker_pool",
    "depends_on_current_app",
    "pytest_configure",
    "use_celery_app_trap",
)

NO_WORKER = os.environ.get("NO_WORKER")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", "celery(**settings): settings of the app in this test, beside those of the fixture celery_config"
    )


@pytest.fixture(scope="session")
def use_celery_app_trap() -> bool:
    """True to make any use of the current app, instead of the app that was passed, an error. Override it."""
    return False


@pytest.fixture(scope="session")
def celery_enable_logging() -> bool:
    """True to let apps set up logging. Override it."""
    return False


@pytest.fixture(scope="session")
def celery_includes() -> Sequence[str]:
    """Modules that workers import. Override it."""
    return ()


@pytest.fixture(scope="session")
def celery_worker_pool() -> Any:
    """The pool of workers. Override it."""
    return "solo"


@pytest.fixture(scope="session")
def celery_config() -> Mapping[str, Any]:
    """Settings of apps. Override it."""
    return {}


@pytest.fixture(scope="session")
def celery_parameters() -> Mapping[str, Any]:
    """Arguments of apps, as for `Celery`. Override it."""
    return {}


@pytest.fixture(scope="session")
def celery_worker_parameters() -> Mapping[str, Any]:
    """Arguments of workers, as for `WorkController`. Override it."""
    return {}


@pytest.fixture(scope="session")
def celery_class_tasks() -> Sequence[Any]:
    """Task classes that the session's app registers. Override it."""
    return []


@pytest.fixture(scope="session")
def celery_session_app(
    request: pytest.FixtureRequest,
    celery_config: Mapping[str, Any],
    celery_parameters: Mapping[str, Any],
    celery_enable_logging: bool,
    use_celery_app_trap: bool,
) -> Iterator[Any]:
    """An app for all tests. It is the default app."""
    with _app(request, celery_config, celery_parameters, celery_enable_logging, use_celery_app_trap) as app:
        if not use_celery_app_trap:
            app.set_default()
            app.set_current()
        yield app


@pytest.fixture(scope="session")
def celery_session_worker(
    celery_session_app: Any,
    celery_includes: Sequence[str],
    celery_class_tasks: Sequence[Any],
    celery_worker_pool: Any,
    celery_worker_parameters: Mapping[str, Any],
) -> Iterator[Any]:
    """A worker for all tests."""
    for task in celery_class_tasks:
        celery_session_app.register_task(task)
    with _worker(celery_session_app, celery_includes, celery_worker_pool, celery_worker_parameters) as worker:
        yield worker


@pytest.fixture
def celery_app(
    request: pytest.FixtureRequest,
    celery_config: Mapping[str, Any],
    celery_parameters: Mapping[str, Any],
    celery_enable_logging: bool,
    use_celery_app_trap: bool,
) -> Iterator[Any]:
    """An app for one test. The marker `celery` gives it more settings."""
    with _app(request, celery_config, celery_parameters, celery_enable_logging, use_celery_app_trap) as app:
        yield app


@pytest.fixture
def celery_worker(
    celery_app: Any,
    celery_includes: Sequence[str],
    celery_worker_pool: Any,
    celery_worker_parameters: Mapping[str, Any],
) -> Iterator[Any]:
    """A worker in a thread, for one test. It runs the tasks that the app has when the worker starts."""
    with _worker(celery_app, celery_includes, celery_worker_pool, celery_worker_parameters) as worker:
        yield worker


@pytest.fixture
def depends_on_current_app(celery_app: Any) -> None:
    """Makes the test's app the current one."""
    celery_app.set_current()


@contextmanager
def _app(
    request: pytest.FixtureRequest,
    config: Mapping[str, Any],
    parameters: Mapping[str, Any],
    enable_logging: bool,
    use_trap: bool,
) -> Iterator[Any]:
    # Imported here, so that the plug-in costs nothing if no app is asked for.
    from sidekiq_celery.contrib.testing.app import TestApp, setup_default_app

    marker = request.node.get_closest_marker("celery")
    settings = {**config, **(marker.kwargs if marker else {})}
    app = TestApp(set_as_current=False, enable_logging=enable_logging, config=settings, **parameters)
    with setup_default_app(app, use_trap=use_trap):
        yield app


@contextmanager
def _worker(app: Any, includes: Sequence[str], pool: Any, parameters: Mapping[str, Any]) -> Iterator[Any]:
    from sidekiq_celery.contrib.testing.app import import_for_all
    from sidekiq_celery.contrib.testing.worker import start_worker

    if NO_WORKER:
        pytest.skip("no worker is started, as the variable NO_WORKER asks for")
    import_for_all(app, includes)
    with start_worker(app, pool=pool, **parameters) as worker:
        yield worker
