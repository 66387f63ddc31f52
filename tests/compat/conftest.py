"""No test of Celery's names leaves anything behind: neither the current app nor shared tasks."""

from collections.abc import Iterator

import pytest
from sidekiq_celery import _state


@pytest.fixture(autouse=True)
def _nothing_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("CELERY_BROKER_URL", "CELERY_RESULT_BACKEND", "CELERY_LOADER", "REDIS_URL", "REDIS_PROVIDER"):
        monkeypatch.delenv(variable, raising=False)
    finalizers = dict(_state._on_app_finalizers)
    default, current, latest = _state.default_app, _state._tls.current_app, _state._latest_current
    apps = set(_state._get_active_apps())
    yield
    for app in set(_state._get_active_apps()) - apps:
        # What is not closed here may wait for the garbage collector until a thousand others are open.
        app.close()
    _state.default_app, _state._tls.current_app, _state._latest_current = default, current, latest
    _state._on_app_finalizers.clear()
    _state._on_app_finalizers.update(finalizers)
