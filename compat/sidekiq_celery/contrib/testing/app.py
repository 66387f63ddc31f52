"""Apps for tests: `TestApp`, and helpers that isolate its state."""

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from sidekiq_celery import Celery, _state
from sidekiq_celery.app.log import Logging
from sidekiq_celery.contrib.testing import private_broker

__all__ = ("DEFAULT_TEST_CONFIG", "TestApp", "Trap", "UnitLogging", "import_for_all", "set_trap", "setup_default_app")

DEFAULT_TEST_CONFIG: dict[str, Any] = {
    "worker_hijack_root_logger": False,
    "worker_log_color": False,
    "accept_content": {"json"},
    "enable_utc": True,
    "timezone": "UTC",
    "broker_url": "memory://",
    "result_backend": "cache+memory://",
    "broker_heartbeat": 0,
}
"""Settings of a test app. `memory://` is a private Redis; results stay in this process."""

private_broker.use_for_memory()
_open_apps = 0
_of_included_modules: dict[Any, None] = {}


class Trap:
    """
    An app that must not be used. It exposes code that forgets to pass its app on.

    Raises:
        RuntimeError: Any attribute was accessed.
    """

    def __getattr__(self, name: str) -> Any:
        # unittest.mock looks these up in everything it patches.
        if name in ("_is_coroutine", "_is_coroutine_mark", "__func__"):
            return None
        raise RuntimeError(f"Test depends on current_app (it asked for {name})")


class UnitLogging(Logging):
    """Leaves logging to the test runner."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.already_setup = True


def TestApp(
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    enable_logging: bool = False,
    set_as_current: bool = False,
    log: Any = UnitLogging,
    backend: Any = None,
    broker: str | None = None,
    **kwargs: Any,
) -> Celery:
    """
    Create an app for tests.

    Args:
        config: Settings in addition to `DEFAULT_TEST_CONFIG`.
        enable_logging: Set up logging as in a worker.
        kwargs: As for `Celery`.
    """
    from sidekiq_celery.contrib.testing import tasks  # noqa: F401 - defines `celery.ping`

    settings = {**deepcopy(DEFAULT_TEST_CONFIG), **(config or {})}
    for given, setting in ((broker, "broker_url"), (backend, "result_backend")):
        if given is not None:
            settings.pop(setting, None)
    app = Celery(
        name or "celery.tests",
        set_as_current=set_as_current,
        log=None if enable_logging else log,
        broker=broker,
        backend=backend,
        **kwargs,
    )
    app.add_defaults(settings)
    return app


# Its name would make pytest collect it as a test.
TestApp.__test__ = False  # type: ignore[attr-defined]


@contextmanager
def set_trap(app: Any) -> Iterator[None]:
    """Make the current app and the default app a `Trap` within the block."""
    trap: Any = Trap()

    class OfNoThread:
        current_app = trap

    tls, default = _state._tls, _state.default_app
    _state.set_default_app(trap)
    _state._tls = OfNoThread()  # type: ignore[assignment]
    try:
        yield
    finally:
        _state._tls = tls
        _state.set_default_app(default)


@contextmanager
def setup_default_app(app: Any, use_trap: bool = False) -> Iterator[None]:
    """
    Leave no trace of *app*: after the block, the current app, the shared tasks and the queues of `memory://` are as
    they were before.

    Args:
        use_trap: Make the current app a `Trap` within the block.
    """
    global _open_apps
    tls, default, latest = _state._tls.current_app, _state.default_app, _state._latest_current
    finalizers, apps = dict.fromkeys(_state._on_app_finalizers), weakref.WeakSet(_state._apps)
    _open_apps += 1
    try:
        if use_trap:
            with set_trap(app):
                yield
        else:
            yield
    finally:
        _state._tls.current_app, _state.default_app, _state._latest_current = tls, default, latest
        if app is not tls:
            app.close()
        _state._on_app_finalizers.clear()
        _state._on_app_finalizers.update({**finalizers, **_of_included_modules})
        _state._apps = apps
        if app._backend is not None:
            app._backend_cache = None
            app._local.backend = None
        _open_apps -= 1
        # A session's app stays open while those of its tests come and go.
        if not _open_apps:
            private_broker.empty()


def import_for_all(app: Any, modules: Iterable[str]) -> None:
    """Import *modules* for *app*. Later apps get their shared tasks, too, because no module is imported twice."""
    before = set(_state._on_app_finalizers)
    for module in modules:
        app.loader.import_task_module(module)
    _of_included_modules.update({each: None for each in _state._on_app_finalizers if each not in before})
