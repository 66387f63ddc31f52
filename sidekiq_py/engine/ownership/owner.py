"""
Who this process is to the jobs it has taken.

An `Owner` is one epoch of a process: a name, an in-flight hash, a lease. When a process finds that it was recovered
(it had been frozen, or cut off), it drops what it had not started and goes on as the next epoch: nothing that the old
epoch still does can touch a later run of the same job.
"""

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.ownership.host import ProcessPlace, registration
from sidekiq_py.logs import counted
from sidekiq_py.outcome import Question
from sidekiq_py.redis_access.connection.link import Command, Link
from sidekiq_py.redis_access.connection.replies import raise_first
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.redis_access.job_path.settle_script import Effect, Tally

_log = logging.getLogger("sidekiq")


class Owner:
    """
    One epoch.

    Args:
        name: `<identity>:<epoch>`.
        about: What to write into the registry.

    Attributes:
        told: What stands there: recovery looks for inboxes of the queues that it names.
        units: Field to job of everything taken and not yet known to be settled.
        outstanding: Batches that were asked for and whose reply has not been read.
        exclusive_field: The marked job that was let in by `Ownership.reserve_exclusive`.
        confirmed_at: When this owner was last known to be entered, on the monotonic clock.
    """

    def __init__(self, name: str, about: str) -> None:
        self.name = name
        self.about = about
        self.told = ""
        self.units: dict[bytes, UnitOfWork] = {}
        self.outstanding: set[int] = set()
        self.is_registered = False
        self.exclusive_field: bytes = b""
        self.confirmed_at = monotonic()
        self._batches = itertools.count(1)

    def __repr__(self) -> str:
        return f"<Owner {self.name} units={len(self.units)}>"

    def open_batch(self) -> int:
        """A number for a fetch that is about to be sent."""
        batch = next(self._batches)
        self.outstanding.add(batch)
        return batch

    def close_batch(self, batch: int) -> None:
        """The reply was read and its jobs are in `units`, or it never will be."""
        self.outstanding.discard(batch)

    def listed(self, queue: str) -> Counter[bytes]:
        """The bytes of the jobs that are known to stand in this owner's inbox for *queue*."""
        return Counter(unit.raw for unit in list(self.units.values()) if unit.is_listed and unit.queue == queue)

    def orphans(self, fields: Iterable[bytes]) -> list[bytes]:
        """
        Those of *fields* that nobody here knows of: their fetch's reply was lost.

        A batch is closed when its jobs stand in `units`. So it is looked up first: a reply that is read between the two
        looks is found by the second.
        """
        return [
            field
            for field in fields
            if in_flight.split_field(field)[0] not in self.outstanding and field not in self.units
        ]


