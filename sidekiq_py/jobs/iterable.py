"""
Jobs that process many items and can stop between two of them and resume later: at a deploy, or when their time is up.

    class Import(IterableJob):
        def build_enumerator(self, path, *, cursor):
            return self.csv_enumerator(csv.reader(open(path)), cursor)

        def each_iteration(self, row, path): ...

A job's position is saved in the hash `it-<jid>`, in Ruby's format: a job that Ruby has started continues here, and vice
versa. If a process is killed, an item may be processed twice, but none is skipped. Source: Sidekiq 8.1.7,
job/iterable.rb.
"""

import math
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from inspect import iscoroutinefunction
from itertools import islice
from time import monotonic, time
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.errors import Interrupted, JobDeclarationError, RedisError, SidekiqError, rights_hint
from sidekiq_py.jobs.declaration import limit_seconds
from sidekiq_py.jobs.job_class import Job
from sidekiq_py.logs import log
from sidekiq_py.redis_access.connection.slices import lists_of
from sidekiq_py.redis_access.job_path import iteration
from sidekiq_py.wire.json_dialect import dumps, loads
from sidekiq_py.wire.payload import score_text

FLUSH_SECONDS = 5.0
_PAIRS = "it must yield pairs of an item and a cursor, as self.array_enumerator(items, cursor) does"

T = TypeVar("T")

# What a subclass may define, and what is called without `await`.
_METHODS = (
    "build_enumerator",
    "each_iteration",
    "on_start",
    "on_resume",
    "on_stop",
    "on_cancel",
    "on_complete",
    "around_iteration",
)


class Aborted(Exception):
    """Raised by `abort()`: the job ends here, as if it had processed its last item."""


