"""
The jobs of `ruby_fixtures/jobs.rb` in Python, with the same names and the same actions.

Python workers load it with `-r interop_tests.support.python_jobs`. A job does what its first argument says; a line in a
ledger says which language ran it.
"""

import functools
import json
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, cast

import redis

import sidekiq_py as sidekiq

POLL_SECONDS = 0.01

# A test that compares bytes sets the release to write for. Without it, the worker detects it from the Ruby processes.
if "FIXTURE_SIDEKIQ_VERSION" in os.environ:
    sidekiq.configure(sidekiq_version=os.environ["FIXTURE_SIDEKIQ_VERSION"])


class FixtureError(Exception):
    """The error that a job raises when it is told to."""


@functools.cache
def _redis() -> redis.Redis:
    return redis.Redis.from_url(os.environ["REDIS_URL"])


def _ok(*_ignored: Any) -> None:
    pass


def _raise(message: str = "boom", *_ruby_only: Any) -> NoReturn:
    raise FixtureError(message)


def _raise_until(counter_key: str, times: int, ledger_key: str, entry: Any) -> None:
    run = int(_redis().incr(counter_key))
    if run <= times:
        raise FixtureError(f"run {run} of {times} that fail")
    _ledger(ledger_key, entry)


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def _wait_for(key: str) -> None:
    while not _redis().exists(key):
        time.sleep(POLL_SECONDS)


def _write(key: str, value: Any) -> None:
    _redis().set(key, value)


def _ledger(key: str, entry: Any) -> None:
    running = sidekiq.current_job()
    assert running is not None
    line = {"entry": entry, "jid": running.jid, "by": "python", "pid": os.getpid()}
    _redis().rpush(key, json.dumps(line))


def _ledger_and_sleep(key: str, entry: Any, seconds: float) -> None:
    _ledger(key, entry)
    _sleep(seconds)


def _sleep_and_ledger(key: str, entry: Any, seconds: float) -> None:
    _sleep(seconds)
    _ledger(key, entry)


def _ledger_and_wait_for(key: str, entry: Any, gate_key: str) -> None:
    _ledger(key, entry)
    _wait_for(gate_key)


def _echo(key: str, *arguments: Any) -> None:
    _redis().rpush(key, json.dumps(arguments))


def _exit(code: int = 1) -> NoReturn:
    os._exit(code)


def _enqueue(class_name: str, arguments: list[Any], queue: str = "default") -> None:
    sidekiq.Client().push({"class": class_name, "args": arguments, "queue": queue})


DEEDS: dict[str, Callable[..., None]] = {
    "ok": _ok,
    "raise": _raise,
    "raise_until": _raise_until,
    "sleep": _sleep,
    "wait_for": _wait_for,
    "write": _write,
    "ledger": _ledger,
    "ledger_and_sleep": _ledger_and_sleep,
    "sleep_and_ledger": _sleep_and_ledger,
    "ledger_and_wait_for": _ledger_and_wait_for,
    "echo": _echo,
    "exit": _exit,
    "enqueue": _enqueue,
}


@sidekiq.job(name="FixtureJob")
def fixture_job(deed: str, *rest: Any) -> None:
    """Do what *deed* says, with Sidekiq's default options."""
    DEEDS[deed](*rest)


@sidekiq.job(name="RetryFalseJob", retry=False)
def retry_false_job(deed: str, *rest: Any) -> None:
    """Never retried, and discarded when it fails."""
    DEEDS[deed](*rest)


@sidekiq.job(name="RetryZeroJob", retry=0)
def retry_zero_job(deed: str, *rest: Any) -> None:
    """Dead at its first failure."""
    DEEDS[deed](*rest)


@sidekiq.job(name="RetryThreeJob", retry=3)
def retry_three_job(deed: str, *rest: Any) -> None:
    """Runs at most four times."""
    DEEDS[deed](*rest)


@sidekiq.job(name="RetrySoonJob", retry=2)
def retry_soon_job(deed: str, *rest: Any) -> None:
    """Runs at most three times, as soon after each other as the jitter allows."""
    DEEDS[deed](*rest)


@retry_soon_job.retry_in
def _one_second(_count: int, _error: BaseException, _payload: dict[str, Any]) -> int:
    return 1


@sidekiq.job(name="RetryInJob")
def retry_in_job(deed: str, *rest: Any) -> None:
    """Retried after 100, 200, 300, ... seconds."""
    DEEDS[deed](*rest)


