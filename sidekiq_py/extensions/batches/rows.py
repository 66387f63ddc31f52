"""
The rows of a tracked batch: each job, its state, its progress, and its last error.

The scripts that push and settle jobs write them (`lua/batch.lua`). They are read page by page, never as a whole.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from sidekiq_py.extensions.batches import steps
from sidekiq_py.extensions.batches.errors import BatchError
from sidekiq_py.extensions.batches.pretending import pretending
from sidekiq_py.redaction import Redaction, current
from sidekiq_py.redis_access.connection.link import Command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.json_dialect import dumps
from sidekiq_py.wire.number_text import finite

RowState = Literal[
    "enqueued", "working", "finished", "failed", "error", "dead", "interrupted", "invalidated", "deleted", "lost"
]
"""
`enqueued`: it waits in its queue, or for its time. `working`. `finished`: it has succeeded. `failed`: it reported bad
input (`JobFailed`) and is not retried. `error`: it raised another error and waits for its retry. `dead`: its retries
are used up. `interrupted`: an iterable job that continues later. `invalidated`: it ended without running. `deleted`: it
was deleted by hand. `lost`: it is nowhere in Redis.
"""

ROW_STATES: tuple[RowState, ...] = get_args(RowState)
"""In the order of ROW_STATES in `lua/other_steps.lua`."""

MOST_ROWS = 1000
# Longer arguments are not kept in a row, because rows stay in Redis as long as the batch.
MOST_ARGUMENT_BYTES = 2000
_STRIDE = 2**33
_SLICE = 500
# How many of them one page looks through.
_MOST_SLICES = 100
_MOST_DIGITS = 19
# The number of commands that read rows.
_READS = 4
# The number of fields before the message in a track.
_TIMES = 6


class Row(NamedTuple):
    """
    One job of a tracked batch.

    Args:
        number: Its number in the batch, which orders the pages.
        jid: Its id; empty if the program that pushed it did not know it.
        klass: The job's class (for Active Job, its own); None for a callback of a child batch.
        callback: The event, for a callback of a child batch.
        args: The pushed arguments, redacted; None if they were longer than `MOST_ARGUMENT_BYTES`.
        queue: The queue it was pushed to.
        scheduled_at, enqueued_at, started_at, ended_at: Seconds since the epoch, or None. The last two belong to its
            last run.
        attempts: How many times it has started.
        at, total, message: Its last `progress()` in its last run.
        error: Its last error, until it succeeds: `class`, `error_class`, `error_message`, `at`.
    """

    number: int
    jid: str
    klass: str | None
    callback: str | None
    args: Sequence[Any] | None
    queue: str | None
    state: RowState
    attempts: int
    scheduled_at: float | None
    enqueued_at: float | None
    started_at: float | None
    ended_at: float | None
    at: float | None
    total: float | None
    message: str
    error: Mapping[str, Any] | None

    @property
    def percent(self) -> int | None:
        """Its progress; None for a job that does not report any. Without a total, 100 is assumed."""
        if self.at is None:
            return None
        total = 100.0 if self.total is None else self.total
        return int(round(self.at / total * 100, 6)) if total else 0

    def as_dict(self) -> dict[str, Any]:
        """A dict for JSON, in which `klass` is called `class`."""
        shown = self._asdict()
        shown["class"] = shown.pop("klass")
        return {**shown, "percent": self.percent}


@dataclass(frozen=True, slots=True)
class Page:
    """
    Some rows, in the order of their numbers.

    Args:
        next: Pass it as `after` to get the next page; None after the last one.
        counts: The number of rows in each state, if requested.
    """

    rows: Sequence[Row]
    next: int | None
    counts: Mapping[RowState, int] | None = None

    def as_dict(self) -> dict[str, Any]:
        """A dict for JSON."""
        return {"rows": [row.as_dict() for row in self.rows], "next": self.next}


class Rows:
    """
    The rows of one batch; empty if it is not tracked.

        page = batch.rows.page("failed", limit=50)
        for row in page.rows: print(row.args, row.error["error_message"])
        batch.rows.page("failed", after=page.next)
    """

    def __init__(self, pool: Pool, bid: str) -> None:
        self._pool = pool
        self._key = steps.key(bid)

    def __repr__(self) -> str:
        return f"<Rows of {self._key}>"

    def __iter__(self) -> Iterator[Row]:
        after = None
        while True:
            page = self.page(after=after, limit=_SLICE)
            yield from page.rows
            after = page.next
            if after is None:
                return

    def counts(self) -> dict[RowState, int]:
        """
        The number of rows in each state.

        Raises:
            RedisError: Redis cannot be reached.
        """
        if pretending() is not None:
            return dict.fromkeys(ROW_STATES, 0)
        return _counts(self._pool.batch(self._counting())) or {}

    def _counting(self) -> list[Command]:
        ranges = [_range_of(state) for state in ROW_STATES]
        return [("ZCOUNT", f"{self._key}:states", first, f"({end}") for first, end in ranges]

    def page(
        self,
        state: RowState | None = None,
        *,
        after: int | None = None,
        limit: int = 100,
        redaction: Redaction | None = None,
        with_counts: bool = False,
    ) -> Page:
        """
        Read a page of rows.

        Args:
            state: Only rows in this state.
            after: The number of the last row seen.
            limit: The most rows to return, up to `MOST_ROWS`.
            redaction: What to hide in the arguments; by default the program's policy.
            with_counts: Also set `Page.counts`, in the same round trip.

        Raises:
            BatchError: There is no such state, or *limit* is out of range.
            RedisError: Redis cannot be reached.
        """
        if state is not None and state not in ROW_STATES:
            raise BatchError(f"{state!r} is not a state of a job; use one of {', '.join(ROW_STATES)}")
        if not isinstance(limit, int) or not 1 <= limit <= MOST_ROWS:
            raise BatchError(f"limit is {limit!r}; a page has 1 to {MOST_ROWS} rows")
        if after is not None and not isinstance(after, int):
            raise BatchError(f"after is {after!r}; give the number of the last row seen, such as Page.next")
        policy = current() if redaction is None else redaction
        if pretending() is not None:
            return Page((), None, self.counts() if with_counts else None)
        first = 0 if after is None else after + 1
        counting = self._counting() if with_counts else []
        if state is None:
            return self._all(first, limit, policy, counting)
        return self._in_state(state, first, limit, policy, counting)

    def get(self, number: int, *, redaction: Redaction | None = None) -> Row | None:
        """The row with this number, or None."""
        if pretending() is not None:
            return None
        found = self._read([number], current() if redaction is None else redaction)
        return found[0] if found else None

    def _in_state(
        self, state: RowState, first: int, limit: int, policy: Redaction, counting: Sequence[Command]
    ) -> Page:
        start, end = _range_of(state)
        words = ("ZRANGEBYSCORE", f"{self._key}:states", start + first, f"({end}", "LIMIT", 0, limit)
        found, *counted = self._pool.batch([words, *counting])
        numbers = [int(number) for number in found if is_number(number)]
        # A row that has just moved to another state does not belong to this page.
        rows = [row for row in self._read(numbers, policy) if row.state == state]
        return Page(rows, numbers[-1] if numbers and len(found) == limit else None, _counts(counted))

    def _all(self, first: int, limit: int, policy: Redaction, counting: Sequence[Command]) -> Page:
        # Reads one more than requested, to see if there is a next page.
        numbers: Sequence[int] = range(first, first + limit + 1)
        end, *replies = self._pool.batch([("HGET", self._key, "next"), *self._reading(numbers), *counting])
        end = int(end) if end is not None and is_number(end) else 0
        rows, counted = _rows(numbers, replies[:_READS], policy), _counts(replies[_READS:])
        first += limit + 1
        # Reserved numbers that were not used have no row.
        # If another program has overwritten `next`, they may be without end.
        farthest = min(end, first + _MOST_SLICES * _SLICE)
        while first < farthest and len(rows) <= limit:
            numbers = range(first, min(farthest, first + _SLICE))
            rows += self._read(numbers, policy)
            first = numbers[-1] + 1
        if len(rows) > limit:
            return Page(rows[:limit], rows[limit - 1].number, counted)
        return Page(rows, first - 1 if first < end else None, counted)

    def _read(self, numbers: Sequence[int], policy: Redaction) -> list[Row]:
        return _rows(numbers, self._pool.batch(self._reading(numbers)), policy) if numbers else []

    def _reading(self, numbers: Sequence[int]) -> list[Command]:
        names = ("jobs", "tracks", "errors")
        reads: list[Command] = [("HMGET", f"{self._key}:{name}", *numbers) for name in names]
        return [*reads, ("ZMSCORE", f"{self._key}:states", *numbers)]


def tracks_of(pool: Pool, bid: str, numbers: Sequence[int]) -> list[bytes | None]:
    """The tracks that `enqueued_again` compares; each changes whenever its job starts or ends."""
    return list(pool.command("HMGET", f"{steps.key(bid)}:tracks", *numbers)) if numbers else []


def text_of_job(raw: bytes, score: str | None, float_text: FloatText) -> bytes:
    """The JSON that a row keeps of a pushed job. *score* is that of a scheduled job."""
    from sidekiq_py.api.job_record import JobRecord  # loads all of the data API; only tracked batches need it

    record = JobRecord(raw)
    args = dumps(record.display_args, float_text)
    row: dict[str, Any] = {"jid": record.jid, "class": record.display_class or record.klass, "queue": record.queue}
    if score is not None:
        row["at"] = float(score)
    head = dumps(row, float_text)
    return head if len(args) > MOST_ARGUMENT_BYTES else b'%b,"args":%b}' % (head[:-1], args)


def _rows(numbers: Sequence[int], found: Sequence[Any], policy: Redaction) -> list[Row]:
    """Parse the replies to `Rows._reading`."""
    return [
        _row(number, job, track, error, score, policy)
        for number, job, track, error, score in zip(numbers, *found, strict=True)
        if job is not None and track is not None and score is not None and 0 <= float(score) < _STRIDE * len(ROW_STATES)
    ]


def _counts(found: Sequence[Any]) -> dict[RowState, int] | None:
    """Parse the replies to `Rows._counting`; None if there were no commands."""
    return dict(zip(ROW_STATES, map(int, found), strict=True)) if found else None


def _range_of(state: RowState) -> tuple[int, int]:
    place = ROW_STATES.index(state)
    return place * _STRIDE, (place + 1) * _STRIDE


def _row(number: int, job: bytes, track: bytes, error: bytes | None, score: Any, policy: Redaction) -> Row:
    row = object_in(job)
    times, _, message = track.decode(errors="replace").partition("\n")
    parts = times.split(" ")
    attempts, enqueued, started, ended, at, total = parts if len(parts) == _TIMES else ["-"] * _TIMES
    klass = row.get("class")
    args = policy.apply({"args": row["args"]}, klass)["args"] if isinstance(row.get("args"), list) else None
    return Row(
        number=number,
        jid=row.get("jid") or "",
        klass=klass,
        callback=row.get("callback"),
        args=args,
        queue=row.get("queue"),
        state=ROW_STATES[int(float(score)) // _STRIDE],
        attempts=int(finite(attempts) or 0),
        scheduled_at=row.get("at"),
        enqueued_at=finite(enqueued),
        started_at=finite(started),
        ended_at=finite(ended),
        at=finite(at),
        total=finite(total),
        message=message,
        error=policy.apply(object_in(error)) if error else None,
    )


def is_number(text: bytes) -> bool:
    """True for a number that Redis can count with; another program may have written something else."""
    return text.isdigit() and len(text) <= _MOST_DIGITS


def object_in(text: bytes | None) -> dict[str, Any]:
    """Parse a JSON object; empty if another program has written something else."""
    try:
        found = json.loads(text or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
