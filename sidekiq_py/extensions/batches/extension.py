"""The hooks of batches at each stage of a job."""

import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from itertools import repeat
from typing import Any

from sidekiq_py.errors import JobFailed, RedisError
from sidekiq_py.extension import (
    Command,
    DoctorCheck,
    Drop,
    Effect,
    EndKind,
    Extension,
    FetchedJob,
    JobEnd,
    Maintenance,
    PushSlice,
    Tally,
    Watched,
)
from sidekiq_py.extensions.batches import adding, errors, steps
from sidekiq_py.extensions.batches.member import KEY, TRACKED_KEY, Membership, is_membership, membership_of
from sidekiq_py.extensions.batches.pretending import pretending
from sidekiq_py.logs import log
from sidekiq_py.middleware.running import running_here
from sidekiq_py.redis_access.connection.connections import is_same_database
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import name_in
from sidekiq_py.redis_access.job_path.settle_script import Held, Join, Once, Unless
from sidekiq_py.redis_access.job_path.watched_push import LEAST_JOBS
from sidekiq_py.registry import Payload
from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.failure import error_class_name, error_text
from sidekiq_py.wire.json_dialect import dumps_known, loads

_STATES: Mapping[EndKind, str] = {
    "success": "succeeded",
    "retry": "failed",
    "dead": "dead",
    "discarded": "dead",
    "dropped": "dead",
    "interrupted": "attempt",
    "invalidated": "invalidated",
    "deleted": "deleted",
    "stopped": "deleted",
}

_VERB, _SUCCEED = steps.VERB.name, ("succeed_all",)
# Error messages are cut to this length.
_SHOWN_CHARACTERS = 500
# The least time between two reads of the set of invalidated batches.
_FRESH_SECONDS = 1.0
_SINCE = ("ZRANGEBYSCORE", steps.INVALID)
_NEVER = float("-inf")
_AUDIT_SECONDS = 120.0
_RUBY_SECONDS = 10.0
_EVENTS_SECONDS = 10.0


