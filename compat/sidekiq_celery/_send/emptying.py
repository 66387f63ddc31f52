"""Removing all waiting jobs from queues, along with their locks."""

import logging
from collections.abc import Iterable, Sequence

from sidekiq_celery._send import locks
from sidekiq_celery._send.clients import as_operational, client_of
from sidekiq_celery._send.unique import lock_key, mark_of
from sidekiq_celery._wire.payload import task_headers_of
from sidekiq_celery._wire.priorities import levels, steps
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import InvalidTaskError
from sidekiq_py.api import Queue
from sidekiq_py.errors import PayloadError, RedisError
from sidekiq_py.extension import Held, Pool, write
from sidekiq_py.payloads import parse_job

_log = logging.getLogger("sidekiq")


def purge(app: App, names: Iterable[str]) -> int:
    """
    Remove all waiting jobs from queues, and return their number. Running and scheduled jobs stay.

    Raises:
        kombu.exceptions.OperationalError: Redis cannot be reached, or refused.
    """
    queues = (queue for name in names for queue in levels(name, steps(app)))
    with as_operational():
        return sum(empty(client_of(app).pool, queue) for queue in queues)


def empty(pool: Pool, queue: str) -> int:
    """
    Remove all jobs from a queue, and release the locks of unique tasks among them.

    Returns:
        The number of jobs removed.

    Raises:
        RedisError: Redis cannot be reached or refuses; some of the jobs may already be gone.
    """
    count = 0
    for jobs in Queue(queue, pool=pool).drain():
        count += len(jobs)
        _release(pool, [lock for raw in jobs if b'"lock"' in raw for lock in _locks(raw)])
    return count


def _release(pool: Pool, held: Sequence[Held]) -> None:
    if not held:
        return
    try:
        pool.run(lambda link: write(link, held))
    except RedisError as error:
        # The jobs are gone already.
        _log.warning("the locks of unique tasks that were purged stay until they expire: %s", error)


def _locks(raw: bytes) -> list[Held]:
    try:
        job = parse_job(raw)
        mark, task_id = mark_of(task_headers_of(job)), str(job.get("jid"))
        if mark is None:
            return []
        key = lock_key(mark["lock"])
        # JSON can contain a lone surrogate, but no key or lock does.
        (key + task_id).encode()
    except (InvalidTaskError, PayloadError, UnicodeEncodeError):
        return []
    return [locks.released(key, task_id)]
