"""
Pushes that are written later, by the script that ends a job.

Within `gathering()` whatever this thread or coroutine publishes, by `apply_async`, `send_task` or a canvas, goes
through signals and client middleware as ever and is then kept, instead of sent. `commands` makes of it what a job's
end writes: so it is enqueued once, or not at all and the job is still in flight.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sidekiq_py.program import Outgoing
from sidekiq_py.redis_access.failed_jobs import Command
from sidekiq_py.wire import keys

__all__ = ("commands", "gathered", "gathering", "sending")

_gathered: ContextVar[list[Outgoing] | None] = ContextVar("sidekiq_celery.gathered", default=None)


@contextmanager
def gathering() -> Iterator[list[Outgoing]]:
    """Keep what is published within; the list grows as it comes."""
    jobs: list[Outgoing] = []
    token = _gathered.set(jobs)
    try:
        yield jobs
    finally:
        _gathered.reset(token)


@contextmanager
def sending() -> Iterator[None]:
    """Send what is published within, also inside of `gathering`."""
    token = _gathered.set(None)
    try:
        yield
    finally:
        _gathered.reset(token)


def gathered() -> list[Outgoing] | None:
    """Where a push is to be put, or None if it is to be sent."""
    return _gathered.get()


def commands(jobs: Iterable[Outgoing]) -> list[Command]:
    """What to send to have *jobs* enqueued, or put into the schedule."""
    wanted: list[Command] = []
    for job in jobs:
        if job.score is None:
            wanted += [("SADD", keys.QUEUES, job.queue), ("LPUSH", keys.queue(job.queue), job.payload)]
        else:
            wanted.append(("ZADD", keys.SCHEDULE, job.score, job.payload))
    return wanted
