"""
This process's ownership of the jobs that it delivers: one owner for each Redis, shared by all connections to it.

The session works as the engine does. Fetched jobs stay in the owner's in-flight hash until they are settled, the lease
is renewed, the jobs of dead owners are recovered, and while there is a consumer, the poller moves due jobs to their
queues. All this runs in separate threads, so a task that keeps the consumer's thread busy delays neither the lease nor
the schedule.

Owners, scripts, blocking moves and the way jobs are settled are those of a worker's fetcher. The round trip itself
(`fetch`) is not its `Exchange`, which belongs to one capsule and one thread: it sends the acknowledgements that its
processors have queued along with the fetch, and remembers which of a fixed set of queues were paused, empty or long.
Here, connections of several threads each name their own queues with each call. And an acknowledgement is written before
`acknowledge` returns: if it were queued, it would wait for a fetch that a consumer with a full prefetch does not make.
"""

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.config import Config
from sidekiq_py.engine import draws
from sidekiq_py.engine.callback_thread import CallbackThread
from sidekiq_py.engine.consumer.ends import Ends
from sidekiq_py.engine.fetch.settle import settled
from sidekiq_py.engine.notices import Notices
from sidekiq_py.engine.ownership.housekeeper import Housekeeper
from sidekiq_py.engine.ownership.identity import new_identity
from sidekiq_py.engine.ownership.lease_keeper import LeaseKeeper
from sidekiq_py.engine.ownership.owner import Owner, Ownership, UnitOfWork, by_owner, forget, give_back
from sidekiq_py.engine.ownership.recovery import Recovery
from sidekiq_py.engine.upkeep.poller import Poller
from sidekiq_py.engine.upkeep.promoter import Promoter
from sidekiq_py.errors import ArgumentError, PayloadError, RedisError, RedisReplyError
from sidekiq_py.logs import log
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.extension import revoked
from sidekiq_py.redis_access.job_path import in_flight, job_counts
from sidekiq_py.redis_access.job_path.failed_jobs import add_to_dead, trim_dead
from sidekiq_py.redis_access.job_path.settle_script import Effect
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.failure import error_class_name
from sidekiq_py.wire.payload import dump, parse_job

Change = Callable[[dict[str, Any]], dict[str, Any]]
Fetched = tuple[list[UnitOfWork], list[str]]
"""The fetched jobs, and the names of paused queues."""


