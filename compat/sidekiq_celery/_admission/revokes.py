"""
Revoking tasks.

A revoke is a record in Redis, so it needs no worker to hear of it and outlives them all:

- `sidekiq_py:revoked`, ids, each until when (`sidekiq_py.redis_access.extension.revoked`); the script that takes a job
  from its queue looks there.
- `sidekiq_py:revoked_stamps`, a sorted set of JSON `["header", "value"]`, until when. Workers keep a copy, as few
  programs have any (`worker_copy`).

The worker that meets a revoked task ends it: result REVOKED, its chord failed, `task_revoked` sent. A task that waits
in `schedule` or `retry` is called up, so that this is soon.
"""

import json
import logging
import math
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

from sidekiq_celery._admission import waiting
from sidekiq_celery._send.clients import client_of, fail
from sidekiq_celery.contract import App
from sidekiq_celery.utils.functional import maybe_list
from sidekiq_py.errors import RedisError
from sidekiq_py.extension import Command, revoked
from sidekiq_py.payloads import keys

__all__ = (
    "STAMPS_KEY", "keep_less_long", "matches", "not_revoked", "revoke", "revoke_stamped", "revoked_ids", "stamp_of",
)  # fmt: skip

_log = logging.getLogger("celery.worker.control")

STAMPS_KEY = "sidekiq_py:revoked_stamps"
KEPT_SECONDS = float(os.environ.get("CELERY_WORKER_REVOKE_EXPIRES") or 7 * 24 * 3600)
"""For how long a revoke holds at least; in any case until all jobs have come that wait for their time now."""
MET_SECONDS = 3 * 3600
"""For how long it holds when its task was met, should the same be sent again. Celery's time for all of them."""
MOST_LISTED = 10_000
"""So many ids `revoked_ids` gives."""
MOST_SEARCHED = 10_000
"""In a set of waiting jobs that is larger, a revoked task stays until its time."""
# What a worker has taken waits there unasked for a quarter of it (`sidekiq_py.engine.fetch.reliable`); the rest is for
# replies that are read late.
_IN_FLIGHT_SECONDS = 0.2


def revoke(app: App, task_ids: str | Iterable[str], *, waits: bool = True) -> None:
    """
    Have tasks not run. When this returns, each of them has started or never will.

    Args:
        task_ids: One or many; they need not exist yet.
        waits: For what workers had taken just before, a fifth of a second; else one of these may start yet.

    Raises:
        ValueError: An id has a quote, a backslash or a control character.
        kombu.exceptions.OperationalError: Redis was not reached.
    """
    wanted = [_checked(task_id) for task_id in maybe_list(task_ids) or ()]
    if not wanted:
        return
    pool = client_of(app).pool
    try:
        done = revoked.revoke(pool, wanted, now=time.time(), kept_seconds=KEPT_SECONDS)
        _call_up(app, wanted)
    except RedisError as error:
        fail(error)
    if done.forgotten:
        _log.warning(
            "%d earlier revokes are forgotten, as %d are kept at most: tasks of theirs that still wait will run",
            done.forgotten,
            revoked.MOST_KEPT,
        )
    if done.may_start and waits:
        time.sleep(_IN_FLIGHT_SECONDS)


def revoke_stamped(app: App, headers: Mapping[str, Any], *, waits: bool = True) -> None:
    """
    Have tasks not run that bear one of these stamps.

    Args:
        headers: From the name of a stamp to its value, or to several of which each counts.
        waits: As for `revoke`.

    Raises:
        kombu.exceptions.OperationalError: Redis was not reached.
    """
    stamps = [stamp_of(name, value) for name, values in headers.items() for value in maybe_list(values) or ()]
    if not stamps:
        return
    now = time.time()
    members = [word for stamp in stamps for word in (f"{now + KEPT_SECONDS:.3f}", stamp)]
    commands: list[Command] = [
        ("MULTI",),
        ("ZREMRANGEBYSCORE", STAMPS_KEY, "-inf", f"{now:.3f}"),
        ("ZADD", STAMPS_KEY, *members),
        ("ZREMRANGEBYRANK", STAMPS_KEY, 0, -revoked.MOST_KEPT - 1),
        ("EXPIRE", STAMPS_KEY, math.ceil(KEPT_SECONDS)),
        ("INCRBY", keys.ORDERS, 1),
        ("EXEC",),
    ]
    try:
        client_of(app).pool.batch(commands)
    except RedisError as error:
        fail(error)
    if waits:
        time.sleep(_IN_FLIGHT_SECONDS)


def revoked_ids(app: App) -> list[str]:
    """The ids of the tasks that are revoked, those among them that a worker has met in the last hours; not too many."""
    return revoked.list_revoked(client_of(app).pool, time.time(), MOST_LISTED)


def not_revoked(app: App, task_ids: Iterable[str]) -> list[str]:
    """Those of *task_ids* of which there is no record."""
    wanted = list(task_ids)
    scores = client_of(app).pool.batch([("ZSCORE", keys.REVOKED, task_id) for task_id in wanted]) if wanted else []
    return [task_id for task_id, score in zip(wanted, scores, strict=True) if score is None]


def keep_less_long(task_id: str) -> Command:
    """The command of the end of a revoked task: its record has done its part."""
    return ("ZADD", keys.REVOKED, "XX", "LT", f"{time.time() + MET_SECONDS:.3f}", task_id)


def stamp_of(name: Any, value: Any) -> str:
    """A stamp as it is kept."""
    return json.dumps([str(name), value], default=str, ensure_ascii=False)


def matches(stamps: Mapping[str, Any], revoked_stamps: Mapping[str, float], now: float) -> bool:
    """
    Whether one of a task's stamps is revoked.

    Args:
        revoked_stamps: From a stamp as it is kept to the time until which it is.
        now: Seconds since the epoch.
    """
    return any(
        revoked_stamps.get(stamp_of(name, value), 0.0) > now
        for name, values in stamps.items()
        for value in (values if isinstance(values, list | tuple | set | frozenset) else (values,))
    )


def _call_up(app: App, task_ids: list[str]) -> None:
    client = client_of(app)
    now = time.time()
    for name in (keys.RETRY, keys.SCHEDULE):
        if 0 < waiting.size(client.pool, name) <= MOST_SEARCHED:
            members = waiting.find(client.pool, name, "jid", task_ids)
            # A job of Ruby's would run: nobody there knows of revokes.
            waiting.call_up(
                client.pool,
                name,
                members,
                dialect=client.detection.dialect(now),
                now=now,
                change=lambda payload: payload.get("class") in app.tasks,
            )


def _checked(task_id: Any) -> str:
    text = str(task_id)
    if not text.isprintable() or '"' in text or "\\" in text:
        raise ValueError(
            f"{text!r} cannot be revoked: its quotes, backslashes and control characters are written differently in a "
            "payload; give tasks that are to be revoked ids without them"
        )
    return text
