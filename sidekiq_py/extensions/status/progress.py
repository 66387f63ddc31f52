"""
Writes the progress of a running job, at most ten times a second. The last report is always written.

A job that reports more often does not wait: its last report is kept and written a moment later by a thread of this
process, or by the script that settles the job. Each write also reads whether the job was asked to stop.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.errors import ArgumentError, RedisError, RedisReplyError, Stopped
from sidekiq_py.extension import Command, Payload, Verb
from sidekiq_py.extensions.status import keys
from sidekiq_py.logs import log
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import raise_first
from sidekiq_py.redis_access.connection.scripts import is_unknown
from sidekiq_py.redis_access.job_path import settle_script
from sidekiq_py.wire.payload import shown

AUDIENCES = "progress"
# The fields that audiences receive.
_FOR_ALL = ("at", "total", "message")
LEAST_PAUSE_SECONDS = 0.1
_DEFAULT_TOTAL = 100
# Fields that a job may not write itself. Source: sidekiq-status 4.0.0, storage.rb, `RESERVED_FIELDS`.
_RESERVED = frozenset(
    {"status", "stop", "enqueued_at", "started_at", "updated_at", "ended_at", "jid", "worker", "args"}
)


class Audience(Protocol):
    """
    Receives the progress of jobs. An extension provides them as its entries of the listing `AUDIENCES`.
    """

    def wants(self, payload: Payload) -> bool:
        """True if it wants the progress of this run."""

    def command(self, payload: Payload, said: Mapping[str, Any]) -> Command:
        """
        The command that writes those of `at`, `total` and `message` that are new. The last one is sent when the run
        ends.
        """


class Run:
    """
    A run that reports progress.

    Args:
        payload: This run's own payload dict.
        has_status: True if the job has a status hash.
        audiences: The other receivers of its progress.

    Attributes:
        pending: Fields that were reported and not written yet.
        was_stopped: True if `Stopped` was raised in it.
    """

    def __init__(self, payload: Payload, *, has_status: bool, audiences: Sequence[Audience]) -> None:
        self.payload = payload
        self.jid = str(payload.get("jid"))
        self.has_status = has_status
        self.audiences = audiences
        self.lock = threading.Lock()
        self.pending: dict[str, Any] = {}
        self.next_at = 0.0
        self.total: float = _DEFAULT_TOTAL
        self.stop_is_asked = False
        self.was_stopped = False

    @property
    def is_shown(self) -> bool:
        """True if anything receives its progress; otherwise reports are dropped."""
        return self.has_status or bool(self.audiences)

    def commands(self, fields: Mapping[str, Any], now: float, *, verb: Verb = keys.WRITE) -> list[Command]:
        """The commands that write *fields*."""
        found = [keys.write(self.jid, now, dict(fields), verb=verb)] if self.has_status else []
        said = {name: fields[name] for name in _FOR_ALL if name in fields}
        if said:
            found += [one.command(self.payload, said) for one in self.audiences]
        return found


class Runs:
    """
    The runs of this process that report progress.

    Args:
        handle_run: Called with the payload of a run whose end the extension must handle.
        monotonic: A monotonic clock, in seconds.
    """

    def __init__(self, handle_run: Callable[[Payload], None], *, monotonic: Callable[[], float] = monotonic) -> None:
        self._handle_run = handle_run
        self._monotonic = monotonic
        self._runs: dict[str, Run] = {}
        self._late: set[str] = set()
        # A time limit may strike in a job that takes it. `with` on the Condition itself, which is written in Python,
        # would then leave it taken.
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._has_warned = False

    def begin(self, payload: Payload) -> None:
        """Register a job that is declared with `status=True` and is about to run. Fails no job."""
        run = Run(payload, has_status=True, audiences=_audiences(payload))
        self._runs[run.jid] = run
        self._handle_run(payload)
        working = {"status": "working", "started_at": int(now_seconds())}
        try:
            if _write(_pool(), run, working, read="jid") is None:
                # The status has expired while the job waited, for its time, its turn or its retry.
                # Another program may have pushed arguments that no push from here carries, such as 1e400.
                with suppress(ArgumentError):
                    _write(_pool(), run, {**_first_fields(payload), **working})
        except RedisError as error:
            self._failed(run, error)

    def of(self, job: Any) -> Run:
        """The run of the current job. The first call asks Redis whether the job has a status."""
        run = self._runs.get(job.jid)
        # A job that a stop returned to its queue may run here again.
        if run is None or run.payload is not job.payload:
            # In a test that captures pushes nothing reads the status, and there may be no Redis to ask.
            is_test = program.captures_pushes()
            has_status = not is_test and self._has_status(job.jid)
            audiences = () if is_test else _audiences(job.payload)
            self._runs[job.jid] = run = Run(job.payload, has_status=has_status, audiences=audiences)
            self._handle_run(job.payload)
            if has_status:
                run.pending = {"status": "working", "started_at": int(now_seconds())}
        return run

    def leave(self, payload: Payload) -> tuple[Run, dict[str, Any]] | None:
        """
        Remove a run that has ended.

        Returns:
            The run, and its fields that were not written yet; None if it is unknown.
        """
        run = self._runs.pop(str(payload.get("jid")), None)
        if run is None:
            return None
        with run.lock:
            # From now on the thread finds nothing to write.
            pending, run.pending = run.pending, {}
        return run, pending

    def forget(self, payload: Payload) -> None:
        """Drop a run that is over without being settled."""
        run = self._runs.get(str(payload.get("jid")))
        if run is not None and run.payload is payload:
            self.leave(payload)

    def say(self, run: Run, fields: dict[str, Any]) -> None:
        """
        Write *fields*, now or a moment later.

        Raises:
            Stopped: The job was asked to stop.
        """
        if not run.is_shown:
            return
        with run.lock:
            run.pending.update(fields)
            if self._monotonic() >= run.next_at:
                self._flush(run)
            is_late = bool(run.pending)
        if is_late:
            self._later(run)
        if run.stop_is_asked:
            run.was_stopped = True
            raise Stopped(f"the job {run.jid} was asked to stop")

    def _has_status(self, jid: str) -> bool:
        try:
            return bool(_pool().command("EXISTS", keys.of(jid)))
        except RedisReplyError as error:
            if error.is_about_server:
                raise
            self.warn_once(error)
            return False

    def _failed(self, run: Run, error: RedisError) -> None:
        """A status could not be written, which fails no job."""
        self.warn_once(error)
        if isinstance(error, RedisReplyError) and not error.is_about_server:
            # The user lacks rights, or another program has overwritten a key: the job's end would be refused, too.
            run.has_status, run.audiences, run.pending = False, (), {}

    def warn_once(self, error: RedisError) -> None:
        """Log once that a status could not be written."""
        if not self._has_warned:
            self._has_warned = True
            log.warning("the status of jobs cannot be written: %s", error)

    def _flush(self, run: Run) -> None:
        fields, run.pending = run.pending, {}
        run.next_at = self._monotonic() + LEAST_PAUSE_SECONDS
        try:
            run.stop_is_asked = _write(_pool(), run, fields) == b"true"
        except BaseException as error:
            run.pending = {**fields, **run.pending}
            if not isinstance(error, RedisError):
                raise
            self._failed(run, error)

    def _later(self, run: Run) -> None:
        with self._lock:
            self._late.add(run.jid)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._flush_late, name="sidekiq.status", daemon=True)
                self._thread.start()
            self._wake.notify()

    def _flush_late(self) -> None:
        """The thread's loop; it ends after a while with nothing to write."""
        while True:
            with self._lock:
                # A report may come just when the wait is over.
                if not self._late and not self._wake.wait(5) and not self._late:
                    self._thread = None
                    return
                late, self._late = self._late, set()
            threading.Event().wait(LEAST_PAUSE_SECONDS)
            too_soon = {jid for jid in late if not self._is_flushed(jid)}
            if too_soon:
                with self._lock:
                    self._late |= too_soon

    def _is_flushed(self, jid: str) -> bool:
        """Write a run's pending fields. Returns False if the job has just written itself, so that they must wait."""
        run = self._runs.get(jid)
        if run is None:
            return True
        with run.lock:
            if run.pending and self._monotonic() < run.next_at:
                return False
            if run.pending:
                self._flush(run)
        return True


