"""`Manager`: helpers with which tests query workers and wait for them."""

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, TextIO

from sidekiq_celery import exceptions, states
from sidekiq_celery.result import ResultSet
from sidekiq_celery.utils.text import truncate
from sidekiq_celery.utils.time import humanize_seconds

__all__ = ("Manager", "ManagerMixin", "Sentinel")

_ANSWER_SECONDS = 0.2


class Sentinel(Exception):
    """Raised while the awaited condition is not met yet."""


class ManagerMixin:
    """The methods of `Manager`, for classes that have an `app`."""

    app: Any

    def _init_manager(
        self,
        block_timeout: float = 30 * 60.0,
        no_join: bool = False,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self.stdout = stdout or sys.stdout
        self.stderr = stderr or sys.stderr
        self.connerrors: Any = self.app.connection().recoverable_connection_errors
        self.block_timeout = block_timeout
        self.no_join = no_join

    def remark(self, s: str, sep: str = "-") -> None:
        """Print a line."""
        print(f"{sep}{s}", file=self.stdout)

    def warn(self, s: str) -> None:
        """Print a line to the error output."""
        print(s, file=self.stderr)

    # ---- waiting

    def wait_for(
        self,
        fun: Callable[..., Any],
        catch: Any,
        desc: str = "thing",
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        errback: Callable[[BaseException, float, int], Any] | None = None,
        max_retries: int = 10,
        interval_start: float = 0.1,
        interval_step: float = 0.5,
        interval_max: float = 5.0,
        emit_warning: bool = False,
        **options: Any,
    ) -> Any:
        """
        Call *fun* until it does not raise, and return its result.

        Args:
            catch: The exceptions that mean "not yet". The last one is raised when no retries are left.
            desc: Describes what is awaited.
            errback: Called with each such exception, the seconds until the next call, and the number of earlier calls.
        """

        def on_error(error: BaseException, intervals: Iterator[float], retries: int) -> float:
            seconds = next(intervals)
            if emit_warning:
                when = humanize_seconds(seconds, "in", " ", microseconds=True)
                self.warn(f"Still waiting for {desc}.  Trying again {when}: {error!r}")
            if errback is not None:
                errback(error, seconds, retries)
            return seconds

        return self.retry_over_time(
            fun,
            catch,
            args=args,
            kwargs=kwargs or {},
            errback=on_error,
            max_retries=max_retries,
            interval_start=interval_start,
            interval_step=interval_step,
            interval_max=interval_max,
            **options,
        )

    def ensure_not_for_a_while(
        self,
        fun: Callable[..., Any],
        catch: Any,
        desc: str = "thing",
        max_retries: int = 20,
        interval_start: float = 0.1,
        interval_step: float = 0.02,
        interval_max: float = 1.0,
        emit_warning: bool = False,
        **options: Any,
    ) -> None:
        """
        Call *fun* several times. Each call has to raise *catch*.

        Raises:
            AssertionError: A call did not raise.
        """
        try:
            self.wait_for(
                fun,
                catch,
                desc=desc,
                max_retries=max_retries,
                interval_start=interval_start,
                interval_step=interval_step,
                interval_max=interval_max,
                emit_warning=emit_warning,
                **options,
            )
        except catch:
            return
        raise AssertionError(f"Should not have happened: {desc}")

    def retry_over_time(self, *args: Any, **kwargs: Any) -> Any:
        """kombu's `retry_over_time`."""
        from kombu.utils.functional import retry_over_time

        return retry_over_time(*args, **kwargs)

    def join(self, r: Any, propagate: bool = False, max_retries: int = 10, **kwargs: Any) -> None:
        """
        Wait for *r*, a result or a set of results.

        Raises:
            AssertionError: Some results did not arrive.
        """
        if self.no_join:
            return
        wanted = r if isinstance(r, ResultSet) else self.app.ResultSet([r])
        received: list[Any] = []
        for _ in range(max_retries) if max_retries else count():
            received.clear()
            try:
                wanted.get(callback=lambda task_id, value: received.append(task_id), propagate=propagate, **kwargs)
                return
            except (TimeoutError, exceptions.TimeoutError) as error:
                missing = truncate(", ".join(self.missing_results(wanted)))
                self.remark(
                    f"Still waiting for {len(wanted) - len(received)}/{len(wanted)}: [{missing}]: {error!r}", "!"
                )
            except self.connerrors as error:
                self.remark(f"join: connection lost: {error!r}", "!")
        raise AssertionError("Test failed: Missing task results")

    def missing_results(self, r: Any) -> list[str]:
        """The ids of results that have not been read yet."""
        return [result.id for result in r if result.id not in result.backend._cache]

    def wait_until_idle(self) -> None:
        """Empty the queues, and wait until no task is running."""
        while self.app.control.purge():
            pass
        self.wait_for(self._raise_unless_idle, (Sentinel,), desc="workers to be idle", max_retries=100)

    def _raise_unless_idle(self) -> None:
        # Workers reply within milliseconds. A worker that does not must not delay every test.
        if any((self.inspect(timeout=_ANSWER_SECONDS).active() or {}).values()):
            raise Sentinel

    # ---- querying workers

    def inspect(self, timeout: float = 3.0) -> Any:
        """Return an `Inspect` for all workers."""
        return self.app.control.inspect(timeout=timeout)

    def query_tasks(self, ids: Collection[str], timeout: float = 0.5) -> Iterator[tuple[str, Any]]:
        """Yield what each worker knows about *ids*."""
        yield from (self.inspect(timeout).query_task(*ids) or {}).items()

    def query_task_states(self, ids: Collection[str], timeout: float = 0.5) -> dict[str, set[str]]:
        """Map `active`, `reserved` and so on to the ids of the tasks in that state."""
        found: dict[str, set[str]] = defaultdict(set)
        for _, reply in self.query_tasks(ids, timeout=timeout):
            for task_id, (state, _) in reply.items():
                found[state].add(task_id)
        return found

    def is_received(self, ids: Collection[str], **kwargs: Any) -> bool:
        """True if workers have received all of *ids*."""
        return self._are_among(["reserved", "active", "ready"], ids, **kwargs)

    def is_accepted(self, ids: Collection[str], **kwargs: Any) -> bool:
        """True if all of *ids* are running."""
        return self._are_among(["active", "ready"], ids, **kwargs)

    def _are_among(self, wanted: Collection[str], ids: Collection[str], timeout: float = 0.5) -> bool:
        found = self.query_task_states(ids, timeout=timeout)
        known = set().union(*(found[state] for state in wanted))
        return known.issuperset(ids)

    @staticmethod
    def is_result_task_in_progress(results: Any, **kwargs: Any) -> bool:
        """True if the tasks of all *results* have started or succeeded."""
        return all(result.state in (states.STARTED, states.SUCCESS) for result in results)

    # ---- assertions

    def true_or_raise(self, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """
        Call *fun* and return its result.

        Raises:
            Sentinel: The result is false.
        """
        found = fun(*args, **kwargs)
        if not found:
            raise Sentinel
        return found

    def assert_accepted(
        self, ids: Any, interval: float = 0.5, desc: str = "waiting for tasks to be accepted", **policy: Any
    ) -> Any:
        """Wait until all of *ids* are running."""
        return self.assert_task_worker_state(self.is_accepted, ids, interval=interval, desc=desc, **policy)

    def assert_received(
        self, ids: Any, interval: float = 0.5, desc: str = "waiting for tasks to be received", **policy: Any
    ) -> Any:
        """Wait until workers have received all of *ids*."""
        return self.assert_task_worker_state(self.is_received, ids, interval=interval, desc=desc, **policy)

    def assert_result_tasks_in_progress_or_completed(
        self,
        async_results: Any,
        interval: float = 0.5,
        desc: str = "waiting for tasks to be started or completed",
        **policy: Any,
    ) -> Any:
        """Wait until all tasks have started, according to their results."""
        return self.assert_task_state_from_result(
            self.is_result_task_in_progress, async_results, interval=interval, desc=desc, **policy
        )

    def assert_task_state_from_result(
        self, fun: Callable[..., Any], results: Any, interval: float = 0.5, **policy: Any
    ) -> Any:
        """Wait until *fun* returns true for *results*."""
        return self.wait_for(partial(self.true_or_raise, fun, results, timeout=interval), (Sentinel,), **policy)

    assert_task_worker_state = assert_task_state_from_result


class Manager(ManagerMixin):
    """
    Helpers for tests with workers.

    Args:
        app: The app whose workers are tested.
        kwargs: `block_timeout`, `no_join`, `stdout`, `stderr`.
    """

    def __init__(self, app: Any, **kwargs: Any) -> None:
        self.app = app
        self._init_manager(**kwargs)
