"""
Finds lost members: a job can disappear in other ways, and its batch must not wait for it forever.

Ruby's Web UI deletes a job, a Ruby process is killed between its BRPOP and the mark of the start, a dead set is
trimmed. A batch that no program adds to and that has not changed for ten minutes is compared with everything in Redis:
queues, sets, jobs in flight, and the jobs that each process reports as running. A member that is not found in two such
checks, between which the batch has not changed, counts as lost, which is a death. A single check may miss jobs that
move meanwhile.

The audit runs in one process of the fleet; two at once do no harm.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extensions.batches import ruby_runs, state, steps
from sidekiq_py.extensions.batches.errors import BatchGoneError
from sidekiq_py.extensions.batches.member import membership_of
from sidekiq_py.extensions.batches.rows import is_number
from sidekiq_py.extensions.batches.state import BatchStatus
from sidekiq_py.logs import counted, log
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import epoch_seconds, name_in, pairs
from sidekiq_py.redis_access.connection.scan import members, pages, scored_members
from sidekiq_py.redis_access.connection.slices import lists_of, slices_of

if TYPE_CHECKING:
    # A worker that runs no batches does not load it.
    from sidekiq_py.api.job_record import JobRecord

QUIET_SECONDS = 600.0
_PAGE = 100
# A batch to which jobs were added one by one has a block for each; all at once, a million of them block Redis.
_FIELDS = 1000
# How many numbers one step declares lost, and how many a log line lists.
_SLICE = 1000
_SHOWN = 10
_LONGEST_PAUSE_SECONDS = 24 * 3600.0


class _Suspicion(NamedTuple):
    """
    The members that one check did not find.

    Args:
        changed_at: When the batch last changed, as stored in Redis.
        numbers: The numbers of the members.
    """

    changed_at: bytes
    numbers: frozenset[int]


class Audit:
    """
    The audit of one process.

    Args:
        quiet_seconds: Batches that have changed more recently are skipped.
    """

    def __init__(self, *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._quiet_seconds = quiet_seconds
        self._suspicions: dict[str, _Suspicion] = {}
        # For a batch whose members were all found: when to check again, and the last delay.
        self._next_looks: dict[str, tuple[float, float]] = {}
        # The batches to whose keys another program has written, as logged already.
        self._refused: set[tuple[str, str]] = set()

    def __repr__(self) -> str:
        return f"<Audit suspicions={len(self._suspicions)}>"

    def run(self, pool: Pool) -> float | None:
        """
        Check all batches once. Returns the seconds until the next check if a member is missing, else None.

        Raises:
            RedisError: As for `Pool.run`.
        """
        _forget_the_gone(pool)
        self._deliver_late(pool)
        missing = {status.bid: (changed_at, numbers) for status, changed_at, numbers in self._candidates(pool)}
        if missing:
            for record in _all_jobs(pool):
                membership = membership_of(record.item)
                if membership is not None and membership.bid in missing:
                    missing[membership.bid][1].discard(membership.number)
        for bid, (changed_at, numbers) in missing.items():
            if numbers:
                with self._alone(bid):
                    self._suspect(pool, bid, _Suspicion(changed_at, frozenset(numbers)))
            else:
                self._suspicions.pop(bid, None)
                self._delay_next_look(bid)
        for bid in self._suspicions.keys() - missing.keys():
            del self._suspicions[bid]
        # A look that is overdue belongs to a batch that has ended since.
        now = time.monotonic()
        self._next_looks = {bid: look for bid, look in self._next_looks.items() if look[0] > now}
        return min(self._quiet_seconds, 60.0) if any(numbers for _, numbers in missing.values()) else None

    def _candidates(self, pool: Pool) -> Iterator[tuple[BatchStatus, bytes, set[int]]]:
        now = epoch_seconds(pool.command("TIME"))
        for page in lists_of(state.bids(pool, newest_first=False, running=True), _PAGE):
            for status in state.read_many(pool, page):
                if status is None or not self._is_due(status, now):
                    continue
                numbers: set[int] = set()
                with self._alone(status.bid):
                    if status.children and _waits_for_others(pool, status.bid):
                        _count_children(pool, status.bid)
                    numbers = waiting_numbers(pool, status.bid)
                if numbers:
                    changed_at = pool.command("HGET", steps.key(status.bid), "changed_at") or b""
                    yield status, changed_at, numbers

    @contextmanager
    def _alone(self, bid: str) -> Iterator[None]:
        """Let an error of one batch, to whose keys another program has written, hold up no other batch."""
        try:
            yield
        except BatchGoneError:
            # It was deleted after it was read.
            return
        except RedisReplyError as error:
            if error.is_about_server:
                raise
            if (bid, str(error)) not in self._refused:
                self._refused.add((bid, str(error)))
                log.error("batch %s cannot be checked: %s; another program has written to its keys", bid, error)

    def _is_due(self, status: BatchStatus, now: float) -> bool:
        """True if no program outside may add, and it has not changed for long. Members stop adding when they end."""
        if status.damaged:
            # The doctor reports it. Any conclusion from its numbers would be a guess.
            return False
        if any(opener.number is None for opener in status.openers):
            return False
        if status.changed_at is None or now - status.changed_at < self._quiet_seconds:
            self._next_looks.pop(status.bid, None)
            return False
        at, _ = self._next_looks.get(status.bid, (0.0, 0.0))
        return time.monotonic() >= at

    def _deliver_late(self, pool: Pool) -> None:
        """Retry callbacks that could not be pushed because the queue's key was not a list."""
        for page in lists_of(state.bids(pool), _PAGE):
            replies = pool.well_typed([("HKEYS", f"{steps.key(bid)}:callbacks") for bid in page])
            for bid, fields in zip(page, replies, strict=True):
                if any(field.startswith(b"late:") for field in fields or ()):
                    with self._alone(bid):
                        steps.call(pool, "deliver_late", bid, idempotent=False)

    def _delay_next_look(self, bid: str) -> None:
        """
        Delay the next check of a batch with no missing members: jobs may wait for days, and each check reads all of
        Redis.
        """
        _, last = self._next_looks.get(bid, (0.0, 0.0))
        pause = min(max(self._quiet_seconds, 2 * last), _LONGEST_PAUSE_SECONDS)
        self._next_looks[bid] = (time.monotonic() + pause, pause)

    def _suspect(self, pool: Pool, bid: str, now: _Suspicion) -> None:
        before = self._suspicions.get(bid)
        if before is None or before.changed_at != now.changed_at:
            self._suspicions[bid] = now
            return
        del self._suspicions[bid]
        numbers = sorted(before.numbers & now.numbers)
        changed_at, lost = now.changed_at, 0
        for part in slices_of(numbers, _SLICE):
            count = int(steps.call(pool, "lose", bid, changed_at, *part))
            if count < 0:
                break
            lost += count
            changed_at = pool.command("HGET", steps.key(bid), "changed_at") or b""
        if lost:
            log.error(
                "batch %s has lost %s: not found anywhere in Redis (number %s%s); see `sidekiq-py batches show %s`",
                bid,
                counted(lost, "job"),
                ", ".join(map(str, numbers[:_SHOWN])),
                ", …" if len(numbers) > _SHOWN else "",
                bid,
            )


