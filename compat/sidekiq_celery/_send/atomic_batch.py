"""
Pushes that are made together: a workflow's jobs and its stored data, in one atomic step.

During a task's end (`buffering()`) they become part of what the end writes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from sidekiq_celery._send import pipeline_buffer
from sidekiq_celery._send.clients import fail, operational, pushing_client
from sidekiq_celery._send.pipeline_buffer import PipelineBuffer, Wanted
from sidekiq_celery._send.retries import Policy, with_retries
from sidekiq_celery.contract import App
from sidekiq_py.errors import PushOutcomeUnknownError, RedisError, RedisReplyError, ReplyLostError
from sidekiq_py.extension import Command, Outgoing, write
from sidekiq_py.pushing import Client, advised, program, waits_for_commit

# So that a group of a hundred thousand does not block Redis.
_MOST_WORDS = 10_000


@contextmanager
def batch(app: App) -> Iterator[PipelineBuffer]:
    """
    Send what is published within the block when the block ends; send nothing if it raises.

    Yields:
        The buffer, for commands to run before the next publish.

    Raises:
        kombu.exceptions.OperationalError: It was not sent, or it is unknown whether it was.
    """
    buffer = pipeline_buffer.current()
    if buffer is not None:
        yield buffer
        return
    with pipeline_buffer.buffering() as wanted:
        yield wanted
    send(app, wanted)


def send(app: App, wanted: PipelineBuffer) -> None:
    """
    Send jobs and commands; after the commit if pushes wait for one.

    Raises:
        kombu.exceptions.OperationalError: They were not sent, or it is unknown whether they were.
    """
    # After the commit, another `Client.via` may be in effect than at the call.
    push = partial(_send_by, pushing_client(app), app, wanted)
    if not waits_for_commit(push):
        push()


def _send_by(client: Client, app: App, wanted: PipelineBuffer) -> None:
    with Client.via(client):
        jobs = pipeline_buffer.shown(app, wanted)
        if not pipeline_buffer.is_kept_by_test(jobs):
            _write_all(app, jobs, wanted.policy)


def _write_all(app: App, jobs: Sequence[Wanted], policy: Policy) -> None:
    pool = pushing_client(app).pool
    try:
        for number, some in enumerate(_slices(pipeline_buffer.joined(jobs))):
            # If memory fills up after the first slice, the rest is stored too: half a workflow would never end.
            with_retries(partial(_write, pool, some, may_be_refused=number == 0), policy)
    except RedisReplyError as refusal:
        raise program.extensions.explained(str(refusal)) or operational(advised(refusal)) from refusal
    except ReplyLostError as error:
        jids = [one.jid for one in jobs if isinstance(one, Outgoing)]
        fail(PushOutcomeUnknownError(jids, error) if jids else error)
    except RedisError as error:
        fail(error)


def _slices(commands: list[Command]) -> Iterator[list[Command]]:
    """All commands at once, or in slices if there are very many."""
    some: list[Command] = []
    words = 0
    for command in commands:
        if some and words + len(command) > _MOST_WORDS:
            yield some
            some, words = [], 0
        some.append(command)
        words += len(command)
    if some:
        yield some


def _write(pool: Any, commands: list[Command], *, may_be_refused: bool) -> None:
    pool.run(lambda link: write(link, commands, pushes=may_be_refused), idempotent=False)
