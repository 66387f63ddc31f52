"""
Pushing a task: through its app's client, with retries if Redis cannot be reached, and with kombu's errors.

The push is the engine's own (`sidekiq_py.client.sync_client`), with its client middleware, dialect, transactions and
shards. A failure is raised as kombu's `OperationalError`, which is what Celery programs catch.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sidekiq_celery._send import atomic_batch, locks, pipeline_buffer, unique
from sidekiq_celery._send.clients import fail, pushing_client, refuse
from sidekiq_celery._send.pipeline_buffer import PipelineBuffer
from sidekiq_celery._send.push_templates import templated
from sidekiq_celery._send.retries import Policy, with_retries
from sidekiq_celery._wire.payload import KEY, UNIQUE
from sidekiq_celery.contract import App
from sidekiq_py import Client
from sidekiq_py.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    PushOutcomeUnknownError,
    RedisError,
    ReplyLostError,
)
from sidekiq_py.extension import Command, JobDefinition, Outgoing
from sidekiq_py.pushing import waits_for_commit


def publish_policy(app: App, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """How to retry a push: `task_publish_retry_policy`, overridden by what the call gives."""
    return {**app.conf.task_publish_retry_policy, **(given or {})}


def policy_of(app: App) -> dict[str, Any] | None:
    """How to retry a call that does not specify it."""
    return publish_policy(app) if app.conf.task_publish_retry else None


def push(app: App, item: dict[str, Any], policy: Policy, kept: Sequence[Command] = ()) -> None:
    """
    Push a job.

    Args:
        kept: Commands to write before it, in the same step.

    Raises:
        kombu.exceptions.OperationalError: It was not sent, or it is unknown whether it was.
        kombu.exceptions.EncodeError: An argument cannot be sent.
    """
    definition = _definition_of(item)
    client = pushing_client(app, definition)
    job = templated(client, item)
    try:
        if job is None and not kept and pipeline_buffer.current() is None:
            # The engine's client handles transactions: it may push later.
            with_retries(partial(client.push, item), policy)
            return
        if job is None:
            job = client.prepare(item)
    except (ArgumentTypeError, ArgumentValueError) as error:
        refuse(error)
    except RedisError as error:
        fail(error)
    if job is not None:
        push_ready(app, client, job, definition, kept, policy)


def push_ready(
    app: App, client: Client, job: Outgoing, definition: JobDefinition, kept: Sequence[Command], policy: Policy
) -> None:
    """
    Push a job whose bytes are ready. All calls end here, except those of unique tasks.

    Args:
        kept: Commands to write before it, in the same step.

    Raises:
        kombu.exceptions.OperationalError: It was not sent, or it is unknown whether it was.
    """
    buffer = pipeline_buffer.current()
    if buffer is not None:
        buffer.add(job, definition, kept)
        buffer.policy = policy
    elif kept:
        batch = PipelineBuffer()
        batch.add(job, definition, kept)
        batch.policy = policy
        atomic_batch.send(app, batch)
    else:
        pushed = client.shown([job], definition.name, definition)
        try:
            with_retries(partial(client.send, job) if pushed is None else partial(client.send_slice, pushed), policy)
        except RedisError as error:
            fail(error)


def _definition_of(item: dict[str, Any]) -> JobDefinition:
    """The definition of the job in *item*; only its name if this program does not have the task."""
    task = item["class"]
    found: JobDefinition | None = getattr(task, "__sidekiq_job__", None)
    return JobDefinition(task, {}, None) if found is None else found


def push_unique(app: App, item: dict[str, Any], policy: Policy, lock: unique.Lock) -> str:
    """
    Push a job and take its lock, unless the same call already exists.

    Returns:
        The id of the task that exists now. If the push is written later, for example after a commit, this is the id of
        *item*, which may or may not be sent then.

    Raises:
        kombu.exceptions.OperationalError: It was not sent, or it is unknown whether it was.
        kombu.exceptions.EncodeError: An argument cannot be sent.
        Exception: An extension that handles the push raised it.
    """
    item[KEY] = {**item.get(KEY, {}), UNIQUE: lock.mark}
    definition = _definition_of(item)
    client = pushing_client(app, definition)
    try:
        job = client.prepare(item)
    except (ArgumentTypeError, ArgumentValueError) as error:
        refuse(error)
    if job is None:
        # Client middleware has stopped the push, so no lock is needed.
        task_id: str = item["jid"]
        return task_id
    wanted = PipelineBuffer()
    wanted.add(job, definition)
    now = time.time()
    milliseconds = unique.milliseconds(lock.mark, now if job.score is None else float(job.score), now)
    buffer = pipeline_buffer.current()
    if buffer is not None:
        buffer += locks.taken(lock.key, job.jid, milliseconds, pipeline_buffer.commands(app, wanted))
        return job.jid

    def push_now() -> str:
        jobs = pipeline_buffer.shown(app, wanted)
        if pipeline_buffer.is_kept_by_test(jobs):
            return job.jid
        commands = pipeline_buffer.joined(jobs)
        try:
            return with_retries(lambda: locks.push(client.pool, lock.key, job.jid, milliseconds, commands), policy)
        except ReplyLostError as error:
            fail(PushOutcomeUnknownError([job.jid], error))
        except RedisError as error:
            fail(error)

    def push_later() -> None:
        # Another `Client.via` may be in effect than at the call.
        with Client.via(client):
            push_now()

    if waits_for_commit(push_later):
        return job.jid
    return push_now()
