"""
Bulk actions that run in the background, visible to every process, whichever one runs them.

    run = BulkRuns().start("ada", "retry", "retry", total=RetrySet().size)
    run.finish(RetrySet().retry_all(run.report, stop=run.should_stop))
"""

import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sidekiq_py.api.arguments import count_of
from sidekiq_py.api.bulk import BulkResult
from sidekiq_py.api.job_record import moment
from sidekiq_py.api.source import OfRedis
from sidekiq_py.clock import now_seconds
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.reads import bulk_runs
from sidekiq_py.wire.number_text import to_finite

# A run that has not reported for this long has lost its process; it reports at least every five seconds.
_SILENT_SECONDS = 30.0
_EXCHANGE_SECONDS = 0.5
_MOST_RUNS = 50


class BulkStatus(StrEnum):
    """The status of a run."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    """A user asked it to stop."""
    FAILED = "failed"
    """An error ended it; see `BulkState.error`."""
    LOST = "lost"
    """Its process has not reported for half a minute, so it has ended. What it did up to then is done."""


@dataclass(frozen=True, slots=True)
class BulkState:
    """
    The current state of a run.

    Args:
        id: Its id.
        user: Who started it.
        action: A verb, such as `retry`.
        place: The set or queue whose jobs it changes.
        wanted: A description of the jobs it acts on; empty for all.
        total: The number of jobs at the start, as far as they were counted.
        done: The number of jobs processed so far: moved, gone or refused.
        moved: The number of jobs it has moved or deleted.
        gone: The number of jobs that were no longer there.
        refused: The number of jobs that could not be moved and stay where they are.
        status: Its status.
        error: The error that ended it, or the first refusal.
    """

    id: str
    user: str
    action: str
    place: str
    wanted: str
    total: int
    done: int
    moved: int
    gone: int
    refused: int
    status: BulkStatus
    error: str
    started_at: datetime
    updated_at: datetime


class BulkRun:
    """
    A run, as seen by the code that performs it. Created by `BulkRuns.start`.

    Args:
        run_id: Its id.
        pool: The Redis that keeps its state.
    """

    def __init__(self, run_id: str, pool: Pool) -> None:
        self.id = run_id
        self._pool = pool
        self._done = 0
        self._exchanged_at = 0.0
        self.is_stopped = False

    def __repr__(self) -> str:
        return f"<BulkRun {self.id}>"

    def report(self, done: int) -> None:
        """Report how many jobs have been processed; pass it as `progress=` of the bulk calls."""
        self._done = done
        self._exchange()

    def should_stop(self) -> bool:
        """
        True once a user has asked to stop. Pass it as `stop=` of the bulk calls. Asks Redis twice a second at most.
        """
        self._exchange()
        return self.is_stopped

    def finish(self, result: BulkResult | None = None, error: Exception | None = None) -> None:
        """Report how it ended."""
        status = BulkStatus.STOPPED if self.is_stopped else BulkStatus.FINISHED
        fields: dict[str, Any] = {"status": (BulkStatus.FAILED if error else status).value, "done": self._done}
        if result is not None:
            fields |= {
                "moved": result.moved,
                "gone": result.gone,
                "refused": result.refused,
                "done": result.moved + result.gone + result.refused,
            }
            error = error or next((reason for _, reason in result.errors), None)
        if error is not None:
            fields["error"] = f"{type(error).__name__}: {error}"[:500].encode(errors="backslashreplace")
        bulk_runs.update(self._pool, self.id, {**fields, "updated_at": now_seconds()})

    def _exchange(self) -> None:
        now = time.monotonic()
        if now - self._exchanged_at < _EXCHANGE_SECONDS:
            return
        self._exchanged_at = now
        fields = {"done": self._done, "updated_at": now_seconds()}
        self.is_stopped = bulk_runs.update(self._pool, self.id, fields) or self.is_stopped


class BulkRuns(OfRedis):
    """
    The runs of the last day.

    Args:
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*.
    """

    def start(self, user: str, action: str, place: str, *, wanted: str = "", total: int = 0) -> BulkRun:
        """Register a new run; arguments as for `BulkState`."""
        run_id, now = secrets.token_hex(8), now_seconds()
        fields = {
            "user": user,
            "action": action,
            "place": place,
            "wanted": wanted,
            "total": total,
            "done": 0,
            "status": BulkStatus.RUNNING.value,
            "started_at": now,
            "updated_at": now,
        }
        bulk_runs.start(self._pool, run_id, now, fields)
        return BulkRun(run_id, self._pool)

    def find(self, run_id: str) -> BulkState | None:
        """The run with this id; None if there is none."""
        fields = bulk_runs.read(self._pool, run_id)
        return _state(run_id, fields) if fields else None

    def latest(self, limit: int = _MOST_RUNS) -> list[BulkState]:
        """
        The latest runs, newest first.

        Raises:
            ValueError: *limit* is below 1.
        """
        found = bulk_runs.latest(self._pool, count_of(limit, "limit"))
        return [_state(run_id, fields) for run_id, fields in found]

    def stop(self, run_id: str) -> bool:
        """Ask a run to stop, which it does before its next slice of jobs. Returns False if there is no such run."""
        return bulk_runs.ask_to_stop(self._pool, run_id)


def _state(run_id: str, fields: dict[str, str]) -> BulkState:
    def number(name: str) -> float:
        return to_finite(fields.get(name))

    updated_at = number("updated_at")
    try:
        status = BulkStatus(fields.get("status", ""))
    except ValueError:
        status = BulkStatus.FAILED
    if status is BulkStatus.RUNNING and now_seconds() - updated_at > _SILENT_SECONDS:
        status = BulkStatus.LOST
    return BulkState(
        id=run_id,
        user=fields.get("user", ""),
        action=fields.get("action", ""),
        place=fields.get("place", ""),
        wanted=fields.get("wanted", ""),
        total=int(number("total")),
        done=int(number("done")),
        moved=int(number("moved")),
        gone=int(number("gone")),
        refused=int(number("refused")),
        status=status,
        error=fields.get("error", ""),
        started_at=moment(number("started_at")) or datetime.fromtimestamp(0, UTC),
        updated_at=moment(updated_at) or datetime.fromtimestamp(0, UTC),
    )