class ConsumerSession:
    """
    The session of this process at one Redis.

    Args:
        settings: How to connect to the Redis.
        sidekiq_version: Pins the release to write for. None uses the program's setting, or else the release detected.
        lease_seconds: How long the lease lasts, as for a worker.
    """

    def __init__(self, settings: RedisSettings, sidekiq_version: str | None, lease_seconds: float) -> None:
        self.pid = os.getpid()
        self.pool = Pool(settings)
        self.client = Client(pool=self.pool, sidekiq_version=sidekiq_version)
        self.config = Config(redis=settings, sidekiq_version=sidekiq_version, lease_seconds=lease_seconds)
        self.notices = Notices()
        self._lock = threading.Lock()
        self._visitors = 0
        self._is_ending = False
        self._ownership: Ownership | None = None
        self._queues: frozenset[str] = frozenset()
        self._housekeeper: Housekeeper | None = None
        self._lease: LeaseKeeper | None = None
        self._callbacks = CallbackThread()
        self._consumers = 0
        self._poller: Poller | None = None
        self._ends = Ends()

    def __repr__(self) -> str:
        return f"<ConsumerSession {self.pool!r} visitors={self._visitors}>"

    @property
    def is_inherited(self) -> bool:
        """True if the session belongs to the parent process that forked us; its jobs are not ours."""
        return self.pid != os.getpid()

    # ---- connections and consumers

    def visit(self) -> None:
        """Count one more connection that uses the session."""
        with self._lock:
            self._visitors += 1

    def leave(self) -> bool:
        """
        Count one connection less.

        Returns:
            True if that was the last one and the owner has left. If Redis is unreachable, the owner stays and requeues
            its jobs later.
        """
        if self.is_inherited:
            return True
        with self._lock:
            self._visitors -= 1
            if self._visitors > 0:
                return False
            return self._close()

    def begin_consuming(self) -> None:
        """Count one more consumer. While there is one, due jobs are moved to their queues."""
        with self._lock:
            self._consumers += 1
            if self._poller is None:
                promoter = Promoter(
                    self.config.dead_limits,
                    pool=self.pool,
                    repush=self.client.repush,
                    dialect=self._dialect,
                    report=_report,
                )
                self._poller = Poller(
                    self.config,
                    pool=self.pool,
                    identity=new_identity(),
                    promoter=promoter,
                    dialect=self._dialect,
                    report=_report,
                )
                self._poller.start()

    def end_consuming(self) -> None:
        """Count one consumer less."""
        with self._lock:
            self._consumers -= 1
            poller = self._poller if self._consumers <= 0 else None
            if poller is not None:
                self._poller = None
        if poller is not None:
            poller.stop()

    def ownership_for(self, queues: Sequence[str]) -> Ownership:
        """The ownership under which this process takes jobs from these queues; created on the first call."""
        with self._lock:
            if self._ownership is None:
                self._ownership = Ownership(new_identity(), queues, self.config.lease_seconds)
                self._keep(self._ownership)
            elif not self._queues.issuperset(queues):
                self._ownership.widen(queues)
            self._queues |= set(queues)
            return self._ownership

    def _keep(self, ownership: Ownership) -> None:
        """Start the threads that renew the lease and recover jobs."""
        beat_seconds = self.config.lease_beat_seconds
        link = self.pool.new_link()
        recovery = Recovery(self.config, link, ownership, dialect=self._dialect)
        self._lease = LeaseKeeper(self.pool, ownership, beat_seconds, callbacks=self._callbacks, report=_report)
        self._housekeeper = Housekeeper(link, ownership, recovery, beat_seconds, _report, on_beat=self._ends.retry)
        self._lease.start()
        self._housekeeper.start()

    def leave_for_good(self) -> None:
        """Close the session because the process exits."""
        self._is_ending = True
        self._close()

    def _close(self) -> bool:
        ownership, housekeeper, lease = self._ownership, self._housekeeper, self._lease
        if ownership is not None and housekeeper is not None and lease is not None:
            # Stop these first: when the owner leaves the registry, they would take it for declared dead and register
            # again.
            housekeeper.stop()
            lease.stop()
            try:
                self._ends.retry()
                self.pool.run(lambda link: ownership.leave(link, now_seconds()))
            except RedisError as error:
                log.warning("Redis is unreachable; delivered jobs that are not settled go back later: %s", error)
                if not self._is_ending:
                    self._keep(ownership)
                return False
            self._ownership = self._housekeeper = self._lease = None
            self._ends.forget()
            self._queues = frozenset()
        self.pool.close()
        return True

    # ---- fetching

    def fetch(self, queues: Sequence[tuple[str, int]], most: int) -> Fetched:
        """
        Fetch up to *most* jobs.

        Args:
            queues: Queue names in order of precedence, each with its weight; weights of 0 mean strict order.

        Raises:
            RedisError: Redis is unreachable or refused the command.
        """
        if self._is_ending or self._ends.is_full:
            return [], []
        ownership = self.ownership_for([name for name, _ in queues])
        owner = ownership.current
        about = owner.about
        batch = owner.open_batch()
        takes_exclusive = ownership.reserve_exclusive()
        marked: bytes | None = None
        plan = in_flight.FetchPlan(
            owner=owner.name,
            registration="" if owner.published == about else about,
            lease_ms=ownership.lease_ms,
            batch=batch,
            queues=queues,
            max_jobs=most,
            max_bytes=self.config.buffer_bytes,
            seed=draws.bits(31),
            may_take_marked=takes_exclusive,
        )
        asked_at = monotonic()
        try:
            reply = self.pool.run(lambda link: in_flight.FETCH.run(link, *plan.command_parts()), idempotent=False)
            owner.published, owner.confirmed_at = about, asked_at
            self.notices.note(reply[1])
            units = _units(owner, reply)
            if len(units) == 1 and units[0].is_marked:
                marked = units[0].field
        except RedisReplyError as error:
            if error.code != in_flight.FENCED:
                raise
            self.pool.run(lambda link: ownership.refused(link, owner))
            return [], []
        finally:
            if takes_exclusive:
                ownership.release_exclusive(owner, marked)
            owner.close_batch(batch)
        return units, [queues[number if number >= 0 else ~number][0] for number in reply[0]]

    def may_deliver(self, unit: UnitOfWork) -> bool:
        """True if a job that was fetched is still ours. If not, it is forgotten, and goes back if it is in flight."""
        if self._is_held(unit):
            return True
        forget([unit])
        return False

    def _is_held(self, unit: UnitOfWork) -> bool:
        ownership = self._ownership
        if ownership is None or unit.owner is not ownership.current:
            return False
        if not ownership.trusts(monotonic()):
            try:
                self.pool.run(ownership.renew)
            except RedisError:
                return False
        return unit.owner is ownership.current

    def is_revoked(self, jid: str) -> bool:
        """True if the job was revoked. False if Redis is unreachable."""
        if not self.notices.may_be_revoked(jid):
            return False
        try:
            return revoked.is_revoked(self.pool, jid, now_seconds())
        except RedisError:
            return False

    # ---- settling

    def acknowledge(self, unit: UnitOfWork) -> None:
        """Acknowledge a job. Does not raise: if Redis is unreachable, the acknowledgement is sent later."""
        self._ends.write(partial(self._acknowledge, unit))

    def dead_letter(self, unit: UnitOfWork, reason: str, error_class: str) -> None:
        """Move a job to `dead`, so that it is not delivered again. Does not raise."""
        # With the reason why it is dead, for the Web UI.
        dead = self._rewritten(unit.raw, lambda job: {**job, "error_message": reason, "error_class": error_class})
        self._ends.write(partial(self._dead_letter, unit, dead, now_seconds()))

    def give_back(self, units: Sequence[UnitOfWork]) -> None:
        """
        Return jobs to their queues, so that they are fetched next, in the same order.

        Does not raise: jobs that could not be returned now go back later.
        """
        for owner, theirs in by_owner(units).items():
            try:
                self.pool.run(partial(give_back, owner=owner, units=theirs))
            except RedisError as error:
                # The housekeeper requeues jobs that are in flight and unknown here.
                log.warning("jobs could not be requeued yet: %s", error)
            forget(theirs)

    def put_last(self, unit: UnitOfWork, change: Change) -> None:
        """
        Put a job at the end of its queue, because its consumer wants it later. Does not raise.

        Args:
            change: Takes the payload and returns the one to write.
        """
        self._ends.write(partial(self._put_last, unit, self._rewritten(unit.raw, change)))

    def _put_last(self, unit: UnitOfWork, raw: bytes) -> None:
        vital = [("SADD", keys.QUEUES, unit.queue), ("LPUSH", keys.queue(unit.queue), raw)]
        self._settle(unit, vital, ())

    def _acknowledge(self, unit: UnitOfWork) -> None:
        self._settle(unit, (), job_counts.count_commands(now_seconds(), failed=False))

    def _dead_letter(self, unit: UnitOfWork, member: bytes, now: float) -> None:
        vital = [add_to_dead(member, now), *trim_dead(now, self.config.dead_limits)]
        self._settle(unit, vital, job_counts.count_commands(now, failed=True))

    def _settle(self, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> None:
        if unit.is_marked:
            counters = (*counters, in_flight.clear_suspect_command(unit.raw))
        self.pool.run(lambda link: settled(link, unit, vital, counters))
        forget([unit])

    def _rewritten(self, raw: bytes, change: Change) -> bytes:
        """The changed job's bytes; the original ones if they cannot be parsed or the change cannot be written."""
        try:
            return dump(change(parse_job(raw)), dialect=self._dialect())
        except (PayloadError, ArgumentError, TypeError):
            return raw

    def _dialect(self) -> Dialect:
        return self.client.detection.dialect(now_seconds())


def _units(owner: Owner, reply: Sequence[Any]) -> list[UnitOfWork]:
    """The jobs in a fetch's reply, which are also added to the owner's units."""
    now = monotonic()
    units = []
    # The first two elements are the paused queues and the notices.
    for field, raw in zip(reply[2::2], reply[3::2], strict=True):
        _, is_marked, queue = in_flight.split_field(field)
        unit = owner.units[field] = UnitOfWork(raw, queue, owner, field, is_marked, now)
        units.append(unit)
    return units


def _report(error: BaseException, context: dict[str, Any]) -> None:
    log.error("%s: %s: %s", context.get("context", "transport"), error_class_name(error), error)
