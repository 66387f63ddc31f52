"""
Owners: the name under which this process holds the jobs it has taken.

An `Owner` is one epoch of a process: a name, an in-flight hash, a lease. A process that was frozen or cut off may find
that others have recovered its jobs. It then drops the jobs it had not started and continues as the next epoch. Nothing
that the old epoch still does can affect a later run of the same job.
"""

import itertools
import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.ownership.host import ProcessPlace, registration
from sidekiq_py.logs import counted, log
from sidekiq_py.outcome import Question
from sidekiq_py.redis_access.connection.link import Command, Link
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.redis_access.job_path.settle_script import Effect, Tally
from sidekiq_py.wire.payload import parse_job_or_empty


class Owner:
    """
    One epoch of a process.

    Args:
        name: `<identity>:<epoch>`.
        about: The text to write into the registry.

    Attributes:
        published: The text that is in the registry now; at first empty. Recovery looks for inboxes of the queues that
            it names.
        units: All jobs taken and not yet known to be settled, by field.
        outstanding: The batches that were requested and whose reply has not been read.
        exclusive_field: The field of the marked job that `Ownership.reserve_exclusive` admitted.
        confirmed_at: When this owner was last known to be registered, on the monotonic clock.
        renewed_at: When the request was sent that last renewed the lease.
        unknown: Queue and bytes of the jobs that the last comparison saw in an inbox and did not know, each with the
            moves that were open when it was first seen.
    """

    def __init__(self, name: str, about: str) -> None:
        self.name = name
        self.about = about
        self.published = ""
        self.units: dict[bytes, UnitOfWork] = {}
        self.outstanding: set[int] = set()
        self.exclusive_field: bytes = b""
        self.confirmed_at = monotonic()
        self.renewed_at = -math.inf
        self.unknown: dict[tuple[str, bytes], frozenset[int]] = {}
        self._batches = itertools.count(1)

    def __repr__(self) -> str:
        return f"<Owner {self.name} units={len(self.units)}>"

    @property
    def is_registered(self) -> bool:
        """True once a fetch has entered this owner in the registry."""
        return bool(self.published)

    def note_renewed(self, asked_at: float) -> None:
        """Note that the request that was sent then has renewed the lease."""
        # Not the current time: the reply may have taken most of a lease. And another thread may know more by now.
        self.confirmed_at = max(self.confirmed_at, asked_at)
        self.renewed_at = max(self.renewed_at, asked_at)

    def open_batch(self) -> int:
        """Return a number for a fetch that is about to be sent."""
        batch = next(self._batches)
        self.outstanding.add(batch)
        return batch

    def close_batch(self, batch: int) -> None:
        """Note that the batch's reply was read and its jobs are in `units`, or that it will never be read."""
        self.outstanding.discard(batch)

    def note_returned(self, jobs: Iterable[tuple[str, bytes]]) -> None:
        """Note that these jobs, each given by its queue and its bytes, went back: if they come again, they are new."""
        for job in jobs:
            self.unknown.pop(job, None)

    def listed(self, queue: str, before: Collection["UnitOfWork"]) -> Counter[bytes]:
        """
        Count, by their bytes, the jobs known to be in this owner's inbox for *queue*.

        Args:
            before: The jobs known before the inbox was read. One that has gone back since may be fetched again at any
                moment, and its bytes are still the same.
        """
        return _listed_in(before, queue) | _listed_in(list(self.units.values()), queue)

    def orphans(self, fields: Iterable[bytes]) -> list[bytes]:
        """
        Return the *fields* that this process does not know, because the reply to their fetch was lost.

        A batch is closed after its jobs are in `units`. So the batch is checked first: if its reply is read between the
        two checks, the second one finds the job.
        """
        return [
            field
            for field in fields
            if in_flight.split_field(field)[0] not in self.outstanding and field not in self.units
        ]


