"""
Pushes that are written later, by the script that ends a job.

Within `gathering()` whatever this thread or coroutine publishes, by `apply_async`, `send_task` or a canvas, goes
through signals and client middleware as ever and is then kept, instead of sent. `commands` makes of it what a job's
end writes: so it is enqueued once, or not at all and the job is still in flight.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token

from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.redis_access.job_path.push import Outgoing
from sidekiq_py.wire import keys

__all__ = ("Gathered", "Wanted", "commands", "gathered", "gathering", "sending", "takes_locks")

Wanted = Outgoing | Command
"""A job, or a command that is to be run before those that come after it."""

# Lua can hand about 8,000 values to one command.
_MOST_AT_ONCE = 1000


class Gathered(list[Wanted]):
    """
    What is to be written later.

    Args:
        takes_locks: Whoever writes it knows locks (`locks.taken`); else a unique task is enqueued in any case.
    """

    __slots__ = ("takes_locks",)

    def __init__(self, takes_locks: bool = False) -> None:
        super().__init__()
        self.takes_locks = takes_locks


_gathered: ContextVar[Gathered | None] = ContextVar("sidekiq_celery.gathered", default=None)


class gathering:
    """
    A context manager: keep what is published within; the list grows as it comes.

    Each is used once. It is no generator, which would cost each task more.
    """

    __slots__ = ("_jobs", "_token")

    def __init__(self, *, takes_locks: bool = False) -> None:
        self._jobs = Gathered(takes_locks)
        self._token: Token[Gathered | None] | None = None

    def __enter__(self) -> Gathered:
        if self._token is not None:
            raise RuntimeError("this gathering was entered before; make another one")
        self._token = _gathered.set(self._jobs)
        return self._jobs

    def __exit__(self, *failure: object) -> None:
        assert self._token is not None
        _gathered.reset(self._token)


@contextmanager
def sending() -> Iterator[None]:
    """Send what is published within, also inside of `gathering`."""
    token = _gathered.set(None)
    try:
        yield
    finally:
        _gathered.reset(token)


def gathered() -> Gathered | None:
    """Where a push is to be put, or None if it is to be sent."""
    return _gathered.get()


def takes_locks() -> bool:
    """Whether a push of a unique task takes its lock along."""
    later = _gathered.get()
    return later is None or later.takes_locks


def commands(jobs: Iterable[Wanted]) -> list[Command]:
    """What to send to have *jobs* enqueued, or put into the schedule; jobs of one queue that come together in one."""
    wanted: list[Command] = []
    waiting: list[Outgoing] = []
    for job in jobs:
        is_next = isinstance(job, Outgoing) and job.score is None
        if waiting and (not is_next or job.queue != waiting[0].queue or len(waiting) == _MOST_AT_ONCE):  # type: ignore[union-attr]
            wanted += _push(waiting)
            waiting = []
        if not isinstance(job, Outgoing):
            wanted.append(job)
        elif job.score is None:
            waiting.append(job)
        else:
            wanted.append(("ZADD", keys.SCHEDULE, job.score, job.payload))
    return [*wanted, *_push(waiting)]


def _push(jobs: Sequence[Outgoing]) -> list[Command]:
    if not jobs:
        return []
    queue = jobs[0].queue
    return [("SADD", keys.QUEUES, queue), ("LPUSH", keys.queue(queue), *(job.payload for job in jobs))]
