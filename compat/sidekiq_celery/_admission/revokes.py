"""
Revoking tasks.

A revoke is a record in Redis, so no worker has to receive it, and it outlives all of them:

- `sidekiq_py:revoked`: ids, each with the time until which it is revoked (`sidekiq_py.redis_access.extension.revoked`).
  The script that takes a job from its queue checks it.
- `sidekiq_py:revoked_stamps`: a sorted set of JSON `["header", "value"]`, each with the time until which it is revoked.
  Workers keep a copy, because few programs have any (`worker_copy`).

The worker that fetches a revoked task ends it: it stores the result REVOKED, fails its chord and sends `task_revoked`.
A task that waits in `schedule` or `retry` is moved to its queue, so that this happens soon.
"""

import json
import logging
import math
import os
import time
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from sidekiq_celery._admission import waiting
from sidekiq_celery._send.clients import as_operational, client_of
from sidekiq_celery._wire.payload import KEY
from sidekiq_celery.contract import App
from sidekiq_celery.utils.functional import maybe_list
from sidekiq_py.extension import Command, declared_classes, revoked
from sidekiq_py.payloads import keys

_log = logging.getLogger("celery.worker.control")

STAMPS_KEY = "sidekiq_py:revoked_stamps"
KEPT_SECONDS = float(os.environ.get("CELERY_WORKER_REVOKE_EXPIRES") or 7 * 24 * 3600)
"""How long a revoke lasts at least. It always lasts until all jobs that are scheduled now have come due."""
MET_SECONDS = 3 * 3600
"""How long it lasts once its task has ended, in case that task is sent again. Celery uses this for all revokes."""
MOST_LISTED = 10_000
"""The most ids that `revoked_ids` returns."""
MOST_SEARCHED = 10_000
"""In a larger set of waiting jobs, a revoked task stays until it is due."""
# A fetched job waits in a worker for a quarter of this without another check (`sidekiq_py.engine.fetch.reliable`). The
# rest is for replies that are read late.
_IN_FLIGHT_SECONDS = 0.2


def revoke(app: App, task_ids: str | Iterable[str], *, waits: bool = True) -> None:
    """
    Prevent tasks from running. When this returns, each of them has either started or never will.

    Args:
        task_ids: One or more ids; the tasks do not have to exist yet.
        waits: True to wait a fifth of a second for jobs that workers have just fetched. Otherwise one of these may
            still start.

    Raises:
        ValueError: An id contains a quote, a backslash or a control character.
        kombu.exceptions.OperationalError: Redis cannot be reached.
    """
    wanted = [_checked(task_id) for task_id in maybe_list(task_ids) or ()]
    if not wanted:
        return
    pool = client_of(app).pool
    with as_operational():
        done = revoked.revoke(pool, wanted, now=time.time(), kept_seconds=KEPT_SECONDS)
        _call_up(app, wanted)
    if done.forgotten:
        _log.warning(
            "%d earlier revokes were dropped, because at most %d are kept: tasks of theirs that still wait will run",
            done.forgotten,
            revoked.MOST_KEPT,
        )
    if done.may_start and waits:
        time.sleep(_IN_FLIGHT_SECONDS)


def revoke_stamped(app: App, headers: Mapping[str, Any], *, waits: bool = True) -> None:
    """
    Prevent all tasks from running that carry one of these stamps.

    Args:
        headers: A mapping from a stamp's name to a value, or to several values, any of which matches.
        waits: As for `revoke`.

    Raises:
        kombu.exceptions.OperationalError: Redis cannot be reached.
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
        ("INCRBY", keys.NOTICES, 1),
        ("EXEC",),
    ]
    with as_operational():
        client_of(app).pool.batch(commands)
    if waits:
        time.sleep(_IN_FLIGHT_SECONDS)


def revoked_ids(app: App) -> list[str]:
    """The ids of revoked tasks, including those that a worker has ended in the last hours; at most `MOST_LISTED`."""
    return revoked.list_revoked(client_of(app).pool, time.time(), MOST_LISTED)


def is_revoked(app: App, task_id: str) -> bool:
    """
    True if a task must not be started.

    Raises:
        kombu.exceptions.OperationalError: Redis cannot be reached.
    """
    with as_operational():
        return revoked.is_revoked(client_of(app).pool, task_id, time.time())


def call_up_if_revoked(app: App, task_id: str) -> None:
    """
    Move a task that waits in `retry` or `schedule` to its queue if it is revoked.

    Raises:
        RedisError: Redis cannot be reached.
    """
    if revoked.is_revoked(client_of(app).pool, task_id, time.time()):
        _call_up(app, [task_id])


def allow(app: App, task_id: str) -> None:
    """
    Take a revoke back.

    Raises:
        kombu.exceptions.OperationalError: Redis cannot be reached.
    """
    with as_operational():
        client_of(app).pool.command("ZREM", keys.REVOKED, task_id)


def not_revoked(app: App, task_ids: Iterable[str]) -> list[str]:
    """The ids in *task_ids* that have no revoke record."""
    wanted = list(task_ids)
    scores = client_of(app).pool.batch([("ZSCORE", keys.REVOKED, task_id) for task_id in wanted]) if wanted else []
    return [task_id for task_id, score in zip(wanted, scores, strict=True) if score is None]


def keep_less_long(task_id: str) -> Command:
    """The command for the end of a revoked task: its record is kept for a shorter time from now on."""
    return ("ZADD", keys.REVOKED, "XX", "LT", f"{time.time() + MET_SECONDS:.3f}", task_id)


def stamp_of(name: Any, value: Any) -> str:
    """A stamp in the form in which it is stored."""
    return json.dumps([str(name), value], default=str, ensure_ascii=False)


def revoked_stamp(stamps: Mapping[str, Any], revoked_stamps: Mapping[str, float], now: float) -> dict[str, Any] | None:
    """
    The first of a task's stamps that is revoked, with its value; None if none is.

    Args:
        revoked_stamps: A mapping from a stored stamp to the time until which it is revoked.
        now: Seconds since the epoch.
    """
    for name, values in stamps.items():
        for value in values if isinstance(values, list | tuple | set | frozenset) else (values,):
            if revoked_stamps.get(stamp_of(name, value), 0.0) > now:
                return {name: value}
    return None


def _call_up(app: App, task_ids: list[str]) -> None:
    client = client_of(app)

    @cache
    def run_here() -> frozenset[str]:
        # Python workers tell an app without the tasks, such as the dashboard's.
        processes = client.pool.command("SMEMBERS", keys.PROCESSES)
        identities = [identity.decode(errors="surrogateescape") for identity in processes]
        return frozenset().union(*filter(None, declared_classes.read(client.pool, identities).values()))

    # A Ruby job would run, because Ruby processes do not check revokes.
    def is_task(payload: Mapping[str, Any]) -> bool:
        name = payload.get("class")
        return name in app.tasks or (KEY in payload and name in run_here())

    for name in (keys.RETRY, keys.SCHEDULE):
        if 0 < waiting.size(client.pool, name) <= MOST_SEARCHED:
            waiting.call_up(client, name, "jid", task_ids, is_task)


def _checked(task_id: Any) -> str:
    text = str(task_id)
    if not text.isprintable() or '"' in text or "\\" in text:
        raise ValueError(
            f"{text!r} cannot be revoked: its quotes, backslashes and control characters are written differently in a "
            "payload; give tasks that are to be revoked ids without them"
        )
    return text
