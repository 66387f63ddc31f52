"""
A worker process's copy of what was set while it runs: revokes, and rate limits that replace the program's.

Notices about both arrive with the jobs that it fetches (`sidekiq_py.engine.notices`), so Redis is only queried if
something was set.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sidekiq_celery._admission import revokes
from sidekiq_celery._send.clients import client_of
from sidekiq_celery._wire.message import shown
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import InvalidTaskError
from sidekiq_celery.utils.time import rate
from sidekiq_py.errors import RedisError
from sidekiq_py.extension import revoked
from sidekiq_py.worker import Notices

if TYPE_CHECKING:
    from sidekiq_celery._wire.context import Context

logger = logging.getLogger("celery.worker.strategy")

RATES_KEY = "sidekiq_py:rate_limits"
"""A hash from a task's name to JSON: the rate that was set, and the program's own rate, which it replaces."""

RateSetting = tuple[Any, Any]
"""The rate that was set, and the program's own rate."""

# Redis counts in microseconds.
_FASTEST_PER_SECOND = 1_000_000.0
_SLOWEST_PER_SECOND = 1 / (366 * 24 * 3600)


class WorkerNotices:
    """
    The copy in one process.

    Args:
        on_rates: Called with the rate limits that were set at run time, whenever they change.
    """

    def __init__(self, app: App, on_rates: Callable[[Mapping[str, RateSetting]], None]) -> None:
        self._app = app
        self._on_rates = on_rates
        self._stamps: dict[str, float] = {}
        self.received = Notices(self._read)

    def revoked_by(self, request: "Context") -> dict[str, Any] | None:
        """
        The stamp because of which a task must not run; empty if its id is revoked; None if it may run.

        Raises:
            InvalidTaskError: Its id is a list or an object.
        """
        try:
            may_be_revoked = self.received.may_be_revoked(request.id)
        except TypeError:
            raise InvalidTaskError(f"jid is {shown(request.id)}, where a string should stand") from None
        if may_be_revoked and self._is_id_revoked(request.id):
            return {}
        if not self._stamps or not request.stamps:
            return None
        return revokes.revoked_stamp(request.stamps, self._stamps, time.time())

    def _is_id_revoked(self, task_id: str) -> bool:
        try:
            return revoked.is_revoked(client_of(self._app).pool, task_id, time.time())
        except RedisError:
            # It was revoked when the job was fetched.
            return True

    def _read(self) -> None:
        stamps, rates = client_of(self._app).pool.batch(
            [("ZRANGEBYSCORE", revokes.STAMPS_KEY, "-inf", "+inf", "WITHSCORES"), ("HGETALL", RATES_KEY)]
        )
        self._stamps = {
            stamp.decode(errors="replace"): float(until) for stamp, until in zip(stamps[::2], stamps[1::2], strict=True)
        }
        self._on_rates(rates_of(rates))


def rates_of(reply: Any) -> dict[str, RateSetting]:
    """
    The rates that were set at run time, from the reply to HGETALL of `RATES_KEY`. Invalid ones, whoever wrote them, are
    logged and skipped.
    """
    found = {}
    for name, text in zip(reply[::2], reply[1::2], strict=True):
        try:
            limit, declared = json.loads(text)
            countable_rate(limit)
        except Exception as error:  # noqa: BLE001 - a row may contain anything, and must not affect the others
            logger.error(
                "%s: %r is no rate limit for %r, which keeps its own: %s", RATES_KEY, text[:200], name[:200], error
            )
        else:
            found[name.decode(errors="replace")] = limit, declared
    return found


def countable_rate(limit: Any) -> float:
    """
    Runs per second for a rate as in `Task.rate_limit`; 0 for no limit.

    Raises:
        ValueError: *limit* is not a rate, or is not between one in 366 days and a million per second.
        KeyError: The unit is unknown.
    """
    if limit is not None and not isinstance(limit, str | int | float):
        raise ValueError(f"{limit!r} is not a rate; give one as '10/m', or 0 for no limit")
    per_second = rate(limit)
    if per_second < 0:
        raise ValueError(f"{limit!r} is below 0; give a rate as '10/m', or 0 for no limit")
    if per_second and not _SLOWEST_PER_SECOND <= per_second <= _FASTEST_PER_SECOND:
        raise ValueError(f"{limit!r} cannot be counted; give from one in 366 days to 1000000/s, or 0 for no limit")
    return per_second