@retry_in_job.retry_in
def _hundreds(count: int, _error: BaseException, _payload: dict[str, Any]) -> int:
    return (count + 1) * 100


@sidekiq.job(name="BacktraceJob", backtrace=True)
def backtrace_job(deed: str, *rest: Any) -> None:
    """Keeps its backtrace in the payload."""
    DEEDS[deed](*rest)


@sidekiq.job(name="ExhaustedJob", retry=0)
def exhausted_job(deed: str, *rest: Any) -> None:
    """Writes to the list `fixture:exhausted` when its retries are exhausted."""
    DEEDS[deed](*rest)


@exhausted_job.retries_exhausted
def _say_that_it_is_over(payload: dict[str, Any], error: BaseException) -> None:
    line = {"jid": payload["jid"], "error": str(error), "by": "python"}
    _redis().rpush("fixture:exhausted", json.dumps(line))


@sidekiq.job(name="NeverDeadJob", retry=0, dead=False)
def never_dead_job(deed: str, *rest: Any) -> None:
    """Never goes to the dead set."""
    DEEDS[deed](*rest)


@sidekiq.job(name="RetryQueueJob", retry_queue="slow")
def retry_queue_job(deed: str, *rest: Any) -> None:
    """Retried in a separate queue."""
    DEEDS[deed](*rest)


@sidekiq.job(name="PythonJob", queue="python")
def python_job(deed: str, *rest: Any) -> None:
    """A job that Ruby knows by name and only enqueues."""
    DEEDS[deed](*rest)


@sidekiq.job(name="PythonRetryTwoJob", queue="python", retry=2)
def python_retry_two_job(deed: str, *rest: Any) -> None:
    """Like `PythonJob`, with two retries."""
    DEEDS[deed](*rest)


@sidekiq.job(name="Billing::PythonInvoiceJob", queue="python")
def python_invoice_job(deed: str, *rest: Any) -> None:
    """A job whose name contains a namespace."""
    DEEDS[deed](*rest)


@sidekiq.job(name="PythonOnlyJob")
def python_only_job(deed: str, *rest: Any) -> None:
    """A job for which Ruby has no class."""
    DEEDS[deed](*rest)


class WalkJob(sidekiq.IterableJob, name="WalkJob"):
    """Iterates over numbers with cursors of a *kind*; see `ruby_fixtures/jobs.rb` for what else it does."""

    def build_enumerator(
        self, kind: str, count: int, key: str, gate_key: str, *, cursor: Any
    ) -> Iterable[tuple[int, Any]]:
        """The numbers from the cursor on."""
        if kind == "index":
            return self.array_enumerator(range(count), cursor)
        first = 0 if cursor is None else self._number_at(cursor)
        return ((number, self._cursor_at(kind, number)) for number in range(first, count))

    def each_iteration(self, number: int, kind: str, count: int, key: str, gate_key: str) -> None:
        """Handle one number."""
        self._note(number)
        if number == _number_in("fixture:fail_at"):
            raise FixtureError(f"at {number}")
        while number == _number_in("fixture:leave_at") and not self.interrupted():
            time.sleep(POLL_SECONDS)
        while number == _number_in("fixture:hang_at") and not _redis().exists(gate_key):
            time.sleep(POLL_SECONDS)

    def on_start(self) -> None:
        """Note the first run."""
        self._note("start")

    def on_resume(self) -> None:
        """Note a later run."""
        self._note("resume")

    def on_stop(self) -> None:
        """Note the end of a run."""
        self._note("stop")

    def on_cancel(self) -> None:
        """Note that the job was cancelled."""
        self._note("cancel")

    def on_complete(self) -> None:
        """Note that the job has completed."""
        self._note("complete")

    def _note(self, what: int | str) -> None:
        kind, _count, key, _gate_key = self.arguments
        _ledger(key, [kind, what])

    @staticmethod
    def _cursor_at(kind: str, number: int) -> Any:
        return f"n°{number}" if kind == "text" else [number, "of", {"page": number / 2}]

    @staticmethod
    def _number_at(cursor: Any) -> int:
        return int(cursor.removeprefix("n°")) if isinstance(cursor, str) else int(cursor[0])


def _number_in(key: str) -> int | None:
    value = cast(bytes | None, _redis().get(key))
    return None if value is None else int(value)
