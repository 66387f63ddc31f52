"""A batch's state in Redis, as values. `lua/batch.lua` describes every key."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, get_args

from sidekiq_py.clock import utc
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extensions.batches import steps
from sidekiq_py.extensions.batches.errors import BatchGoneError
from sidekiq_py.extensions.batches.pretending import pretending
from sidekiq_py.extensions.batches.rows import ROW_STATES, Rows, is_number, object_in
from sidekiq_py.redaction import current
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import name_in, pairs
from sidekiq_py.redis_access.connection.replies import texts as texts_of
from sidekiq_py.redis_access.connection.scan import pages
from sidekiq_py.wire.number_text import finite

State = Literal["open", "running", "complete", "success"]
STATES: tuple[State, ...] = get_args(State)

_MOMENTS = ("created_at", "changed_at", "complete_at", "success_at", "death_at", "invalidated_at")
_PAGE = 500
_IDS_ON_A_PAGE = 1000
_SHOWN = 100
# What HINCRBY can write.
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Opener:
    """
    A program or job that may still add jobs.

    Args:
        token: A job's id, or a random one for a program.
        since: Seconds since the epoch.
        number: The number of the member that adds; None for others.
        who: Host and process, or the job's class.
    """

    token: str
    since: float
    number: int | None
    who: str


@dataclass(frozen=True, slots=True)
class Member:
    """
    A member that has not succeeded and is not simply waiting.

    Args:
        jid: Empty if the audit only knew the number.
        state: failed, dead, invalidated, deleted or lost.
        error: Its last error: `class`, `error_class`, `error_message`, `at`; empty if unknown.
    """

    number: int
    jid: str
    state: str
    error: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """
    A batch's state at one moment.

    Args:
        total: The number of jobs added, including callbacks of children.
        pending: How many of them have not succeeded.
        failures: How many have failed and may still be retried.
        dead: How many have died.
        invalidated, deleted, lost: How many ended without success, by reason.
        complete: True once every job has finished an attempt and `complete` is enqueued.
        success: True once all jobs have succeeded and `success` is enqueued.
        pending_children: How many child batches have not succeeded.
        openers: The programs and jobs that may still add jobs.
        created_at, changed_at, complete_at, success_at, death_at, invalidated_at: Seconds since the epoch, or None.
        damaged: The names of fields in Redis that another program has damaged. They read as 0 or None, and the batch
            may never enqueue its callbacks.
    """

    bid: str
    description: str
    parent_bid: str | None
    callback_queue: str | None
    total: int
    pending: int
    failures: int
    dead: int
    invalidated: int
    deleted: int
    lost: int
    children: int
    pending_children: int
    is_tracked: bool
    openers: Sequence[Opener]
    created_at: float | None
    changed_at: float | None
    complete_at: float | None
    success_at: float | None
    death_at: float | None
    invalidated_at: float | None
    untried: int
    damaged: Sequence[str]
    pool: Pool = field(repr=False, compare=False)

    @property
    def complete(self) -> bool:
        """True once every job has finished an attempt and `complete` is enqueued."""
        return self.complete_at is not None

    @property
    def success(self) -> bool:
        """True once all jobs have succeeded and `success` is enqueued."""
        return self.success_at is not None

    @property
    def ended_without_success(self) -> int:
        """How many ended without success and will not run again, apart from those in the dead set."""
        return self.invalidated + self.deleted + self.lost

    @property
    def unfinished(self) -> int:
        """How many run, wait in a queue or are scheduled, and have not failed."""
        return max(0, self.pending - self.failures - self.dead - self.ended_without_success)

    @property
    def state(self) -> State:
        """One word: jobs may still be added, jobs run, all were tried, or all succeeded."""
        if self.success:
            return "success"
        if self.openers:
            return "open"
        return "complete" if self.complete else "running"

    @property
    def jobs(self) -> Rows | None:
        """The rows of a tracked batch, read on demand; None if it is not tracked."""
        return Rows(self.pool, self.bid) if self.is_tracked else None

    @property
    def is_valid(self) -> bool:
        """True unless it was invalidated."""
        return self.invalidated_at is None

    @property
    def progress(self) -> float:
        """The share of jobs that have succeeded, from 0.0 to 1.0. Without jobs, 1.0 once the batch is complete."""
        return float(self.complete) if self.total == 0 else (self.total - self.pending) / self.total

    @property
    def dead_jids(self) -> list[str]:
        """The ids of the jobs that died; read from Redis each time."""
        return [one.jid for one in members(self.pool, self.bid) if one.state == "dead"]

    @property
    def failed_jids(self) -> list[str]:
        """The ids of the jobs that wait for a retry; read from Redis each time."""
        return [one.jid for one in members(self.pool, self.bid) if one.state == "failed"]

    def as_dict(self, *, most_members: int = _SHOWN) -> dict[str, Any]:
        """
        A dict for JSON, with the members that did not succeed. For a tracked batch, `jobs` has the number of rows in
        each state.

        Args:
            most_members: The most members to include.
        """
        shown = [
            {
                "number": one.number,
                "jid": one.jid,
                "state": one.state,
                **({"error": current().apply(one.error)} if one.error else {}),
            }
            for one in islice(members(self.pool, self.bid), most_members)
        ]
        names = (
            *("bid", "description", "parent_bid", "callback_queue", "state", "total", "pending", "failures", "dead"),
            *("invalidated", "deleted", "lost", "children", "complete", "success", "progress", "is_valid"),
            *_MOMENTS,
        )
        openers = [{"token": one.token, "since": one.since, "who": one.who} for one in self.openers]
        facts = {**{name: getattr(self, name) for name in names}, "openers": openers, "members": shown}
        facts["damaged"] = [*self.damaged]
        rows = self.jobs
        if rows is None:
            return facts
        try:
            return {**facts, "jobs": rows.counts()}
        except RedisReplyError as error:
            # A key of the wrong type must not hide the other batches of a list.
            if error.code != "WRONGTYPE":
                raise
            return {**facts, "jobs": dict.fromkeys(ROW_STATES, 0), "damaged": [*self.damaged, "states"]}

    def as_json(self) -> str:
        """`as_dict` as JSON text."""
        return json.dumps(self.as_dict())


def read(pool: Pool, bid: str) -> BatchStatus:
    """
    Read a batch.

    Raises:
        BatchGoneError: There is no such batch.
        RedisError: As for `Pool.run`.
    """
    [status] = read_many(pool, [bid])
    if status is None:
        raise BatchGoneError(bid)
    return status


def read_many(pool: Pool, bids: Sequence[str]) -> list[BatchStatus | None]:
    """Read several batches in one round trip; None for each that is gone."""
    held = pretending()
    if held is not None:
        return [_status(pool, bid, held.fields(bid)) for bid in bids]
    reads = [("HGETALL", steps.key(bid)) for bid in bids]
    # A key of the wrong type must not hide the other batches.
    found = pool.well_typed(reads)
    return [
        _status(pool, bid, {"": "no hash"} if flat is None else texts_of(flat))
        for bid, flat in zip(bids, found, strict=True)
    ]


def bids(pool: Pool, *, newest_first: bool = True, running: bool = False, start: int = 0) -> Iterator[str]:
    """
    Yield the ids of all batches, page by page. A batch that is there all the time appears exactly once, whichever
    others are added and removed meanwhile.

    Args:
        running: Only those that have not succeeded.
        start: How many to skip.
    """
    held = pretending()
    if held is not None:
        yield from islice(held.bids(newest_first=newest_first), start, None)
        return
    command, key = "ZREVRANGE" if newest_first else "ZRANGE", steps.RUNNING if running else steps.ALL
    last: tuple[float, bytes] | None = None
    while True:
        # After the first, each page begins with the last batch of the one before it.
        flat = pool.command(command, key, start, start + _IDS_ON_A_PAGE - 1, "WITHSCORES")
        page = [(float(score), bid) for bid, score in pairs(flat)]
        fresh = [one for one in page if last is None or (one < last if newest_first else one > last)]
        if start and last is not None and len(fresh) == len(page):
            # Batches before it have been removed meanwhile, so this page may begin too late.
            start = max(0, start - _IDS_ON_A_PAGE)
            continue
        yield from (name_in(bid) for _, bid in fresh)
        if len(page) < _IDS_ON_A_PAGE:
            return
        last = fresh[-1] if fresh else last
        start += len(page) - 1


def some_pending_children(pool: Pool, bid: str, most: int) -> list[BatchStatus]:
    """Child batches that have not succeeded, as far as one page of them shows; at most *most*."""
    [page] = pool.well_typed([("SSCAN", steps.key(bid) + ":children", 0, "COUNT", most)])
    known = read_many(pool, [*map(name_in, page[1][:most])]) if page is not None else []
    return [child for child in known if child is not None and not child.success]


def members(pool: Pool, bid: str) -> Iterator[Member]:
    """Yield the members that did not succeed and are not simply waiting, page by page, in no particular order."""
    held = pretending()
    if held is not None:
        for number, (state, jid, about) in held.members(bid).items():
            yield Member(number, jid, state, json.loads(about) if about else {})
        return
    for flat in pages(pool.command, ("HSCAN", steps.key(bid) + ":members"), "COUNT", _PAGE):
        names, texts = flat[::2], flat[1::2]
        errors = pool.command("HMGET", steps.key(bid) + ":errors", *names) if names else []
        for name, text, error in zip(names, texts, errors, strict=True):
            state, _, jid = text.decode(errors="replace").partition(":")
            if is_number(name):
                yield Member(int(name), jid, state, object_in(error))


def _status(pool: Pool, bid: str, texts: Mapping[str, str]) -> BatchStatus | None:
    if not texts:
        return None

    damaged = ["the hash itself"] if "" in texts else []

    def count(name: str) -> int:
        found = _count(texts.get(name, "0"))
        if found is None:
            damaged.append(name)
        return found or 0

    def moment(name: str) -> float | None:
        found = _moment(texts[name]) if name in texts else None
        if found is None and name in texts:
            damaged.append(name)
        return found

    def opener(name: str) -> Opener:
        since, number, who = (*texts[name].split(" ", 2), "", "")[:3]
        at, by = _moment(since), None if number in ("-", "") else _count(number)
        if at is None or (by is None and number not in ("-", "")):
            damaged.append(name)
            return Opener(name[6:], 0.0, None, texts[name])
        return Opener(name[6:], at, by, who)

    for name in ("next", "tokens", "kids_untried"):
        count(name)
    return BatchStatus(
        bid=bid,
        description=texts.get("description", ""),
        parent_bid=texts.get("parent"),
        callback_queue=texts.get("callback_queue"),
        total=count("total"),
        pending=count("pending"),
        failures=count("n:failed"),
        dead=count("n:dead"),
        invalidated=count("n:invalidated"),
        deleted=count("n:deleted"),
        lost=count("n:lost"),
        children=count("kids"),
        pending_children=count("kids_pending"),
        is_tracked=texts.get("track") == "1",
        openers=[opener(name) for name in sorted(texts) if name.startswith("token:")],
        **{name: moment(name) for name in _MOMENTS},
        untried=count("untried"),
        damaged=damaged,
        pool=pool,
    )


def _count(text: str) -> int | None:
    """*text* as an integer. Returns None for one that Redis cannot count, because another program wrote it."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if -_MOST <= number <= _MOST else None


def _moment(text: str) -> float | None:
    """*text* as epoch seconds. Returns None if that is no time, because another program wrote it."""
    seconds = finite(text)
    return None if seconds is None or utc(seconds) is None else seconds