def waiting_numbers(pool: Pool, bid: str) -> set[int]:
    """The numbers of members that have not succeeded, died or gone: each must be somewhere in Redis."""
    key = steps.key(bid)
    bits, end = pool.batch([("GET", f"{key}:succeeded"), ("HGET", key, "next")])
    found: set[int] = set()
    for flat in pages(pool.command, ("HSCAN", f"{key}:blocks"), "COUNT", _FIELDS):
        for start, used in pairs(flat):
            # The other fields are the marks of slices. What ends behind the last number that was given out is not ours.
            if is_number(start) and is_number(used) and int(start) + int(used) <= int(end or 0):
                found.update(_unset(bits or b"", int(start), int(start) + int(used)))
    for flat in pages(pool.command, ("HSCAN", f"{key}:members"), "COUNT", _FIELDS):
        for number, text in pairs(flat):
            if is_number(number) and not text.startswith(b"failed:"):
                found.discard(int(number))
    return found


def _unset(bits: bytes, start: int, end: int) -> Iterable[int]:
    return (at for at in range(start, end) if at >> 3 >= len(bits) or not bits[at >> 3] & (0x80 >> (at & 7)))


def _all_jobs(pool: Pool) -> "Iterator[JobRecord]":
    from sidekiq_py.api.job_record import JobRecord  # as above
    from sidekiq_py.api.processes import WorkSet
    from sidekiq_py.extensions.batches.retrying import standing

    yield from standing(pool)
    for _, _, work in WorkSet(pool=pool):
        yield work.job
    for raw in ruby_runs.payloads(pool):
        yield JobRecord(raw)


def _forget_the_gone(pool: Pool) -> None:
    """Remove expired batches from the lists."""
    for name in (steps.ALL, steps.RUNNING, steps.INVALID):
        for page in lists_of(scored_members(pool, name, None, _PAGE), _PAGE):
            there = pool.batch([("EXISTS", steps.key(name_in(bid))) for bid, _ in page])
            gone = [bid for (bid, _), is_there in zip(page, there, strict=True) if not is_there]
            if gone:
                pool.command("ZREM", name, *gone)


def _waits_for_others(pool: Pool, bid: str) -> bool:
    """
    True if the batch may wait for other children than those that exist. The step that counts them decides; it reads
    them all at once, and ten thousand of them block Redis. So those that have expired are removed here before, in
    slices. If this process dies before the step, the next audit finds that the batch counts more than there are.
    """
    key = steps.key(bid)
    untried = pending = 0
    is_any_gone = False
    for part in slices_of(members(pool, f"{key}:children"), _FIELDS):
        replies = pool.replies([("HMGET", steps.key(child), "v", "complete_at", "success_at") for child in part])
        gone = []
        for child, fields in zip(part, replies, strict=True):
            if not isinstance(fields, list) or fields[0] is None:
                gone.append(child)
            else:
                untried += fields[1] is None
                pending += fields[2] is None
        if gone:
            is_any_gone = True
            there = pool.batch([("EXISTS", steps.key(child)) for child in gone])
            expired = [child for child, is_there in zip(gone, there, strict=True) if not is_there]
            if expired:
                pool.command("SREM", f"{key}:children", *expired)
    return is_any_gone or bool(
        pool.command("HMGET", key, "kids_untried", "kids_pending") != [b"%d" % untried, b"%d" % pending]
    )


def _count_children(pool: Pool, bid: str) -> None:
    """Stop waiting for children that have expired."""
    gone = int(steps.call(pool, "count_children", bid, idempotent=False))
    if gone:
        log.error(
            "batch %s no longer waits for %d of its children, which expired before they ended; give such batches a "
            "longer expires_in",
            bid,
            gone,
        )
