"""
Pushes that are written later, by the script that ends a job.

Within `buffering()`, anything that this thread or coroutine publishes with `apply_async`, `send_task` or a canvas goes
through signals and client middleware as usual, and is then kept instead of sent. `commands` turns it into what a job's
end writes, so it is enqueued exactly once, or not at all while the job is still in flight. Extensions see the jobs only
then, as they do right before any other push.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from itertools import groupby
from typing import Any

from sidekiq_celery._send.clients import pushing_client
from sidekiq_celery._send.retries import Policy
from sidekiq_celery._send.running_task import payload_of
from sidekiq_celery._wire.context import Context
from sidekiq_celery.contract import App
from sidekiq_py.extension import Command, JobDefinition, Outgoing
from sidekiq_py.payloads import keys
from sidekiq_py.pushing import program

Wanted = Outgoing | Command
"""A job, or a command to run before the entries after it."""

# Lua can pass about 8,000 values to one command.
_MOST_AT_ONCE = 1000


def _never() -> None:
    """The policy of what is not repeated."""


class PipelineBuffer(list[Wanted]):
    """
    Jobs and commands to write later.

    Args:
        takes_locks: True if the code that writes the buffer can handle a lock that is already taken. Otherwise a unique
            task is enqueued in any case.
    """

    __slots__ = ("_definitions", "policy", "takes_locks")

    def __init__(self, takes_locks: bool = False) -> None:
        super().__init__()
        self.takes_locks = takes_locks
        self.policy: Policy = _never
        """How to repeat the push; that of the last call, since all are sent in one step."""
        self._definitions: dict[str, JobDefinition] = {}

    def add(self, job: Outgoing, definition: JobDefinition, kept: Sequence[Command] = ()) -> None:
        """
        Push *job* later.

        Args:
            kept: Commands to write before it.
        """
        self += kept
        self.append(job)
        self._definitions[job.jid] = definition

    @property
    def definitions(self) -> set[JobDefinition]:
        """The definitions of all jobs."""
        return set(self._definitions.values())

    def definition_of(self, one: Wanted) -> JobDefinition | None:
        """The job's definition; None for a command."""
        return self._definitions[one.jid] if isinstance(one, Outgoing) else None


_current: ContextVar[PipelineBuffer | None] = ContextVar("sidekiq_celery.pipeline_buffer", default=None)


class buffering:
    """
    A context manager that keeps what is published within it, in a list that grows as jobs arrive.

    Each instance is used once. It is a class because a generator would cost more for each task.
    """

    __slots__ = ("_jobs", "_token")

    _token: Token[PipelineBuffer | None]

    def __init__(self, *, takes_locks: bool = False) -> None:
        self._jobs = PipelineBuffer(takes_locks)

    def __enter__(self) -> PipelineBuffer:
        self._token = _current.set(self._jobs)
        return self._jobs

    def __exit__(self, *failure: object) -> None:
        _current.reset(self._token)


@contextmanager
def sending() -> Iterator[None]:
    """Send what is published within, even inside `buffering()`."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def current() -> PipelineBuffer | None:
    """The buffer for pushes, or None if they are sent immediately."""
    return _current.get()


def takes_locks() -> bool:
    """Whether a push of a unique task also takes its lock."""
    later = _current.get()
    return later is None or later.takes_locks


def commands(app: App, jobs: PipelineBuffer, request: Context | None = None) -> list[Command]:
    """
    The commands that enqueue or schedule *jobs*; consecutive jobs for one queue share a command.

    Args:
        request: The request of the task whose end writes them.

    Raises:
        Exception: An extension that handles the jobs raised it.
    """
    return joined(shown(app, jobs, follows=None if request is None else payload_of(request)))


def joined(jobs: Iterable[Wanted]) -> list[Command]:
    """The commands that `commands` returns, for the result of `shown`."""
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


def shown(app: App, jobs: PipelineBuffer, *, follows: dict[str, Any] | None = None) -> Sequence[Wanted]:
    """
    *jobs* after extensions have seen them, with what those write. Consecutive jobs of one task form a slice.

    Args:
        follows: The payload of the job whose end writes them.
    """
    if not _is_shown(jobs, follows):
        return jobs
    client = pushing_client(app)
    found: list[Wanted] = []
    for definition, group in groupby(jobs, jobs.definition_of):
        some = list(group)
        ready = [one for one in some if isinstance(one, Outgoing)]
        pushed = None if definition is None else client.shown(ready, definition.name, definition, follows=follows)
        if pushed is None:
            found += some
        else:
            found += [*pushed.effects, *pushed.outgoing]
    return found


def is_kept_by_test(jobs: Iterable[Wanted]) -> bool:
    """Whether a testing mode has taken the jobs, so that nothing is to be written."""
    return program.interceptor is not None and program.interceptor([one for one in jobs if isinstance(one, Outgoing)])


def _is_shown(jobs: PipelineBuffer, follows: dict[str, Any] | None) -> bool:
    defaults, extensions = program.default_job_options, program.extensions
    for definition in jobs.definitions:
        if extensions.wants_pushes({**defaults, **definition.options} if defaults else definition.options, follows):
            return True
    return False


def _push(jobs: Sequence[Outgoing]) -> list[Command]:
    if not jobs:
        return []
    queue = jobs[0].queue
    return [("SADD", keys.QUEUES, queue), ("LPUSH", keys.queue(queue), *(job.payload for job in jobs))]