class Ownership:
    """
    The current epoch of this process, shared by all its capsules.

    Args:
        identity: The process's identity, as in the heartbeat.
        queues: The queues of all capsules; recovery looks for their inboxes.
        on_epoch: Called with the name of each new owner.
        warn: Writes to the log. The thread that renews the lease waits for it.
    """

    def __init__(
        self,
        identity: str,
        queues: Sequence[str],
        lease_seconds: float,
        on_epoch: Callable[[str], None] = lambda name: None,
        warn: Callable[[str], object] = log.warning,
    ) -> None:
        self.identity = identity
        self._queues = list(queues)
        self._place = ProcessPlace.here()
        self._about = registration(self._place, queues)
        self._lock = threading.Lock()
        self._exclusive_lock = threading.Lock()
        self._epoch = 0
        self._on_epoch = on_epoch
        # Held during a comparison: what another one puts back may be fetched again before this one puts it back.
        self._comparing = threading.Lock()
        # Earlier epochs that may still have jobs in flight.
        self._former: list[Owner] = []
        self._warn = warn
        self.lease_ms = round(lease_seconds * 1000)
        # This long after the last confirmation the lease may have run out: no job starts without asking Redis first.
        self.trust_seconds = lease_seconds * 0.6
        self.current = self._next_owner()

    def widen(self, queues: Sequence[str]) -> None:
        """
        Allow jobs from these queues, too. No job may be moved from them before a fetch has written them to the
        registry.
        """
        with self._lock:
            # Queues that are no longer served stay in the list: their inboxes may still hold jobs.
            self._queues = list(dict.fromkeys((*self._queues, *queues)))
            self._about = self.current.about = registration(self._place, self._queues)

    def renew(self, link: Link) -> None:
        """
        Renew the lease of the current owner, or continue as the next epoch if it was recovered.

        Raises:
            RedisError: Redis did not reply.
        """
        owner = self.current
        asked_at = monotonic()
        if owner.is_registered:
            if in_flight.renew(link, owner.name, owner.published, self.lease_ms):
                owner.note_renewed(asked_at)
            else:
                self.advance(owner)
        else:
            owner.confirmed_at = asked_at

    def refused(self, link: Link, owner: Owner) -> None:
        """Continue as the next epoch because *owner* is not in the registry, unless Redis has only lost that."""
        if not (owner.is_registered and in_flight.renew(link, owner.name, owner.published, self.lease_ms)):
            self.advance(owner)

    def advance(self, fenced: Owner) -> None:
        """Continue as the next epoch because *fenced* was recovered."""
        with self._lock:
            if self.current is not fenced:
                return
            self._former.append(fenced)
            self.current = self._next_owner()
        self._warn(_loss(len(fenced.units)))

    def reserve_exclusive(self) -> bool:
        """
        Reserve the right to fetch a suspect that has already counted a death. A process runs one such job at a time.

        Returns:
            True if the caller now holds the reservation, until it calls `release_exclusive`.
        """
        if not self._exclusive_lock.acquire(blocking=False):
            return False
        owner = self.current
        if owner.exclusive_field in owner.units:
            self._exclusive_lock.release()
            return False
        return True

    def release_exclusive(self, owner: Owner, field: bytes | None) -> None:
        """
        Release the reservation. If a marked job was fetched, *field* is its field, and no other such job is fetched
        until it is settled.
        """
        if field is not None:
            owner.exclusive_field = field
        self._exclusive_lock.release()

    def trusts(self, now: float) -> bool:
        """Returns True if the current owner is registered and was confirmed recently enough to start a job."""
        owner = self.current
        return owner.is_registered and now - owner.confirmed_at < self.trust_seconds

    def give_back_orphans(self, link: Link) -> int:
        """
        Compare the jobs in flight in Redis with those that this process knows, and put back the rest. The same round
        trip renews the lease.

        A job in an inbox does not carry the number of the move that brought it. So an unknown one goes back only if it
        is still there after all moves have ended that were open when it was first seen.

        Returns:
            The number of jobs that went back.
        """
        with self._comparing:
            return self._compared(link, ())[0]

    def give_back_orphans_and_ask(self, link: Link, *questions: Command) -> list[Any]:
        """
        Do the same as `give_back_orphans` and send commands in the same round trip. Returns the replies to them; one
        that Redis refuses is in the list as a `RedisReplyError`.
        """
        with self._comparing:
            return self._compared(link, questions)[1]

    def _compared(self, link: Link, questions: Sequence[Command]) -> tuple[int, list[Any]]:
        """Put orphans back. Returns how many went back, and the replies to *questions*."""
        # Usually others have recovered an earlier epoch; but nobody has if Redis has lost its entry and its lease.
        moved = sum(self._compared_former(link, owner) for owner in tuple(self._former))
        owner = self.current
        if owner.is_registered:
            queues = list(self._queues)
            renewal = in_flight.renewal(owner.name, self.lease_ms)
            asked_at, before = monotonic(), list(owner.units.values())
            fields, inboxes, answers = in_flight.held(link, owner.name, queues, [*renewal, *questions])
            renewed, answers = answers[: len(renewal)], answers[len(renewal) :]
            # Otherwise the lease keeper finds out what is wrong.
            if renewed == in_flight.RENEWED:
                owner.note_renewed(asked_at)
            moved += self._put_back(link, owner, before, fields, queues, inboxes)
        else:
            answers = link.batch(questions)
        if moved:
            log.info("put back %s that a failed call to Redis had left in flight", counted(moved, "job"))
        return moved, answers

    def _compared_former(self, link: Link, owner: Owner) -> int:
        """Put the orphans of an earlier epoch back, and forget the epoch once it has nothing in flight."""
        queues = list(self._queues)
        is_over, before = not owner.outstanding, list(owner.units.values())
        fields, inboxes, _ = in_flight.held(link, owner.name, queues)
        if is_over and not fields and not any(inboxes):
            with self._lock:
                self._former = [former for former in self._former if former is not owner]
            return 0
        return self._put_back(link, owner, before, fields, queues, inboxes)

    def _put_back(
        self,
        link: Link,
        owner: Owner,
        before: Collection["UnitOfWork"],
        fields: Sequence[bytes],
        queues: Sequence[str],
        inboxes: Sequence[Sequence[bytes]],
    ) -> int:
        """
        Put an owner's orphans back.

        Args:
            before: The jobs that this process knew before Redis was asked.
            inboxes: The jobs in the inbox of each queue.
        """
        moved = in_flight.give_back(link, owner.name, owner.orphans(fields))
        listed = dict(zip(queues, inboxes, strict=True))
        return moved + in_flight.give_back_listed(link, owner.name, self._listed_orphans(owner, before, listed))

    def leave(self, link: Link, now: float, *, but: Collection["UnitOfWork"] = ()) -> None:
        """
        Remove this owner from the registry, even if this process never learned that it was entered there, and put back
        all its jobs.

        Args:
            but: Jobs that still run here; `let_go` puts them back.
        """
        in_flight.fence(link, self.current.name, certain=True, now=now)
        still_here = by_owner(but)
        for owner in (self.current, *reversed(self._former)):
            self._put_all_back(link, owner, still_here.get(owner, ()))

    def _put_all_back(self, link: Link, owner: Owner, but: Collection["UnitOfWork"]) -> None:
        running = {unit.field for unit in but}
        queues = list(self._queues)
        held, inboxes, _ = in_flight.held(link, owner.name, queues)
        fields = [field for field in held if field not in running]
        in_flight.give_back(link, owner.name, in_flight.sorted_by_batch(fields))
        for queue, listed in zip(queues, inboxes, strict=True):
            running_there = Counter(unit.raw for unit in but if unit.is_listed and unit.queue == queue)
            jobs = [(queue, raw) for raw in _without(listed, running_there)]
            in_flight.give_back_listed(link, owner.name, jobs)

    def let_go(self, link: Link, units: Sequence["UnitOfWork"]) -> None:
        """Put back the jobs that still run, just before this process exits and ends them. It must exit at once."""
        held = by_owner(units)
        if held:
            jobs = [
                (owner.name, [unit.field for unit in theirs], _listed_among(theirs)) for owner, theirs in held.items()
            ]
            in_flight.give_back_at_process_end(link, jobs)

    def _listed_orphans(
        self, owner: Owner, before: Collection["UnitOfWork"], inboxes: Mapping[str, Sequence[bytes]]
    ) -> list[tuple[str, bytes]]:
        """Return queue and bytes of the jobs in inboxes whose reply was lost, in the order in which they should run."""
        under_way = frozenset(owner.outstanding)
        unknown: dict[tuple[str, bytes], frozenset[int]] = {}
        orphans = []
        for queue, raws in inboxes.items():
            for raw in _without(raws, owner.listed(queue, before)) if raws else ():
                moves = owner.unknown.get((queue, raw), under_way)
                if moves.isdisjoint(under_way):
                    orphans.append((queue, raw))
                else:
                    unknown[queue, raw] = moves
        owner.unknown = unknown
        return orphans

    def _next_owner(self) -> Owner:
        self._epoch += 1
        owner = Owner(f"{self.identity}:{self._epoch}", self._about)
        self._on_epoch(owner.name)
        return owner


