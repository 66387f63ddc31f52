"""Apps with results in the shared Redis, that leave nothing behind."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sidekiq_celery import Celery, _state


@pytest.fixture
def make_app(redis_url: str) -> Iterator[Callable[..., Celery]]:
    """Makes apps whose jobs and results are in the shared Redis, unless settings say otherwise."""
    before = _state.default_app, _state._tls.current_app, _state._latest_current
    finalizers = dict(_state._on_app_finalizers)
    made: list[Celery] = []

    def make(**settings: Any) -> Celery:
        app = Celery("proj", **{"broker": redis_url, "backend": redis_url, "set_as_current": False, "fixups": []})
        app.conf.update(settings)
        made.append(app)
        return app

    yield make
    for app in made:
        pool = getattr(app._backend, "_pool", None)
        if pool is not None:
            pool.close()
        app.close()
    _state.default_app, _state._tls.current_app, _state._latest_current = before
    _state._on_app_finalizers.clear()
    _state._on_app_finalizers.update(finalizers)


@pytest.fixture
def app(make_app: Callable[..., Celery]) -> Celery:
    """An app."""
    return make_app()
