"""The testing modes, and functions that use the active fake mode."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple

from sidekiq_py import program
from sidekiq_py.client import detection
from sidekiq_py.errors import WrongModeError
from sidekiq_py.middleware.chain import Chain
from sidekiq_py.middleware.running import ServerChain
from sidekiq_py.redis_access.connection.pool import refuse_links
from sidekiq_py.redis_access.job_path.push import Outgoing
from sidekiq_py.testing.enqueued import DRAIN_LIMIT, EnqueuedJobs
from sidekiq_py.testing.enqueued_job import EnqueuedJob
from sidekiq_py.testing.expected import ANY
from sidekiq_py.testing.performing import perform_at_once


class _Mode(NamedTuple):
    name: str
    take: Callable[[Sequence[Outgoing]], None]
    enqueued: EnqueuedJobs | None = None


_OFF_REDIS = (
    "this test run is kept off Redis (sidekiq_off_redis, or keep_off_redis()), but something tried to use it. Pushes "
    "are kept in memory; a test that needs Redis itself should use the fixture sidekiq_redis, or call allow_redis()"
)

_here: ContextVar[_Mode | None] = ContextVar("sidekiq_testing_mode", default=None)
_everywhere: _Mode | None = None
# The mode that applies where no other is active: that of a test run that is kept off Redis.
_underneath: _Mode | None = None
_modes_on = 0
_lock = Lock()


@contextmanager
def fake(*, everywhere: bool = False, server_middleware: ServerChain | None = None) -> Iterator[EnqueuedJobs]:
    """
    Within the block, keep jobs in memory instead of sending them to Redis.

    Args:
        everywhere: True to affect all threads and tasks of the process, not only this one and those that it spawns.
        server_middleware: The middleware to run jobs with; by default the program's own.

    Raises:
        WrongModeError: A mode is already active.
    """
    enqueued = EnqueuedJobs(_chain(server_middleware))
    with _switched_on(_Mode("fake", enqueued.take, enqueued), everywhere):
        yield enqueued


@contextmanager
def inline(*, everywhere: bool = False, server_middleware: ServerChain | None = None) -> Iterator[None]:
    """
    Within the block, run jobs at once where they are enqueued, scheduled ones too. The push raises what the job raises.

    Args:
        everywhere, server_middleware: As for `fake`.

    Raises:
        WrongModeError: A mode is already active.
    """
    chain = _chain(server_middleware)

    def take(ready: Sequence[Outgoing]) -> None:
        for job in ready:
            perform_at_once(job.payload, chain)

    with _switched_on(_Mode("inline", take), everywhere):
        yield


def keep_off_redis() -> EnqueuedJobs:
    """
    From now on, keep the jobs that any thread of this process pushes in memory, as `fake` does. Anything else that uses
    Redis raises `WrongModeError`. Meant for a whole test run; you can enter `fake` and `inline` on top. Calling it
    again does no harm.

    Returns:
        The jobs that are enqueued from here on, until `allow_redis`.
    """
    global _underneath
    if _underneath is None or _underneath.enqueued is None:
        enqueued = EnqueuedJobs(program.server_middleware)
        _underneath = _Mode("keep_off_redis", enqueued.take, enqueued)
        _switch_hooks()
        refuse_links(lambda: WrongModeError(_OFF_REDIS))
        return enqueued
    return _underneath.enqueued


def allow_redis() -> None:
    """End `keep_off_redis`."""
    global _underneath
    _underneath = None
    refuse_links(None)
    _switch_hooks()


def jobs(job: Any = None, *, queue: str | None = None) -> list[EnqueuedJob]:
    """`EnqueuedJobs.jobs` of the active fake mode."""
    return _enqueued().jobs(job, queue=queue)


def queues() -> dict[str, list[EnqueuedJob]]:
    """`EnqueuedJobs.queues` of the active fake mode."""
    return _enqueued().queues


def clear(job: Any = None, *, queue: str | None = None) -> None:
    """`EnqueuedJobs.clear` of the active fake mode."""
    _enqueued().clear(job, queue=queue)


def perform_one(job: Any = None, *, queue: str | None = None) -> EnqueuedJob:
    """`EnqueuedJobs.perform_one` of the active fake mode."""
    return _enqueued().perform_one(job, queue=queue)


async def aperform_one(job: Any = None, *, queue: str | None = None) -> EnqueuedJob:
    """`EnqueuedJobs.aperform_one` of the active fake mode."""
    return await _enqueued().aperform_one(job, queue=queue)


def drain(job: Any = None, *, queue: str | None = None, limit: int = DRAIN_LIMIT) -> int:
    """`EnqueuedJobs.drain` of the active fake mode."""
    return _enqueued().drain(job, queue=queue, limit=limit)


async def adrain(job: Any = None, *, queue: str | None = None, limit: int = DRAIN_LIMIT) -> int:
    """`EnqueuedJobs.adrain` of the active fake mode."""
    return await _enqueued().adrain(job, queue=queue, limit=limit)


def drain_all() -> int:
    """`EnqueuedJobs.drain_all` of the active fake mode."""
    return _enqueued().drain_all()


async def adrain_all() -> int:
    """`EnqueuedJobs.adrain_all` of the active fake mode."""
    return await _enqueued().adrain_all()


def assert_enqueued(
    job: Any = None,
    *,
    args: Any = ANY,
    queue: Any = ANY,
    at: Any = ANY,
    count: int | None = None,
    tolerance_seconds: float = 1.0,
) -> EnqueuedJob:
    """`EnqueuedJobs.assert_enqueued` of the active fake mode."""
    __tracebackhide__ = True
    return _enqueued().assert_enqueued(
        job, args=args, queue=queue, at=at, count=count, tolerance_seconds=tolerance_seconds
    )


def refute_enqueued(
    job: Any = None, *, args: Any = ANY, queue: Any = ANY, at: Any = ANY, tolerance_seconds: float = 1.0
) -> None:
    """`EnqueuedJobs.refute_enqueued` of the active fake mode."""
    __tracebackhide__ = True
    _enqueued().refute_enqueued(job, args=args, queue=queue, at=at, tolerance_seconds=tolerance_seconds)


def _chain(given: ServerChain | None) -> ServerChain:
    if given and not isinstance(given, Chain):
        raise TypeError(f"server_middleware is {given!r}; give a Chain, empty for no middleware")
    return program.server_middleware if given is None else given


def _enqueued() -> EnqueuedJobs:
    mode = mode_here()
    if mode is None or mode.enqueued is None:
        raise WrongModeError("no fake mode is active here; enter `with fake():`, or use the fixture sidekiq_jobs")
    return mode.enqueued


def mode_here() -> _Mode | None:
    """The mode that is active in this thread or task. Each mode that is entered is an object of its own."""
    return _everywhere or _here.get() or _underneath


def _switch_hooks() -> None:
    is_on = _modes_on > 0 or _underneath is not None
    program.intercept(_take if is_on else None)
    # A push checks now and then which Sidekiq release uses this Redis; here there is no Redis to check.
    detection.pause(is_on)


@contextmanager
def _switched_on(mode: _Mode, everywhere: bool) -> Iterator[None]:
    present = _everywhere or _here.get()
    if present is not None:
        raise WrongModeError(f"{mode.name}() within {present.name}(): testing modes do not nest; leave the first one")
    _enter(mode, everywhere)
    try:
        yield
    finally:
        _leave(everywhere)


def _enter(mode: _Mode, everywhere: bool) -> None:
    global _everywhere, _modes_on
    with _lock:
        if _modes_on and (everywhere or _everywhere is not None):
            raise WrongModeError("another thread has an active testing mode; one for the whole process allows no other")
        if everywhere:
            _everywhere = mode
        else:
            _here.set(mode)
        _modes_on += 1
        if _modes_on == 1:
            _switch_hooks()


def _leave(everywhere: bool) -> None:
    global _everywhere, _modes_on
    with _lock:
        if everywhere:
            _everywhere = None
        else:
            # No reset with a token, because an async fixture exits in a different context than it was entered in.
            _here.set(None)
        _modes_on -= 1
        if _modes_on == 0:
            _switch_hooks()


def _take(ready: Sequence[Outgoing]) -> bool:
    mode = mode_here()
    if mode is None:
        return False
    mode.take(ready)
    return True
