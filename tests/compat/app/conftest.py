"""Apps that leave nothing behind: neither the current app nor shared tasks."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sidekiq_celery import Celery, _state


@pytest.fixture(autouse=True)
def _nothing_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("CELERY_BROKER_URL", "CELERY_RESULT_BACKEND", "CELERY_LOADER", "REDIS_URL", "REDIS_PROVIDER"):
        monkeypatch.delenv(variable, raising=False)
    finalizers = dict(_state._on_app_finalizers)
    default, current, latest = _state.default_app, _state._tls.current_app, _state._latest_current
    yield
    _state.default_app, _state._tls.current_app, _state._latest_current = default, current, latest
    _state._on_app_finalizers.clear()
    _state._on_app_finalizers.update(finalizers)


@pytest.fixture
def make_app() -> Iterator[Callable[..., Celery]]:
    """Makes apps that are not current, and closes them."""
    made: list[Celery] = []

    def make(*args: Any, **kwargs: Any) -> Celery:
        app = Celery(*(args or ("proj",)), **{"set_as_current": False, "fixups": [], **kwargs})
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


@pytest.fixture
def app(make_app: Callable[..., Celery]) -> Celery:
    """An app."""
    return make_app()