def progress(runs: Runs, job: Any) -> Callable[..., None]:
    """`current_job().progress`."""

    def progress(
        at: float | None = None, total: float | None = None, message: str | None = None, **fields: Any
    ) -> None:
        """
        Report the job's progress in its status.

        Args:
            at: How much is done.
            total: How much there is to do; 100 until it is given.
            message: What the job is doing.
            fields: Texts and numbers of your own.

        Raises:
            ValueError: *at* or *total* is not a number, or a field is reserved for the status itself.
            Stopped: The job was asked to stop. Do not catch it: the job then ends without a retry.
        """
        try:
            run = runs.of(job)
        except RedisError as error:
            runs.warn_once(error)
        else:
            runs.say(run, _fields(run, at, total, message, fields))

    return progress


def aprogress(runs: Runs, job: Any) -> Callable[..., Awaitable[None]]:
    """`current_job().aprogress`, for `async def` jobs."""
    say = progress(runs, job)

    async def aprogress(
        at: float | None = None, total: float | None = None, message: str | None = None, **fields: Any
    ) -> None:
        """`progress`, awaited."""
        await asyncio.to_thread(say, at, total, message, **fields)

    return aprogress


def _fields(
    run: Run, at: float | None, total: float | None, message: str | None, fields: dict[str, Any]
) -> dict[str, Any]:
    """Source: sidekiq-status 4.0.0, worker.rb, `at` and `total`."""
    taken = _RESERVED & fields.keys()
    if taken:
        raise ValueError(f"progress() cannot set {min(taken)!r}, which the status itself keeps; take another name")
    whole = run.total if total is None else total
    try:
        percent = int((0 if at is None else at) / whole * 100) if whole else 0
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"progress() cannot compute {shown(at)} of {shown(whole)}; give at= and total= as numbers"
        ) from error
    run.total = whole
    said: dict[str, Any] = {}
    if at is not None:
        said = {"at": at, "total": whole, "pct_complete": percent, "message": message or ""}
    elif total is not None:
        said["total"] = total
    if message is not None:
        said["message"] = message
    return {**said, **fields}


def _pool() -> Pool:
    return sync_client.current().pool


def _audiences(payload: Payload) -> list[Audience]:
    found = (audience for extension in program.extensions for audience in extension.entries(AUDIENCES))
    return [audience for audience in found if audience.wants(payload)]


def _first_fields(payload: Payload) -> dict[str, Any]:
    from sidekiq_py.api.job_record import JobRecord  # loads all of the data API

    record, now = JobRecord.of_payload(payload), now_seconds()
    pushed_at = record.enqueued_at
    dialect = sync_client.current().detection.dialect(now)
    return keys.first_fields(record, dialect, now if pushed_at is None else pushed_at.timestamp())


def _write(pool: Pool, run: Run, fields: dict[str, Any], *, read: str = "stop") -> bytes | None:
    """Write, and read a field, in one round trip; by default whether the job should stop."""
    commands = run.commands(fields, now_seconds())
    if not commands:
        return None
    call, full_call = settle_script.write_calls(commands)
    reading = ("HGET", keys.of(run.jid), read)

    def send(link: Any) -> bytes | None:
        replies = link.batch([call, reading])
        if is_unknown(replies[0]):
            replies = link.batch([full_call, reading])
        found: bytes | None = raise_first(replies)[1]
        return found

    return pool.run(send)
