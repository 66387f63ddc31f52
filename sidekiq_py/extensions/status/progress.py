"""
What a running job writes: at most ten times a second, always including the last.

A job that says more waits for nothing: what it said last is kept and written a moment later by a thread of this
process, or by the script that ends the job. Each write reads along whether somebody has asked the job to stop.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.errors import RedisError, Stopped
from sidekiq_py.extension import Command
from sidekiq_py.extensions.status import keys
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import raise_first
from sidekiq_py.redis_access.job_path import settle_script

Payload = dict[str, Any]

_log = logging.getLogger("sidekiq")

AUDIENCES = "progress"
# What those hear who are no status.
_FOR_ALL = ("at", "total", "message")
LEAST_PAUSE_SECONDS = 0.1
_DEFAULT_TOTAL = 100
# What a job may not write as a field of its own. Source: sidekiq-status 4.0.0, storage.rb, `RESERVED_FIELDS`.
_RESERVED = frozenset(
    {"status", "stop", "enqueued_at", "started_at", "updated_at", "ended_at", "jid", "worker", "args"}
)


class Audience(Protocol):
    """
    Who else is told how far jobs are: an extension has them as its entries of the listing `AUDIENCES`.
    """

    def wants(self, payload: Payload) -> bool:
        """Whether it wants to hear of this run."""

    def command(self, payload: Payload, said: Mapping[str, Any]) -> Command:
        """What writes `at`, `total` and `message`, those that are new. The last of it rides with the run's end."""


class Run:
    """
    One run that writes its status.

    Args:
        payload: The dict of that very run.
        has_status: It has a hash.
        audiences: Who else wants to hear of it.

    Attributes:
        pending: What was said and not written yet.
        was_stopped: `Stopped` was raised in it.
    """

    __slots__ = (
        *("audiences", "has_status", "jid", "lock", "next_at", "payload", "pending", "stop_is_asked", "total"),
        "was_stopped",
    )

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
        """Somebody wants to see it; else what it says is dropped."""
        return self.has_status or bool(self.audiences)

    def commands(self, fields: Mapping[str, Any], now: float) -> list[Command]:
        """Those that write *fields*."""
        found = [keys.write(self.jid, now, dict(fields))] if self.has_status else []
        said = {name: fields[name] for name in _FOR_ALL if name in fields}
        if said:
            found += [one.command(self.payload, said) for one in self.audiences]
        return found


class Runs:
    """
    The runs of this process that write their status.

    Args:
        mind: Called with the payload of a run whose end is to be heard of.
        monotonic: Seconds that never go back.
    """

    def __init__(self, mind: Callable[[Payload], None], *, monotonic: Callable[[], float] = monotonic) -> None:
        self._mind = mind
        self._monotonic = monotonic
        self._runs: dict[str, Run] = {}
        self._late: set[str] = set()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._has_warned = False

    def begin(self, payload: Payload) -> None:
        """
        A job that is declared with `status=True` is about to run.

        Raises:
            RedisError: Its status could not be written.
        """
        run = Run(payload, has_status=True, audiences=_audiences(payload))
        self._runs[run.jid] = run
        self._mind(payload)
        _write(_pool(), run, {"status": "working", "started_at": int(now_seconds())})

    def of(self, job: Any) -> Run:
        """The run of the current job; the first time Redis is asked whether anybody wants to see it."""
        run = self._runs.get(job.jid)
        # One that went back to its queue by a stop may run here again.
        if run is None or run.payload is not job.payload:
            # In a test that keeps its pushes nobody looks, and there may be no Redis to ask.
            is_test = program.interceptor is not None
            has_status = not is_test and bool(_pool().command("EXISTS", keys.of(job.jid)))
            audiences = () if is_test else _audiences(job.payload)
            self._runs[job.jid] = run = Run(job.payload, has_status=has_status, audiences=audiences)
            self._mind(job.payload)
            if has_status:
                run.pending = {"status": "working", "started_at": int(now_seconds())}
        return run

    def leave(self, payload: Payload) -> tuple[Run, dict[str, Any]] | None:
        """
        A run has ended.

        Returns:
            The run, and what it said and has not written; None if nobody wants to see it.
        """
        run = self._runs.pop(str(payload.get("jid")), None)
        if run is None or not run.is_shown:
            return None
        with run.lock:
            # From here on the thread finds nothing to write.
            pending, run.pending = run.pending, {}
        return run, pending

    def forget(self, payload: Payload) -> None:
        """A run is over and has no end."""
        run = self._runs.get(str(payload.get("jid")))
        if run is not None and run.payload is payload:
            self.leave(payload)

    def say(self, run: Run, fields: dict[str, Any]) -> None:
        """
        Write *fields*, now or a moment later.

        Raises:
            Stopped: Somebody has asked the job to stop.
            RedisError: Redis is out of reach.
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
            raise Stopped(f"somebody has asked the job {run.jid} to stop")

    def warn_once(self, error: RedisError) -> None:
        """A status could not be written, which costs no job."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning("the status of jobs cannot be written: %s", error)

    def _flush(self, run: Run) -> None:
        fields, run.pending = run.pending, {}
        run.next_at = self._monotonic() + LEAST_PAUSE_SECONDS
        try:
            run.stop_is_asked = _write(_pool(), run, fields) == b"true"
        except BaseException:
            run.pending = {**fields, **run.pending}
            raise

    def _later(self, run: Run) -> None:
        with self._wake:
            self._late.add(run.jid)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._flush_late, name="sidekiq.status", daemon=True)
                self._thread.start()
            self._wake.notify()

    def _flush_late(self) -> None:
        """Until there has been nothing to write for a while."""
        while True:
            with self._wake:
                if not self._late and not self._wake.wait(5):
                    self._thread = None
                    return
                late, self._late = self._late, set()
            self._wait_a_moment()
            too_soon = {jid for jid in late if not self._is_flushed(jid)}
            if too_soon:
                with self._wake:
                    self._late |= too_soon

    def _is_flushed(self, jid: str) -> bool:
        """False if the job has written meanwhile, so that what it said since has to wait for its turn."""
        run = self._runs.get(jid)
        if run is None:
            return True
        try:
            with run.lock:
                if run.pending and self._monotonic() < run.next_at:
                    return False
                if run.pending:
                    self._flush(run)
        except RedisError as error:
            self.warn_once(error)
        return True

    def _wait_a_moment(self) -> None:
        threading.Event().wait(LEAST_PAUSE_SECONDS)