class Ownership:
    """
    The present epoch of this process, shared by all its capsules.

    Args:
        identity: As in the heartbeat.
        queues: Of all capsules: where recovery looks for inboxes.
        on_epoch: Called with the name of each new owner.
        warn: Writes to the log; the thread that renews the lease waits for it.
    """

    def __init__(
        self,
        identity: str,
        queues: Sequence[str],
        lease_seconds: float,
        on_epoch: Callable[[str], None] = lambda name: None,
        warn: Callable[[str], object] = _log.warning,
    ) -> None:
        self.identity = identity
        self._queues = list(queues)
        self._place = ProcessPlace.here()
        self._about = registration(self._place, queues)
        self._lock = threading.Lock()
        self._exclusive_lock = threading.Lock()
        self._epoch = 0
        self._on_epoch = on_epoch
        # Jobs seen in an inbox that nobody here knew of, each with the moves that were under way then.
        self._unknown: dict[tuple[str, str, bytes], frozenset[int]] = {}
        self._warn = warn
        self.lease_ms = round(lease_seconds * 1000)
        # Past this many seconds without word from Redis the lease may have run out: no job is started unasked.
        self.trust_seconds = lease_seconds * 0.6
        self.current = self._next_owner()

    def widen(self, queues: Sequence[str]) -> None:
        """Jobs may come from these queues, too. None may be moved from there before a fetch has written that."""
        with self._lock:
            # One that is served no more stays: something may still lie in its inbox.
            self._queues = list(dict.fromkeys((*self._queues, *queues)))
            self._about = self.current.about = registration(self._place, self._queues)

    def renew(self, link: Link) -> Owner:
        """
        Renew the lease of the present owner, or go on under the next epoch if it was recovered.

        Raises:
            RedisError: Redis did not say.
        """
        owner = self.current
        asked_at = monotonic()
        if owner.is_registered:
            if in_flight.renew(link, owner.name, self.lease_ms):
                # Not from now: the reply may have taken most of a lease. Somebody else may have asked since.
                owner.confirmed_at = max(owner.confirmed_at, asked_at)
            else:
                self.advance(owner)
        else:
            owner.confirmed_at = asked_at
        return self.current

    def advance(self, fenced: Owner) -> Owner:
        """*fenced* was recovered: go on under the next epoch. Returns the present owner."""
        with self._lock:
            if self.current is not fenced:
                return self.current
            following = self.current = self._next_owner()
        self._warn(_loss(len(fenced.units)))
        return following

    def reserve_exclusive(self) -> bool:
        """
        Ask for leave to fetch a suspect that already bears a death: one such job runs in a process at a time.

        Returns:
            True: the caller holds the leave until `release_exclusive`.
        """
        if not self._exclusive_lock.acquire(blocking=False):
            return False
        owner = self.current
        if owner.exclusive_field in owner.units:
            self._exclusive_lock.release()
            return False
        return True

    def release_exclusive(self, owner: Owner, field: bytes | None) -> None:
        """Give the leave back; *field* is the marked job that came, which keeps others away until it is settled."""
        if field is not None:
            owner.exclusive_field = field
        self._exclusive_lock.release()

    def trusts(self, now: float) -> bool:
        """The present owner was confirmed lately enough to start a job."""
        return now - self.current.confirmed_at < self.trust_seconds

    def give_back_orphans(self, link: Link) -> int:
        """
        Compare what Redis has in flight with what is known here, and give back the rest.

        A job in an inbox bears no number of the move that brought it. So one that nobody knows goes back when it is
        still there after all moves have ended that were under way when it was first seen.

        Returns:
            How many jobs went back.
        """
        return self._compared(link, ())[0]

    def give_back_orphans_and_ask(self, link: Link, question: Command) -> Any:
        """As `give_back_orphans`, with a question in the same round trip; returns the answer to it."""
        return self._compared(link, [question])[1][0]

    def _compared(self, link: Link, questions: Sequence[Command]) -> tuple[int, list[Any]]:
        """How many jobs went back, and the answers."""
        owner = self.current
        if not owner.is_registered:
            return 0, raise_first(link.batch(questions))
        queues = list(self._queues)
        fields, inboxes, answers = in_flight.held(link, owner.name, queues, questions)
        orphans = owner.orphans(fields)
        moved = in_flight.give_back(link, owner.name, orphans) if orphans else 0
        moved += self._give_back_listed(link, owner, self._listed_orphans(owner, queues, raise_first(inboxes)))
        if moved:
            _log.info("gave back %s whose fetch had lost its reply", counted(moved, "job"))
        return moved, raise_first(answers)

    def leave(self, link: Link, now: float, *, but: Collection["UnitOfWork"] = ()) -> None:
        """
        Strike this owner off, though nobody here may have heard of its entry, and give back whatever it holds.

        Args:
            but: Jobs that still run here; `let_go` puts them back.
        """
        owner = self.current
        in_flight.fence(link, owner.name, certain=True, now=now)
        running = {unit.field for unit in but}
        fields = [field for field in in_flight.fields(link, owner.name) if field not in running]
        in_flight.give_back(link, owner.name, in_flight.sorted_by_batch(fields))
        queues = list(self._queues)
        for queue, listed in zip(queues, in_flight.listed(link, owner.name, queues), strict=True):
            running_there = Counter(unit.raw for unit in but if unit.is_listed and unit.queue == queue)
            self._give_back_listed(link, owner, [(queue, raw) for raw in _without(listed, running_there)])

    def let_go(self, link: Link, units: Sequence["UnitOfWork"]) -> None:
        """Give jobs back as this process ends, which must be at once, and they with it."""
        if units:
            fields = [unit.field for unit in units]
            in_flight.give_back_at_process_end(link, self.current.name, fields, listed_among(units))

    def _listed_orphans(
        self, owner: Owner, queues: Sequence[str], found: Sequence[list[bytes]]
    ) -> list[tuple[str, bytes]]:
        """Queue and bytes of what stands in an inbox and has lost its reply; what is to run first comes first."""
        under_way = frozenset(owner.outstanding)
        unknown: dict[tuple[str, str, bytes], frozenset[int]] = {}
        orphans = []
        for queue, raws in zip(queues, found, strict=True):
            for raw in _without(raws, owner.listed(queue)) if raws else ():
                moves = self._unknown.get((owner.name, queue, raw), under_way)
                if moves.isdisjoint(under_way):
                    orphans.append((queue, raw))
                else:
                    unknown[owner.name, queue, raw] = moves
        self._unknown = unknown
        return orphans

    @staticmethod
    def _give_back_listed(link: Link, owner: Owner, jobs: Sequence[tuple[str, bytes]]) -> int:
        listed = {f"0.{number}@{queue}".encode(): raw for number, (queue, raw) in enumerate(jobs)}
        return in_flight.give_back(link, owner.name, listed, listed) if listed else 0

    def _next_owner(self) -> Owner:
        self._epoch += 1
        owner = Owner(f"{self.identity}:{self._epoch}", self._about)
        self._on_epoch(owner.name)
        return owner


