"""Apps whose time is handed in, and their beats, on the shared Redis."""

from collections.abc import Callable, Iterator

import pytest
from sidekiq_celery import Celery, _state

from tests.compat.beat.clock import Clock


@pytest.fixture
def clock() -> Clock:
    """The time of all beats of a test."""
    return Clock()


@pytest.fixture
def make_app(redis_url: str, clock: Clock) -> Iterator[Callable[[], Celery]]:
    """Apps of one project, as each process has one."""
    made = []

    def make() -> Celery:
        app = Celery("proj", broker=redis_url, backend=redis_url, set_as_current=False, fixups=[])
        app.now = clock.now  # type: ignore[method-assign]
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


@pytest.fixture(autouse=True)
def _current_app_stays() -> Iterator[None]:
    """Beat makes its app the current one."""
    before = _state.default_app, _state._tls.current_app, _state._latest_current
    yield
    _state.default_app, _state._tls.current_app, _state._latest_current = before


@pytest.fixture
def app(make_app: Callable[[], Celery]) -> Celery:
    """One app."""
    return make_app()