def progress(runs: Runs, job: Any) -> Callable[..., None]:
    """`current_job().progress`."""

    def progress(
        at: float | None = None, total: float | None = None, message: str | None = None, **fields: Any
    ) -> None:
        """
        Say how far the job is; whoever looks at its status sees it.

        Args:
            at: How much is done.
            total: Of how much; 100 until it is given.
            message: What it does now.
            fields: Texts and numbers of your own.

        Raises:
            ValueError: A field is one that only the status itself may have.
            Stopped: Somebody has asked the job to stop. Let it pass: the job then ends without a retry.
            RedisError: Redis is out of reach.
        """
        run = runs.of(job)
        runs.say(run, _fields(run, at, total, message, fields))

    return progress


def aprogress(runs: Runs, job: Any) -> Callable[..., Awaitable[None]]:
    """`current_job().aprogress`, for `async def` jobs."""
    say = progress(runs, job)

    async def aprogress(
        at: float | None = None, total: float | None = None, message: str | None = None, **fields: Any
    ) -> None:
        """The awaited twin of `progress`."""
        await asyncio.to_thread(say, at, total, message, **fields)

    return aprogress


def _fields(
    run: Run, at: float | None, total: float | None, message: str | None, fields: dict[str, Any]
) -> dict[str, Any]:
    """Source: sidekiq-status 4.0.0, worker.rb, `at` and `total`."""
    taken = _RESERVED & fields.keys()
    if taken:
        raise ValueError(f"progress() cannot set {min(taken)!r}, which the status itself keeps; take another name")
    if total is not None:
        run.total = total
    said: dict[str, Any] = {}
    if at is not None:
        percent = int(at / run.total * 100) if run.total else 0
        said = {"at": at, "total": run.total, "pct_complete": percent, "message": message or ""}
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


def _write(pool: Pool, run: Run, fields: dict[str, Any]) -> bytes | None:
    """Write, and read whether the job is to stop, in one round trip."""
    commands = run.commands(fields, now_seconds())
    if not commands:
        return None
    call, full_call = settle_script.write_calls(commands)
    stop = ("HGET", keys.of(run.jid), "stop")

    def send(link: Any) -> bytes | None:
        replies = link.batch([call, stop])
        if getattr(replies[0], "code", "") == "NOSCRIPT":
            replies = link.batch([full_call, stop])
        found: bytes | None = raise_first(replies)[1]
        return found

    return pool.run(send)