def _listed_in(units: Iterable["UnitOfWork"], queue: str) -> Counter[bytes]:
    return Counter(unit.raw for unit in units if unit.is_listed and unit.queue == queue)


def _without(raws: Sequence[bytes], known: Counter[bytes]) -> list[bytes]:
    """Return the contents of an inbox except *known*. The oldest job comes first and should run first."""
    left = known.copy()
    others = []
    for raw in reversed(raws):
        if left[raw] > 0:
            left[raw] -= 1
        else:
            others.append(raw)
    return others


def _loss(jobs: int) -> str:
    """Return the warning for an owner that Redis does not know: it was fenced, or all data is gone."""
    start = "Redis no longer knows this process: it was considered dead, or Redis has lost its data"
    if not jobs:
        return f"{start}. It held no jobs and continues under a new entry"
    return (
        f"{start}. Other workers have taken over the {counted(jobs, 'job')} that it held, unless the data is gone. "
        "It drops jobs that it had not started; running jobs will not be settled twice"
    )


@dataclass(slots=True, eq=False)
class UnitOfWork:
    """
    One job that this process has taken.

    Args:
        raw: The job's original bytes.
        queue: The name of the queue it came from.
        owner: The owner under which it is in flight. None with the basic fetcher, and for a job that was acknowledged
            early.
        field: Its field in the owner's in-flight hash, or the equivalent for a job in an inbox.
        is_marked: True for a suspect, which is marked as started.
        fetched_at: When it was fetched, on the monotonic clock.
        notices_at: When notices about it were asked for after it was fetched, on the same clock.

    Attributes:
        is_acknowledged_early: True if it runs at most once and has left Redis, apart from what is under `kept_by`.
        is_listed: True if it is in an inbox, where its bytes identify it, and not in the in-flight hash.
        kept_by: The name under which its bytes are kept while it runs under a hard limit; otherwise empty.
        end: What its success has to write, until that is sent: the vital commands and the counters, or its share of a
            command that settles several jobs (`Tally`).
        question: What to ask Redis along with `end`.
        is_sent_again: True if its success was sent before, with unknown result.
        unheld_token: What its end is written under if another program has overwritten the key that held it in flight;
            otherwise empty.
    """

    raw: bytes
    queue: str
    owner: Owner | None
    field: bytes
    is_marked: bool
    fetched_at: float
    notices_at: float = 0.0
    is_listed: bool = False
    is_acknowledged_early: bool = False
    is_sent_again: bool = False
    kept_by: str = ""
    unheld_token: str = ""
    end: Tally | tuple[Sequence[Effect], Sequence[Effect]] | None = None
    question: Question | None = None

    def __repr__(self) -> str:
        return f"<UnitOfWork {self.field!r} queue={self.queue} bytes={len(self.raw)}>"

    def __str__(self) -> str:
        """Which job it is, for log lines."""
        payload = parse_job_or_empty(self.raw)
        name = f"{payload['class']} with jid {payload.get('jid')}" if payload else "a payload that cannot be read"
        return f"{name}, {len(self.raw):,} bytes from queue {self.queue}"

    @property
    def holder(self) -> Owner:
        """The owner of a job that has one."""
        assert self.owner is not None
        return self.owner

    @property
    def listed(self) -> bytes | None:
        """The job's bytes if it is in an inbox, where they identify it; otherwise None."""
        return self.raw if self.is_listed else None


