"""No test of Celery's names leaves anything behind: no current app, no shared tasks, no connections, no logging."""

import logging
from collections.abc import Iterator

import pytest
from sidekiq_celery import _state

LOGGERS = ("", "celery", "celery.task", "celery.redirected")


@pytest.fixture(autouse=True)
def _nothing_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("CELERY_BROKER_URL", "CELERY_RESULT_BACKEND", "CELERY_LOADER", "REDIS_URL", "REDIS_PROVIDER"):
        monkeypatch.delenv(variable, raising=False)
    finalizers = dict(_state._on_app_finalizers)
    default, current, latest = _state.default_app, _state._tls.current_app, _state._latest_current
    apps = set(_state._get_active_apps())
    loggers = [(one, list(one.handlers), one.level, one.propagate) for one in map(logging.getLogger, LOGGERS)]
    yield
    for one, handlers, level, propagate in loggers:
        # A test worker sets logging up for the whole process.
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)
    for app in set(_state._get_active_apps()) - apps:
        # What is not closed here may wait for the garbage collector until a thousand others are open.
        app.close()
    _state.default_app, _state._tls.current_app, _state._latest_current = default, current, latest
    _state._on_app_finalizers.clear()
    _state._on_app_finalizers.update(finalizers)
