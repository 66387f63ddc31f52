"""Apps that no broker stands behind."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sidekiq_celery import Celery


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
