"""
Rate limits of tasks, shared by all workers.

`sidekiq_py:rate:<task>` holds when the next start is due (`_admission.slots`). A job over the limit gets an appointment
there and waits for it in `schedule`, marked with `celery.slot`. So it does not block a slot, other jobs can pass it,
and it keeps its position. `sidekiq_py:rate_limits` holds the limits that were set at run time.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sidekiq_celery._admission import slots, waiting
from sidekiq_celery._admission.worker_copy import RATES_KEY, RateSetting, countable_rate, rates_of
from sidekiq_celery._send.clients import client_of
from sidekiq_celery._wire.payload import KEY, SLOT
from sidekiq_celery.contract import App
from sidekiq_celery.utils.time import rate
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extension import Admit, Payload
from sidekiq_py.payloads import Dialect, dump, keys

logger = logging.getLogger("celery.worker.strategy")

_PATIENCE_SECONDS = 0.005
_OF_WORKFLOWS = "celery."


def rate_key(task_name: str) -> str:
    """The key of the hash with a task's starts."""
    return f"sidekiq_py:rate:{task_name}"


class RateLimits:
    """
    Makes a worker's jobs start at the rates of their tasks.

    Args:
        is_revoked: Called with a job's id. True means that the job does not have to wait, because it will not run.
    """

    def __init__(self, app: App, is_revoked: Callable[[str], bool]) -> None:
        self._app = app
        self._is_revoked = is_revoked
        self._is_off = bool(app.conf.worker_disable_rate_limits)
        self._rates: Mapping[str, RateSetting] = {}
        self._logged: set[str] = set()

    def apply(self, definitions: Iterable[Any], rates: Mapping[str, RateSetting]) -> None:
        """Apply the current limits to *definitions*: the program's, and those that were set at run time."""
        self._rates = rates
        for definition in definitions:
            definition.admit = self.admission_of(definition.task)

    def admission_of(self, task: Any) -> Admit | None:
        """The check to call before a job of *task* starts; None if the task has no limit."""
        per_second = 0.0 if self._is_off else rate(self._limit_of(task))
        if per_second <= 0:
            return None
        pool, key = client_of(self._app).pool, rate_key(task.name)

        def admit(payload: Payload, dialect: Dialect) -> tuple[bytes, float] | None:
            task_headers = payload.get(KEY, {})
            if self._is_revoked(str(payload.get("jid"))) or not isinstance(task_headers, dict):
                return None
            is_expected = bool(task_headers.get(SLOT))
            try:
                slot = slots.take(pool, key, per_second, patience_seconds=_PATIENCE_SECONDS, is_expected=is_expected)
            except RedisReplyError as error:
                self._log_refusal(task.name, error)
                return None
            if slot.at is None:
                time.sleep(slot.wait_seconds)
                return None
            return dump({**payload, KEY: {**task_headers, SLOT: True}}, dialect=dialect), slot.at

        return admit

    def _limit_of(self, task: Any) -> Any:
        if task.name.startswith(_OF_WORKFLOWS):
            # The default limit is meant for the program's own tasks.
            return None
        limit, declared = self._rates.get(task.name, (None, None))
        is_in_force = task.name in self._rates and declared == task.rate_limit
        return limit if is_in_force else task.rate_limit

    def _log_refusal(self, name: str, error: RedisReplyError) -> None:
        if name not in self._logged:
            self._logged.add(name)
            logger.error("the rate limit of %s is not applied, because Redis refuses to count: %s", name, error)


def set_rate_limit(app: App, task_name: str, limit: Any) -> bool:
    """
    Set the rate limit of a task for all workers, including those that start later. It applies until it is set again, or
    until the program declares another one. Jobs that wait because of the old rate are moved to their queues.

    Args:
        limit: As in `Task.rate_limit`; 0 or None for none.

    Returns:
        False if the task already had that limit.

    Raises:
        ValueError: *limit* is not a valid rate, or cannot be counted; see `countable_rate`.
        KeyError: The unit is unknown, or the app has no such task.
        RedisError: As `Pool.run` does.
    """
    countable_rate(limit)
    task = app.tasks[task_name]
    text = json.dumps([limit, task.rate_limit])
    client = client_of(app)
    before = client.pool.command("HGET", RATES_KEY, task_name)
    if before == text.encode():
        return False
    client.pool.batch([("MULTI",), ("HSET", RATES_KEY, task_name, text), ("INCRBY", keys.NOTICES, 1), ("EXEC",)])
    slots.start_afresh(client.pool, rate_key(task_name))
    waiting.call_up(client, keys.SCHEDULE, "class", [task_name], _unmark)
    return True


def limits_set(app: App) -> dict[str, Any]:
    """
    The limits that were set at run time and replace the program's, by task name.

    Raises:
        RedisError: As `Pool.run` does.
    """
    rates = rates_of(client_of(app).pool.command("HGETALL", RATES_KEY))
    return {
        name: limit
        for name, (limit, declared) in rates.items()
        if name in app.tasks and app.tasks[name].rate_limit == declared
    }


def _unmark(payload: Payload) -> bool:
    """Remove the appointment's mark from a payload. Returns False if there is none."""
    task_headers = payload.get(KEY)
    if not isinstance(task_headers, dict) or SLOT not in task_headers:
        return False
    rest = {name: value for name, value in task_headers.items() if name != SLOT}
    if rest:
        payload[KEY] = rest
    else:
        del payload[KEY]
    return True