def forget(units: Iterable[UnitOfWork]) -> None:
    """
    Drop jobs from their owners' tables. A job that is still in flight is an orphan then, and goes back to its queue at
    the next comparison.
    """
    for unit in units:
        if unit.owner is not None:
            unit.owner.units.pop(unit.field, None)


def by_owner(units: Iterable[UnitOfWork]) -> dict[Owner, list[UnitOfWork]]:
    """Group the jobs that have an owner."""
    found: dict[Owner, list[UnitOfWork]] = {}
    for unit in units:
        if unit.owner is not None:
            found.setdefault(unit.owner, []).append(unit)
    return found


def give_back(link: Link, owner: Owner, units: Sequence[UnitOfWork]) -> None:
    """
    Put jobs of *owner* back in their queues. The first of them will run first.

    If another program has overwritten the key that held a job, only this process still has its bytes.
    """
    try:
        listed = _listed_among(units)
        moved = in_flight.give_back(link, owner.name, [unit.field for unit in units], listed)
        if moved < len(units):
            # With a token, the job's end has been written.
            unwritten = {unit.field: unit.raw for unit in units if not unit.unheld_token}
            in_flight.give_back_overwritten(link, owner.name, unwritten, listed)
    finally:
        owner.note_returned((unit.queue, unit.raw) for unit in units)


def _listed_among(units: Iterable[UnitOfWork]) -> dict[bytes, bytes]:
    """Return the bytes of those units that are in inboxes, by field."""
    return {unit.field: unit.raw for unit in units if unit.is_listed}