class BatchExtension(Extension):
    """Support for batches. Loaded wherever sidekiq_py is installed."""

    name = "batches"
    phase = "count"
    # A member that carries the second key also carries the first.
    payload_keys = {
        KEY: "a batch: its counters would not move, and its callbacks would never be enqueued",
        TRACKED_KEY: "",
    }
    verbs = (steps.VERB,)
    public_names = {
        "Batch": "sidekiq_py.extensions.batches.batch",
        **dict.fromkeys(
            ("BatchError", "BatchGoneError", "BatchDoneError", "BatchClosedError"),
            "sidekiq_py.extensions.batches.errors",
        ),
    }
    api_names = {"Batches": "sidekiq_py.extensions.batches.api"}
    commands = {
        "batches": (
            "sidekiq_py.extensions.batches.cli:batches",
            "List, show, close, retry, invalidate and delete batches.",
        )
    }
    job_attributes = {
        "batch": lambda job: _batch().of_current_job(job),
        "is_valid": lambda job: _batch().is_current_valid(job),
    }

    def __init__(self) -> None:
        self._invalid = _InvalidBatches()
        self._has_warned = False

    def wants_pushes(self) -> bool:
        """True within a block of jobs, and when an Active Job may enqueue itself again."""
        return adding.current() is not None or _running_active_job() is not None

    def push(self, jobs: PushSlice) -> None:
        """Make the jobs members of the batch whose block the program is in."""
        adds = adding.current() or _enqueued_again(jobs)
        if adds is None:
            return
        if not _is_same_redis(jobs.pool, adds.pool):
            raise errors.BatchError(
                f"a job in the block of batch {adds.bid} is pushed to another Redis than the batch's; push it outside"
            )
        members = [KEY.encode() in raw and KEY in loads(raw) for raw in jobs.raws] if jobs.may_bear(KEY) else []
        count = members.count(False) if members else len(jobs) - len(jobs.stopped_jids)
        if not count:
            return
        place = adds.place(count)
        mark = b',"%b":true' % TRACKED_KEY.encode() if adds.is_tracked else b""
        tail = b',"%b":["%b",%%d]%b' % (KEY.encode(), adds.bid.encode(), mark)
        if any(members):
            numbers = iter(range(place.first, place.first + count))
            both = zip(jobs.raws, members, strict=True)
            jobs.rewrite([raw if is_member else raw[:-1] + tail % next(numbers) + b"}" for raw, is_member in both])
        else:
            jobs.number(tail, place.first)
        held = pretending()
        if held is not None:
            held.add(adds.bid, place.first, count, adds.token)
            return
        latest = max(map(float, jobs.scores), default=0.0)
        is_member = "0" if adds.number is None else "1"
        words: list[Any] = [place.block, place.used, count, f"{latest:.0f}", is_member, adds.token, place.previous]
        words += [place.end, place.sender]
        if adds.is_tracked:
            words += [place.first, *_rows_of(jobs, members or [False] * count)]
        jobs.write(steps.command("add", adds.bid, *words))
        jobs.push_once(steps.blocks_key(adds.bid), place.mark)
        jobs.when_pushed = place.confirm
        if len(jobs) >= LEAST_JOBS and not adds.is_tracked and not jobs.scores:
            jobs.write_watched(_watched(adds, place, count, jobs.push_batches[0].queue, is_member))

    def deferred(self) -> adding.Deferred | None:
        """Keep the batch open for a push that waits for a commit."""
        adds = adding.current()
        return None if adds is None else adding.Deferred(adds)

    def may_hold_up(self, payload: Payload) -> bool:
        """True for tracked jobs, whose rows record their start, and if any batch was invalidated."""
        return TRACKED_KEY in payload or bool(self._invalid.bids())

    def admit(self, job: FetchedJob) -> Drop | None:
        """Drop members of an invalidated batch before they run, but not callbacks of its children."""
        membership = membership_of(job.payload)
        if membership is None:
            return None
        if not membership.is_callback and membership.bid in self._invalid.bids():
            return Drop(f"batch {membership.bid} was invalidated")
        if TRACKED_KEY in job.payload:
            self._write_row("working", membership, "1" if "failed_at" in job.payload else "0")
        return None

    def _write_row(self, step: str, membership: Membership, *words: Any) -> None:
        """Write to the row of a tracked member. A failure to do so does not fail the job."""
        try:
            steps.call(_pool(), step, membership.bid, membership.number, *words, idempotent=False)
        except RedisError as error:
            if not self._has_warned:
                self._has_warned = True
                log.warning("rows of tracked batches cannot be written when jobs begin: %s", error)

    def forget_run(self, payload: Payload) -> None:
        """A tracked member that was about to run waits instead, as a Celery task over its rate limit does."""
        membership = membership_of(payload) if TRACKED_KEY in payload else None
        if membership is not None:
            self._write_row("postponed", membership)

    def end_of_success(self, payload: Payload) -> Tally | None:
        """The member's part of the step that counts successes."""
        value = payload.get(KEY)
        if not is_membership(value):
            return None
        verb, key, first = _success_of(value[0])
        return _tally((verb, key, first, (value[1],)))

    def end(self, end: JobEnd) -> Iterable[Effect]:
        """Count the member's end."""
        membership = membership_of(end.payload)
        if membership is None:
            return ()
        if end.kind == "success":
            return (Tally(*_success_of(membership.bid), (membership.number,)),)
        return (_end_command(membership, end),)

    def followed(self, end: JobEnd, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
        """Make the jobs that are pushed by a member's end, such as the next steps of a workflow, members too."""
        membership = membership_of(end.payload)
        if membership is None:
            return effects
        return joined(membership.bid, effects, end.dialect.float_text if TRACKED_KEY in end.payload else None)

    def pretend(self, end: JobEnd) -> None:
        """Count the member's end in memory, for testing modes."""
        membership, held = membership_of(end.payload), pretending()
        if membership is not None and held is not None:
            held.run("ends", membership.bid, (_STATES[end.kind], membership.number, end.jid, _about(end)))

    def maintain(self) -> Sequence[Maintenance]:
        """Find lost members, recover those of dead Ruby processes, and emit telemetry."""
        from sidekiq_py.extensions.batches.lifecycle_events import LifecycleEvents
        from sidekiq_py.extensions.batches.ruby_runs import RubyRuns  # only workers need it

        return (
            Maintenance("audit of batches", _AUDIT_SECONDS, _Audits().run),
            Maintenance("batch jobs that Ruby processes run", _RUBY_SECONDS, RubyRuns().run),
            Maintenance("telemetry of batches", _EVENTS_SECONDS, LifecycleEvents().run),
        )

    def entries(self, listing: str) -> Iterable[Any]:
        """Receive the progress of jobs for their rows."""
        return (_ROWS_AUDIENCE,) if listing == "progress" else ()

    def pages(self) -> Sequence[Any]:
        """The pages of the dashboard: all batches, and a single one with its members."""
        from sidekiq_py.extensions.batches import pages  # needs the extra `web`

        return pages.pages()

    def checks(self) -> Sequence[DoctorCheck]:
        """Batches that cannot end by themselves."""
        from sidekiq_py.extensions.batches.checks import CHECKS  # only the doctor needs it

        return CHECKS

    def ruby_code(self) -> str:
        """The Ruby support for batches, with the Lua scripts of both languages inserted."""
        code = (steps.FOLDER.parent / "ruby" / "batches.rb").read_text("utf-8")
        scripts = {
            name: (steps.FOLDER / f"{name}.lua").read_text("utf-8") for name in ("step", "ruby_push", "ruby_end")
        }
        for name, script in {"library": steps.LIBRARY, **scripts}.items():
            code = code.replace(f"@@{name}@@\n", script)
        return code

    def explain(self, refusal: str) -> Exception | None:
        """Convert a script's refusal to a batch error."""
        error, adds = errors.of_refusal(refusal), adding.current()
        if isinstance(error, errors.BatchRolledBackError) and adds is not None:
            adds.begin_anew()
        return error


class _Audits:
    """Runs the audit if there are batches. Without batches, only the check for them needs rights in Redis."""

    @cached_property
    def _audit(self) -> Any:
        from sidekiq_py.extensions.batches.audit import Audit  # only loaded if there are batches

        return Audit()

    def run(self, pool: Pool) -> float | None:
        """Run the audit, like `Audit.run`."""
        delay: float | None = self._audit.run(pool) if pool.command("EXISTS", steps.ALL) else None
        return delay


# A named tuple's own constructor takes twice as long, and this runs for every success in a batch.
_tally = partial(tuple.__new__, Tally)


@lru_cache(maxsize=256)
def _success_of(bid: str) -> tuple[str, str, tuple[str, ...]]:
    """The parts that all successes of a batch share; one object, because they are compared."""
    return _VERB, steps.key(bid), _SUCCEED


def _end_command(membership: Membership, end: JobEnd) -> Command:
    """The command that is added to the script that settles a member."""
    state = _STATES[end.kind]
    words = [state, membership.number, end.jid, b"" if state == "attempt" else _about(end)]
    if isinstance(end.error, JobFailed) and state == "dead":
        words.append("failed")
    return steps.command("ends", membership.bid, *words)


def joined(bid: str, effects: Iterable[Effect], float_text: FloatText | None) -> tuple[Effect, ...]:
    """*effects* with their pushes turned into members; with rows if the batch is tracked and *float_text* is given."""
    found: list[Effect] = []
    for effect in effects:
        if isinstance(effect, Once | Unless | Held | Join):
            then = tuple(command for one in effect.then for command in _joined(bid, one, float_text))
            found.append(effect._replace(then=then))
        elif type(effect) is tuple:
            found += _joined(bid, effect, float_text)
        else:
            found.append(effect)
    return tuple(found)


def _joined(bid: str, command: Command, float_text: FloatText | None) -> Sequence[Command]:
    verb, key, *words = command

    def row(raw: bytes, score: str | None = None) -> list[bytes]:
        return [] if float_text is None else [_text_of_job(raw, score, float_text)]

    if verb in ("LPUSH", "RPUSH") and str(key).startswith("queue:"):
        return [steps.command("join", bid, "queue", str(key).removeprefix("queue:"), raw, *row(raw)) for raw in words]
    if verb == "ZADD" and key == "schedule":
        pairs = zip(words[::2], words[1::2], strict=True)
        return [steps.command("join", bid, "schedule", score, raw, *row(raw, str(score))) for score, raw in pairs]
    return [command]


def _about(end: JobEnd) -> bytes:
    if end.error is not None:
        error_class, message = error_class_name(end.error), error_text(end.error)
    elif end.kind == "retry" and end.member is not None:
        # To the engine, a Celery task that calls `retry` has not failed, but its entry in `retry` has the reason.
        entry = loads(end.member)
        error_class, message = str(entry.get("error_class")), str(entry.get("error_message"))
    else:
        return b""
    shown: dict[str, Any] = {
        "class": str(end.payload.get("wrapped") or end.payload.get("class") or ""),
        "error_class": error_class,
        "error_message": message[:_SHOWN_CHARACTERS],
        "at": int(end.now),
    }
    return dumps_known(shown)


def _rows_of(jobs: PushSlice, members: Sequence[bool]) -> list[bytes]:
    """The JSON for the rows of jobs, except those that are already members."""
    both = [
        (raw, score)
        for push_batch in jobs.push_batches
        for raw, score in zip(push_batch.payloads, push_batch.scores or repeat(None), strict=False)
    ]
    text = jobs.dialect.float_text
    return [_text_of_job(*one, text) for one, is_member in zip(both, members, strict=True) if not is_member]


def _text_of_job(raw: bytes, score: str | None, float_text: FloatText) -> bytes:
    from sidekiq_py.extensions.batches import rows  # only tracked batches need it

    return rows.text_of_job(raw, score, float_text)


def _running_active_job() -> Payload | None:
    """The payload of the running job, if it is an Active Job and a member."""
    here = running_here()
    return here[0] if here is not None and "wrapped" in here[0] and KEY in here[0] else None


def _enqueued_again(jobs: PushSlice) -> adding.Adding | None:
    """
    If an Active Job was enqueued again by `retry_on`, under a new jid, it joins the batch of the run that enqueues it.
    """
    payload = _running_active_job()
    membership = None if payload is None else membership_of(payload)
    if payload is None or membership is None or len(jobs) != 1:
        return None
    own_id, other_id = _active_job_id(payload), _active_job_id(loads(jobs.raws[0]))
    if own_id is None or own_id != other_id:
        return None
    adds = adding.Adding(jobs.pool, membership.bid, str(payload.get("jid")), membership.number)
    words = (adds.token, membership.number, str(payload.get("wrapped")), "0", "", 0)
    try:
        adds.is_tracked = steps.call(jobs.pool, "open", membership.bid, *words) == steps.TRACKED
    except errors.BatchGoneError:
        return None
    return adds


def _active_job_id(payload: Mapping[str, Any]) -> object:
    args = payload.get("args")
    return args[0].get("job_id") if isinstance(args, list) and args and isinstance(args[0], dict) else None


def _watched(adds: adding.Adding, place: adding.Place, count: int, queue: str, is_member: str) -> Watched:
    """The writes of the step `add`, as plain commands."""
    key, blocks, pushes = steps.key(adds.bid), steps.blocks_key(adds.bid), steps.pushes_key(adds.bid, adds.token)
    commands: list[Command] = [
        ("HSET", pushes, "at", place.mark),
        ("HSET", blocks, str(place.block), str(place.used), place.mark, "1"),
        *((("HDEL", blocks, place.previous),) if place.previous else ()),
        *(("HINCRBY", key, field, str(count)) for field in ("total", "pending", "untried")),
    ]
    check = steps.may_push(adds.bid, queue, is_member, adds.token, place.block, place.used - count, place.sender)
    return Watched(pushes, check, tuple(commands))


def _is_same_redis(one: Pool, other: Pool) -> bool:
    """True if both pools use the same server and prefix, as those of clients with different settings may."""
    return one is other or (one.key_prefix == other.key_prefix and is_same_database(one.settings, other.settings))


class _RowsAudience:
    """Writes the `progress()` of jobs to their rows."""

    def wants(self, payload: Mapping[str, Any]) -> bool:
        """True for tracked members."""
        return TRACKED_KEY in payload and membership_of(payload) is not None

    def command(self, payload: Mapping[str, Any], said: Mapping[str, Any]) -> Command:
        """The step of the batch that writes it."""
        membership = membership_of(payload)
        assert membership is not None
        words: list[Any] = [membership.number, _number(said.get("at")), _number(said.get("total"))]
        if "message" in said:
            words.append(str(said["message"])[:_SHOWN_CHARACTERS])
        return steps.command("said", membership.bid, *words)


_ROWS_AUDIENCE = _RowsAudience()


def _number(value: Any) -> str:
    """The text for a row; `-` if it is not a finite number."""
    return repr(float(value)) if isinstance(value, int | float) and math.isfinite(value) else "-"


def _pool() -> Pool:
    from sidekiq_py.client import sync_client  # not needed by a program that pushes with its own client

    return sync_client.current().pool


def _batch() -> Any:
    from sidekiq_py.extensions.batches import batch  # not needed by a worker whose jobs do not ask

    return batch


class _InvalidBatches:
    """This process's copy of the set of invalidated batches, read at most once a second, and only for members."""

    def __init__(self) -> None:
        self._bids: frozenset[str] = frozenset()
        # The score of the newest.
        self._newest = "-inf"
        self._read_at = _NEVER
        self._lock = threading.Lock()

    def bids(self) -> frozenset[str]:
        """
        The ids of the invalidated batches.

        Raises:
            RedisError: They cannot be read; the job waits.
        """
        if time.monotonic() - self._read_at > _FRESH_SECONDS:
            with self._lock:
                if time.monotonic() - self._read_at > _FRESH_SECONDS:
                    self._read()
        return self._bids

    def _read(self) -> None:
        # Such a batch stays in the set for weeks, so a process only reads those that are new since its last look. Once
        # any has gone, it reads them all.
        since = (*_SINCE, self._newest, "+inf", "WITHSCORES")
        found, count = _pool().batch([since, ("ZCOUNT", steps.INVALID, "-inf", "+inf")])
        known = self._bids.union(map(name_in, found[::2]))
        if len(known) != count:
            found = _pool().command(*_SINCE, "-inf", "+inf", "WITHSCORES")
            known = frozenset(map(name_in, found[::2]))
        self._bids = known
        self._newest = found[-1].decode() if found else "-inf"
        self._read_at = time.monotonic()