class IterableJob(Job):
    """
    A job that processes many items. Define `build_enumerator` and `each_iteration` instead of `perform`.

    Attributes:
        arguments: The job's args.
        current_object: The current item.
        max_iteration_runtime: Seconds, or a timedelta, after which a run stops and the job is pushed again; None for
            the worker's own limit, which is the setting of the same name; `math.inf` for none at all.
    """

    _is_iterable: ClassVar[bool] = True
    max_iteration_runtime: ClassVar[float | timedelta | None] = None

    if TYPE_CHECKING:
        # The parameters are those of each_iteration after the item, which types cannot express.
        perform_async: Callable[..., str | None]
        perform_in: Callable[..., str | None]
        perform_at: Callable[..., str | None]
        perform_inline: Callable[..., bool | None]
        aperform_async: Callable[..., Coroutine[Any, Any, str | None]]
        aperform_in: Callable[..., Coroutine[Any, Any, str | None]]
        aperform_at: Callable[..., Coroutine[Any, Any, str | None]]
        aperform_inline: Callable[..., Coroutine[Any, Any, bool | None]]

    arguments: tuple[Any, ...] = ()
    current_object: Any = None
    _cursor: Any = None
    _executions: int = 0
    _runtime_seconds: float = 0.0
    _is_cancelled: bool = False

    # These accept any parameters, so that a subclass can declare its own.

    def build_enumerator(self, *args: Any, **keywords: Any) -> Iterable[tuple[Any, Any]] | None:
        """
        The items from *cursor* on, each with its own cursor: a JSON value from which the job can resume at this item.

        Args:
            args: The job's args.
            keywords: `cursor`, the position to resume from; None in the first run.

        Returns:
            Pairs of item and cursor; None to do nothing.
        """
        raise NotImplementedError(f"{type(self).__name__} must define build_enumerator")

    def each_iteration(self, *args: Any, **keywords: Any) -> None:
        """Process one item. It is the first argument, followed by the job's args."""
        raise NotImplementedError(f"{type(self).__name__} must define each_iteration")

    def on_start(self) -> None:
        """Called in the first run, before the first item."""

    def on_resume(self) -> None:
        """Called in each later run, before its first item."""

    def on_stop(self) -> None:
        """Called at the end of each run, unless it ended with an error."""

    def on_cancel(self) -> None:
        """Called when the job notices that it was cancelled."""

    def on_complete(self) -> None:
        """Called when the job is over: after its last item, or when it was cancelled or aborted."""

    def around_iteration(self) -> AbstractContextManager[Any]:
        """A context manager that is entered around each item."""
        return nullcontext()

    @property
    def cursor(self) -> Any:
        """The job's position: the cursor of the current item."""
        return self._cursor

    @property
    def is_cancelled(self) -> bool:
        """True if this run knows that the job was cancelled."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Ask this job to stop for good. It does so when it next saves its position."""
        cancel(self._own_jid())

    def abort(self) -> None:
        """End the job here."""
        raise Aborted

    def array_enumerator(self, items: Iterable[T], cursor: int | None) -> Iterator[tuple[T, int]]:
        """The items of a list, with their indexes as cursors."""
        if isinstance(items, Sequence):
            return ((items[index], index) for index in range(cursor or 0, len(items)))
        return ((item, index) for index, item in islice(enumerate(items), cursor or 0, None))

    def csv_enumerator(self, rows: Iterable[T], cursor: int | None) -> Iterator[tuple[T, int]]:
        """The rows of a `csv.reader`, with their numbers as cursors."""
        return self.array_enumerator(rows, cursor)

    def csv_batches_enumerator(
        self, rows: Iterable[T], cursor: int | None, *, batch_size: int = 100
    ) -> Iterator[tuple[list[T], int]]:
        """Lists of up to *batch_size* rows, with the batches' numbers as cursors."""
        return self.array_enumerator(lists_of(rows, batch_size), cursor)

    @classmethod
    def _entry_point(cls) -> tuple[Callable[..., Any], int] | None:
        if hasattr(cls, "perform"):
            raise JobDeclarationError(
                f"{cls.__qualname__} is iterable and defines perform; let each_iteration do its work"
            )
        name = next((name for name in _METHODS if iscoroutinefunction(getattr(cls, name))), None)
        if name is not None:
            raise JobDeclarationError(
                f"{cls.__qualname__} is iterable, and its {name} an `async def`; define plain functions"
            )
        limit = cls.max_iteration_runtime
        # A property is asked by each run. Infinity exempts the class from the worker's limit.
        if not hasattr(limit, "__get__") and limit != math.inf:
            limit_seconds("max_iteration_runtime", limit, cls.__qualname__)
        build, each = cls.build_enumerator, cls.each_iteration
        is_whole = __name__ not in (build.__module__, each.__module__)
        return (each, 2) if is_whole else None

    def _bound(self) -> Callable[..., Any]:
        return self._run

    def _run(self, *args: Any) -> None:
        """One run, from where the last one stopped to the end, or to where this one stops."""
        self.arguments = args
        self._load()
        self._executions += 1
        enumerator = self.build_enumerator(*args, cursor=self._cursor)
        if enumerator is None:
            log.info("build_enumerator returned None, the job is skipped")
            return
        if not isinstance(enumerator, Iterable):
            raise TypeError(f"build_enumerator of {type(self).__name__} returned {enumerator!r:.100}; {_PAIRS}")
        if self._executions == 1:
            self.on_start()
        else:
            self.on_resume()
        try:
            is_over = self._iterate(enumerator)
        except Aborted:  # by the enumerator, or by on_cancel
            is_over = True
        self.on_stop()
        if not is_over:
            self._save_unless_redis_is_away()
            raise Interrupted(f"{type(self).__name__} left off at {self._cursor!r}")
        self.on_complete()
        self._clear_or_log()

    def _iterate(self, enumerator: Iterable[tuple[Any, Any]]) -> bool:
        """Process items. Returns False if some are left."""
        started = saved = self._now()
        runtime_before = self._runtime_seconds
        if self._is_cancelled:
            return self._leave_for_good()
        for pair in enumerator:
            try:
                item, cursor = pair
            except (TypeError, ValueError):
                message = f"build_enumerator of {type(self).__name__} yields {pair!r:.100}; {_PAIRS}"
                raise TypeError(message) from None
            # The position is saved before the item is processed, so the next run resumes with this item.
            self._cursor, self.current_object = cursor, item
            now = self._now()
            self._runtime_seconds = runtime_before + now - started
            is_leaving = self.interrupted() or self._is_too_long(now - started)
            if is_leaving or now - saved >= FLUSH_SECONDS:
                if self._save_or_log():
                    return self._leave_for_good()
                saved = now
            if is_leaving:
                return False
            begun = monotonic()
            try:
                with self.around_iteration():
                    self.each_iteration(item, *self.arguments)
            except Aborted:
                break
            except BaseException:  # like Ruby's `rescue Exception`: also Shutdown and a SystemExit
                self._runtime_seconds = runtime_before + self._now() - started
                self._save_or_log()
                raise
            _warn_if_slow(monotonic() - begun)
        self._runtime_seconds = runtime_before + self._now() - started
        return True

    def _leave_for_good(self) -> bool:
        self._is_cancelled = True
        self.on_cancel()
        log.info("job cancelled")
        return True

    def _is_too_long(self, seconds: float) -> bool:
        own = self.max_iteration_runtime
        if isinstance(own, timedelta):
            own = own.total_seconds()
        limit = program.iteration_limits.run_seconds if own is None else own
        return limit is not None and seconds > limit

    def _load(self) -> None:
        if not _has_position():
            return
        state = iteration.load(sync_client.current().pool, self._own_jid())
        self._executions = state.executions
        # A job that was cancelled before its first run has no cursor; Ruby raises TypeError for it.
        self._cursor = None if state.cursor is None else loads(state.cursor)
        self._runtime_seconds = state.runtime_seconds
        self._is_cancelled = state.is_cancelled

    def _save(self) -> bool:
        """Save the position. Returns True if the job was cancelled meanwhile."""
        if not _has_position():
            return False
        here = sync_client.current()
        dialect = here.detection.dialect(time())
        return iteration.save(
            here.pool,
            self._own_jid(),
            executions=self._executions,
            cursor=dumps(self._cursor, dialect.float_text, "cursor"),
            runtime_text=score_text(self._runtime_seconds),
            keep_first_ttl=dialect.iteration_keeps_first_ttl,
        )

    def _save_or_log(self) -> bool:
        """
        Like `_save`, but logs errors, and then returns False. Like other jobs, this one goes on while Redis is down.
        """
        try:
            return self._save()
        except SidekiqError as error:
            what = "could not save the job's position; if it is stopped now, it resumes further back"
            log.warning("%s: %s%s", what, error, rights_hint(error))
            return False

    def _save_unless_redis_is_away(self) -> None:
        """
        Like `_save`, but ignores errors that pass by themselves, which `_save_or_log` has just logged: a failed attempt
        would end a job without retries for good. It resumes from where its position was saved last.
        """
        try:
            self._save()
        except RedisError as error:
            if error.is_lasting:
                raise

    def _clear_or_log(self) -> None:
        """Delete the position after the last item. An error is only logged, because the items must not run again."""
        if not _has_position():
            return
        try:
            iteration.clear(sync_client.current().pool, self._own_jid())
        except SidekiqError as error:
            what = "could not delete the job's saved position, which expires within 30 days"
            log.warning("%s: %s%s", what, error, rights_hint(error))

    def _now(self) -> float:
        """Seconds on a monotonic clock."""
        return monotonic()

    def _own_jid(self) -> str:
        if self.jid is None:
            raise JobDeclarationError(f"{type(self).__name__} has no jid; enqueue it, or run it by perform_inline")
        return self.jid


def cancel(jid: str) -> int:
    """
    Ask an iterable job to stop for good, whether it is waiting, running or in the retry set, here or in Ruby 7.3.3
    and later.

    Returns:
        When it was first asked to stop, in whole epoch seconds.

    Raises:
        TypeError: *jid* is not the id of a job.
    """
    if not isinstance(jid, str) or not jid:
        raise TypeError(f"jid is {jid!r}; give the id of a job")
    here = sync_client.current()
    now = time()
    keep = here.detection.dialect(now).iteration_keeps_first_ttl
    return iteration.cancel(here.pool, jid, now=int(now), keep_first_ttl=keep)


def _has_position() -> bool:
    """False in the testing modes: a test may have no Redis, and runs a job only once."""
    return not program.captures_pushes()


def _warn_if_slow(seconds: float) -> None:
    """Warn of an item that a stop of the worker might have cut off. Source: Sidekiq 8.1.7, `verify_iteration_time`."""
    limit = program.iteration_limits.item_seconds
    if limit is not None and seconds > limit:
        log.warning(
            "An item took %.2f s, more than the %g s that a stop of this worker waits for it. Then it is cut off and "
            "starts over in another worker: make the items smaller, or the timeout (-t) longer",
            seconds,
            limit,
        )
