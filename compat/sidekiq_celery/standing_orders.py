"""
What a worker process knows of what was ordered while it runs: revokes, and other rate limits than the program's.

It hears of both with the jobs that it takes (`sidekiq_py.engine.orders`), so nothing is asked where nothing was
ordered.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sidekiq_celery import revokes
from sidekiq_celery.app.publish import client_of
from sidekiq_py.engine.orders import Orders
from sidekiq_py.errors import RedisError
from sidekiq_py.redis_access import revoked

if TYPE_CHECKING:
    from sidekiq_celery.app.base import Celery
    from sidekiq_celery.app.context import Context

__all__ = ("RATES_KEY", "RateOrder", "StandingOrders")

RATES_KEY = "sidekiq_py:rate_limits"
"""A hash from the name of a task to JSON: the rate that was ordered, and the program's, whose place it takes."""

RateOrder = tuple[Any, Any]
"""The rate, and the program's."""


class StandingOrders:
    """
    The copy of one process.

    Args:
        on_rates: Handed the rate limits that were set at run time, whenever they have changed.
    """

    def __init__(self, app: "Celery", on_rates: Callable[[Mapping[str, RateOrder]], None]) -> None:
        self._app = app
        self._on_rates = on_rates
        self._stamps: dict[str, float] = {}
        self.heard = Orders(self._read)

    def gate(self, request: "Context") -> str | None:
        """Why a task is not to run; None: it is."""
        if self.heard.may_be_revoked(request.id) and self._is_revoked(request.id):
            return "revoked"
        if self._stamps and request.stamps and revokes.matches(request.stamps, self._stamps, time.time()):
            return "revoked"
        return None

    def _is_revoked(self, task_id: str) -> bool:
        try:
            return revoked.is_revoked(client_of(self._app).pool, task_id, time.time())
        except RedisError:
            # It was when the job was taken.
            return True

    def _read(self) -> None:
        stamps, rates = client_of(self._app).pool.batch(
            [("ZRANGEBYSCORE", revokes.STAMPS_KEY, "-inf", "+inf", "WITHSCORES"), ("HGETALL", RATES_KEY)]
        )
        self._stamps = {
            stamp.decode(errors="replace"): float(until) for stamp, until in zip(stamps[::2], stamps[1::2], strict=True)
        }
        pairs = rates.items() if isinstance(rates, dict) else zip(rates[::2], rates[1::2], strict=True)
        self._on_rates({name.decode(errors="replace"): _rate_order(text) for name, text in pairs})


def _rate_order(text: bytes) -> RateOrder:
    rate, declared = json.loads(text)
    return rate, declared
