"""Methods that backends and schedules of others call of the classes from which they derive."""

from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, schedules
from sidekiq_celery.backends.base import BaseBackend, BaseKeyValueStoreBackend
from sidekiq_celery.backends.redis import RedisBackend


class Kept(BaseBackend):
    """Keeps results in a dict."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kept: dict[str, Any] = {}

    def _store_result(self, task_id: str, result: Any, state: str, *args: Any, **kwargs: Any) -> None:
        self.kept[task_id] = state, result


def test_a_chord_that_a_backend_keeps_fails_its_body(app: Celery, redis_client: redis.Redis) -> None:
    """The failure is stored under the body's id, and its errbacks are called."""
    backend = Kept(app=app)
    backend.apply_chord(None, None)
    backend.fallback_chord_unlock(None, None)
    body = app.signature("proj.total", link_error=app.signature("proj.told"))

    backend.chord_error_from_stack(body, ValueError("no part came"))

    assert backend.kept[body.id][0] == "FAILURE"
    assert redis_client.llen("queue:celery") == 1


def test_prefixes_can_be_made_in_another_way(make_app: Any) -> None:
    """By a subclass that goes on to the class's own."""

    class Mine(BaseKeyValueStoreBackend):
        def _add_global_keyprefix(self) -> None:
            super()._add_global_keyprefix()
            self.task_keyprefix = f"{self.task_keyprefix}mine-"

    backend = Mine(app=make_app(result_backend_transport_options={"global_keyprefix": "shop"}))

    assert backend.get_key_for_task("a") == b"shop_celery-task-meta-mine-a"


def test_a_backend_in_redis_has_celery_s_helpers(app: Celery, caplog: pytest.LogCaptureFixture) -> None:
    """Those by which subclasses count connections, and tell of a lost one."""
    backend = app.backend
    assert isinstance(backend, RedisBackend)
    app.conf.redis_max_connections = 7

    assert backend.max_connections == 7
    assert backend.on_connection_error(3, OSError(), iter([1.5]), 1) == 1.5
    assert "Retry (1/3) in 1.50 seconds" in caplog.text
    results = [app.AsyncResult("a"), app.AsyncResult("b")]
    assert backend.add_pending_results(results) == results
    for result in results:
        backend.remove_pending_result(result)


def test_a_crontab_says_what_its_next_day_is() -> None:
    """For schedules that ask for their own times on the days of a crontab."""
    mondays = schedules.crontab(0, 0, day_of_week="mon")

    step = mondays._delta_to_next(datetime(2026, 11, 22, 12, 30, tzinfo=UTC), 8, 15)

    assert datetime(2026, 11, 22, 12, 30, tzinfo=UTC) + step == datetime(2026, 11, 23, 8, 15, tzinfo=UTC)