def _without(raws: Sequence[bytes], known: Counter[bytes]) -> list[bytes]:
    """What stands in an inbox besides *known*; the oldest, which is to run first, comes first."""
    left = known.copy()
    others = []
    for raw in reversed(raws):
        if left[raw] > 0:
            left[raw] -= 1
        else:
            others.append(raw)
    return others


def _loss(jobs: int) -> str:
    """What it means that Redis knows nothing of an owner: it was fenced, or all data is gone."""
    start = "Redis does not know this process any more: it was taken for dead, or Redis has lost its data"
    if not jobs:
        return f"{start}. It held no job, and goes on under a new entry"
    return (
        f"{start}. What it held, {counted(jobs, 'job')}, went to others, or was lost with the data. "
        "It drops what it had not started; what runs will not be settled twice"
    )


class UnitOfWork:
    """
    One job that this process has taken.

    Args:
        raw: The original bytes.
        queue: The name of the queue it came from.
        owner: Under which it is in flight, and `field`, its field there; None with the basic fetcher, and for a job
            that was acknowledged early.
        is_marked: A suspect, marked as started.
        fetched_at: On the monotonic clock.

    Attributes:
        is_acknowledged_early: It runs at most once, and has left Redis but for `kept_by`.
        is_listed: It stands in an inbox, where its bytes name it, and not in the in-flight hash.
        kept_by: The name under which its bytes are kept aside while it runs under a hard limit; else empty.
        end: What its success writes, until that is handed in: the vital commands and the counters, or its share of
            what others write, too.
        question: What it asks along with that.
        is_sent_again: Its success was handed in before, and whether that went through is not known.
    """

    __slots__ = (
        *(
            "end",
            "fetched_at",
            "field",
            "is_listed",
            "is_marked",
            "is_sent_again",
            "is_acknowledged_early",
            "kept_by",
            "owner",
        ),
        *("question", "queue", "raw"),
    )

    def __init__(
        self,
        raw: bytes,
        queue: str,
        owner: Owner | None,
        field: bytes,
        is_marked: bool,
        fetched_at: float,
        is_listed: bool = False,
    ) -> None:
        self.raw = raw
        self.queue = queue
        self.owner = owner
        self.field = field
        self.is_marked = is_marked
        self.fetched_at = fetched_at
        self.is_listed = is_listed
        self.is_acknowledged_early = self.is_sent_again = False
        self.kept_by = ""
        self.end: Tally | tuple[Sequence[Effect], Sequence[Effect]] | None = None
        self.question: Question | None = None

    def __repr__(self) -> str:
        return f"<UnitOfWork {self.field!r} queue={self.queue} bytes={len(self.raw)}>"

    @property
    def listed(self) -> bytes | None:
        """What names it in flight beside its field: its bytes, where it stands in an inbox."""
        return self.raw if self.is_listed else None


def listed_among(units: Iterable[UnitOfWork]) -> dict[bytes, bytes]:
    """What `UnitOfWork.listed` says of those that stand in inboxes, by field."""
    return {unit.field: unit.raw for unit in units if unit.is_listed}
