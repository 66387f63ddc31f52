"""
The push of a task: the client of its app, again where Redis was not reached, errors as kombu's.

The push is the engine's own (`sidekiq_py.client.sync_client`): its client middleware, its dialect, its transactions and
shards. A failure is raised as kombu's `OperationalError`, as programs that come from Celery catch it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from sidekiq_celery._send import atomic_batch, pipeline_buffer, unique
from sidekiq_celery._send.clients import fail, pushing_client, refuse
from sidekiq_celery._send.push_templates import templated
from sidekiq_celery._wire.payload import KEY, UNIQUE
from sidekiq_celery.contract import App
from sidekiq_py.client.sync_client import Client
from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError, RedisConnectionError, RedisError
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.redis_access.job_path.push import Outgoing

__all__ = (
    "Policy",
    "publish_policy",
    "push",
    "push_ready",
    "push_unique",
)

Sent = TypeVar("Sent")
Policy = Callable[[], Mapping[str, Any] | None]
"""How often a push is tried again, and after which pauses; None: not at all."""


def publish_policy(app: App, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """How a push is tried again: `task_publish_retry_policy`, and what a call gives in its place."""
    return {**app.conf.task_publish_retry_policy, **(given or {})}


def push(app: App, item: dict[str, Any], policy: Policy, kept: Sequence[Command] = ()) -> None:
    """
    Push a job.

    Args:
        kept: What is to be written before it, in the same step.

    Raises:
        kombu.exceptions.OperationalError: It was not sent, or nobody knows.
        kombu.exceptions.EncodeError: An argument cannot be sent.
    """
    client = pushing_client(app, getattr(item["class"], "__sidekiq_job__", None))
    gathered = pipeline_buffer.gathered()
    job = _templated(client, item)
    try:
        if gathered is None and not kept:
            with_retries(partial(client.push, item) if job is None else partial(client.send, job), policy)
            return
        if job is None:
            job = client.prepare(item)
    except (ArgumentTypeError, ArgumentValueError) as error:
        refuse(error)
    except RedisError as error:
        fail(error)
    wanted = [] if job is None else [*kept, job]
    if gathered is None:
        atomic_batch.send(app, wanted)
    else:
        gathered += wanted


def _templated(client: Client, item: dict[str, Any]) -> Outgoing | None:
    try:
        return templated(client, item)
    except (ArgumentTypeError, ArgumentValueError):
        # The client's own way names the place of what is wrong in the whole payload.
        return None


def push_unique(app: App, item: dict[str, Any], policy: Policy, lock: unique.Lock) -> str:
    """Push a job with its lock; the id of the task that is there now."""
    item[KEY] = {**item.get(KEY, {}), UNIQUE: lock.mark}
    client = pushing_client(app, getattr(item["class"], "__sidekiq_job__", None))

    def sends(push: Callable[[], str]) -> str:
        try:
            return with_retries(push, policy)
        except RedisError as error:
            fail(error)

    try:
        job = client.prepare(item)
    except (ArgumentTypeError, ArgumentValueError) as error:
        refuse(error)
    # A job that client middleware has stopped needs no lock.
    return item["jid"] if job is None else unique.push(client.pool, job, lock, sends)


def push_ready(app: App, client: Client, job: Outgoing) -> None:
    """
    Push a job that is ready, as the app's settings say.

    Raises:
        kombu.exceptions.OperationalError: It was not sent, or nobody knows.
    """
    try:
        with_retries(lambda: client.send(job), lambda: publish_policy(app) if app.conf.task_publish_retry else None)
    except RedisError as error:
        fail(error)


def with_retries(push: Callable[[], Sent], policy: Policy) -> Sent:
    """Push; again where Redis was not reached. A push whose reply was lost is not made again: it may have arrived."""
    tries = 0
    while True:
        try:
            return push()
        except RedisConnectionError:
            # Asked for only now: a push hardly ever fails.
            wanted = policy()
            limit = None if wanted is None else wanted.get("max_retries")
            if wanted is None or (limit is not None and tries >= limit):
                raise
            pause = wanted.get("interval_start", 0) + tries * wanted.get("interval_step", 0.2)
            time.sleep(min(pause, wanted.get("interval_max", 0.2)))
            tries += 1
