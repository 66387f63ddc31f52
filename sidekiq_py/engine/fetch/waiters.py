"""
Waits for jobs on several queues at once, without losing any.

Redis has no command that blocks on several lists and moves an element, so each queue gets a connection of its own with
a blocking move on it. The move puts the job into this owner's inbox, where it stays in flight until it is settled. The
same packet carries one check for rare conditions (`in_flight.TakePlan`): paused queues, suspects, revoked jobs, a lost
lease. Only if one of them holds does a script have to claim the job.

When jobs arrive one at a time, a queue uses more than one connection. The connection that brought a job is used again
when that job ends: it carries the acknowledgement and the next move in one packet. Meanwhile another connection waits,
so no job is delayed. Most of what such a lone job costs Redis is waking up and reading a socket, and this way Redis
does so once less per job.
"""

import select
import threading
from collections.abc import Callable, Iterable, Sequence

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.fetch.fetcher import claimed
from sidekiq_py.engine.fetch.settle import Acknowledgements, Settler
from sidekiq_py.engine.ownership.owner import Owner, Ownership, UnitOfWork, forget
from sidekiq_py.errors import RedisConnectionError, RedisError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.connection.link import SKIP_PROBE, Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.registry import OnNotices

# The timeout of each blocking move. It bounds how long a dead connection goes unnoticed and how long a quiet process
# has moves open. It is shorter than an ordinary lease, so a process that was recovered has no move open. Ruby's BRPOP
# waits 2 s; but all threads of a Ruby process together wake an idle Redis once, and each of our connections does.
BLOCK_SECONDS = 5
# One connection waits while the jobs of the others run. With two, in a process that ran 100 jobs of 5 ms per second,
# every third acknowledgement found no move to travel with.
_MOST_PER_QUEUE = 3
# Redis reads 16 kB at a time, and may become able to write again between two reads.
_ONE_READ_BYTES = 15_000


class Waiter:
    """A connection that blocks on one queue."""

    def __init__(self, link: Link, queue: str) -> None:
        self.link = link
        self.queue = queue
        self.owner: Owner | None = None
        self.plan: in_flight.TakePlan | None = None
        self.batch = 0
        # Sent before the move, and not confirmed yet.
        self.acknowledgements: Acknowledgements | None = None
        # True if the acknowledgements get replies of their own.
        self._is_answered = True
        # The generation of the socket that was probed for CLIENT REPLY SKIP, and whether the server supports it there.
        self._probed_on = 0
        self._skips = False
        # The deadline for the reply: when a network goes away silently, no connection is closed.
        self.overdue_at = 0.0
        # After a job could not be claimed (paused, or must run alone), its queue is left alone until then.
        self.cool_until = 0.0
        # The poll in which a thread waits for the reply.
        self.watched_by: select.poll | None = None

    @property
    def is_open(self) -> bool:
        """True while a move has been sent and its reply not been read."""
        return self.owner is not None

    def send(
        self, owner: Owner, acknowledgements: Acknowledgements | None, *, wants_notices: bool, is_trusted: bool
    ) -> None:
        """
        Send the acknowledgements, the move, and the check that goes with it, in this order.

        Replies to the acknowledgements would be sent by themselves, because the move behind them blocks, and would wake
        this process for nothing. When jobs arrive one at a time, that is one in three of the writes that a job costs
        Redis. So the acknowledgements get no reply if the server supports CLIENT REPLY SKIP, once it has accepted some
        on this connection. An error that makes Redis refuse them (READONLY, NOREPLICAS) also makes it refuse the move
        behind them, because it reads both at once unless they are large. But a user may lose the right to LREM alone,
        so a reply is still requested from time to time (`may_be_unanswered`).

        Args:
            is_trusted: True if the owner's lease cannot have run out. Otherwise another process may have recovered the
                jobs, and only a reply tells whether they were still this owner's. Without it they would count as
                processed twice.
        """
        self.acknowledgements = acknowledgements
        plan = self.plan = in_flight.take_plan(owner.name, (self.queue,), wants_notices=wants_notices)
        self.owner, self.batch = owner, owner.open_batch()
        # With its `timeout` setting, Redis closes connections that were idle while every processor was busy.
        self.link.drop_if_idle()
        self.overdue_at = monotonic() + self.link.timeout_seconds
        move = plan.wait(self.queue, BLOCK_SECONDS)
        if acknowledgements is None:
            self.link.send(self.link.pack(move))
            return
        is_probed = self.link.is_open and self.link.generation == self._probed_on
        is_silent = (
            (is_probed and self._skips and is_trusted and acknowledgements.may_be_unanswered)
            and acknowledgements.are_all_of(owner)
            and acknowledgements.bytes_of_jobs < _ONE_READ_BYTES
        )
        self._is_answered = not is_silent
        if is_silent:
            self.link.send(self.link.pack(move, unanswered=acknowledgements.commands))
            acknowledgements.count()
        else:
            probe = () if is_probed else SKIP_PROBE
            self.link.send(self.link.pack([*acknowledgements.commands, *probe, *move]))

    def receive(
        self, cool_seconds: float, on_notices: OnNotices | None, on_paused: Callable[[UnitOfWork], object]
    ) -> UnitOfWork | None:
        """
        Read the reply and return the job that arrived.

        Returns:
            None if the move timed out, the job went back to its queue or was passed to *on_paused*, or only the
            acknowledgements were answered and the move is still open.
        """
        owner, plan = self.owner, self.plan
        assert owner is not None
        assert plan is not None
        is_answered, is_read = True, False
        try:
            if self.acknowledgements is not None and self._is_answered:
                self._note_acknowledged(self.acknowledgements)
                is_answered = self.link.has_unread
            if not is_answered:
                return None
            raw, *look = self.link.receive_all(1 + len(plan.look))
            is_read = True
            if isinstance(raw, RedisReplyError):
                if not self._is_answered:
                    # If the user has lost the right to CLIENT REPLY, this is the reply to that command, and every reply
                    # from here on would be matched to the wrong command.
                    self.link.close()
                raise raw
            if self.acknowledgements is not None:
                self.acknowledgements.note_accepted()
                self.acknowledgements = None
            if raw is None:
                return None
            unit: UnitOfWork | None
            if plan.is_plain(look) and in_flight.may_be_listed(raw):
                if on_notices is not None:
                    on_notices(plan.notices(look))
                field = f"{self.batch}.0@{self.queue}".encode()
                unit = UnitOfWork(raw, self.queue, owner, field, False, monotonic(), is_listed=True)
            else:
                unit = claimed(self.link, owner, f"{self.batch}.0", self.queue, raw, on_notices, on_paused)
                if unit is None:
                    self.cool_until = monotonic() + cool_seconds
                    return None
            owner.units[unit.field] = unit
            return unit
        finally:
            if not is_read and is_answered:
                # The reply to the move is still on its way, and would be taken for the reply to the next command.
                self.give_up()
            elif is_answered:
                self.close_batch()

    def _note_acknowledged(self, acknowledgements: Acknowledgements) -> None:
        """Read the replies to the acknowledgements that were sent before the move."""
        replies = self.link.receive_all(len(acknowledgements.commands))
        is_accepted = acknowledgements.note(replies)
        self.acknowledgements = None
        if self._probed_on != self.link.generation:
            skips = self.link.receive_skip_probe()
            if is_accepted:
                self._probed_on, self._skips = self.link.generation, skips

    def give_up(self) -> None:
        """Expect no reply any more, and close the connection."""
        self.link.close()
        self.close_batch()

    def close_batch(self) -> None:
        """
        Stop expecting a reply. A job that arrives nevertheless counts as an orphan, and the acknowledgements are sent
        once more.
        """
        if self.acknowledgements is not None:
            acknowledgements, self.acknowledgements = self.acknowledgements, None
            acknowledgements.take_back()
        if self.owner is not None:
            self.owner.close_batch(self.batch)
            self.owner = None


class Waiters:
    """
    The waiters of one capsule. Safe to use from any thread: each open move is watched by one thread at a time.

    Args:
        queues: The queues to wait on. Each gets a connection, and up to two more while jobs arrive one at a time.
        cool_seconds: How long to leave a queue alone after one of its jobs could not be claimed.
        on_lost_connection: Called after a lost connection, whose commands may have been carried out.
        on_notices: Called with the notices that arrive along with jobs; see `fetch.lua`.
        settler: Supplies the acknowledgements that travel with a move.
    """

    def __init__(
        self,
        pool: Pool,
        ownership: Ownership,
        queues: Sequence[str],
        cool_seconds: float,
        on_lost_connection: Callable[[], None] = lambda: None,
        on_notices: OnNotices | None = None,
        settler: Settler | None = None,
    ) -> None:
        self._pool = pool
        self._waiters = [self._new_waiter(name) for name in queues]
        # The queues to wait on. Moves that are still open on others bring the last jobs from there.
        self._wanted = frozenset(queues)
        self._ownership = ownership
        self._cool_seconds = cool_seconds
        self._on_lost_connection = on_lost_connection
        self._on_notices = on_notices
        self._settler = settler
        # The queue of the last job that arrived.
        self._served = ""
        # Jobs from paused queues that have to go back.
        self._held: list[UnitOfWork] = []
        # Held while moves are sent and their replies are read, but not while a thread waits for a reply to begin.
        self._lock = threading.Lock()

    def serve(self, queues: Iterable[str]) -> None:
        """
        Wait on exactly these queues. Moves that are open on other queues may still bring jobs, which have to be
        collected. Safe to call from any thread.
        """
        wanted = list(queues)
        with self._lock:
            known = {waiter.queue for waiter in self._waiters}
            free = [waiter for waiter in self._waiters if waiter.queue not in wanted and not waiter.is_open]
            for name in wanted:
                if name in known:
                    continue
                if free:
                    waiter = free.pop()
                    waiter.queue, waiter.cool_until = name, 0.0
                else:
                    self._waiters = [*self._waiters, self._new_waiter(name)]
            self._wanted = frozenset(wanted)

    def _new_waiter(self, queue: str) -> Waiter:
        seconds = BLOCK_SECONDS + self._pool.settings.socket_timeout_seconds
        return Waiter(self._pool.new_link(timeout_seconds=seconds), queue)

    def awaits(self, queue: str) -> bool:
        """True while a blocking move on *queue* is open. Safe to call from any thread."""
        return any(waiter.is_open for waiter in self._waiters if waiter.queue == queue)

    @property
    def closed(self) -> int:
        """The number of queues to wait on that have no open blocking move."""
        return len(self._wanted - self._open_queues())

    @property
    def any_open(self) -> bool:
        """True while a blocking move is waiting for its reply."""
        return any(waiter.is_open for waiter in self._waiters)

    @property
    def any_unwatched(self) -> bool:
        """True if a blocking move is open and no thread waits for its reply."""
        for waiter in self._waiters:  # noqa: SIM110 — each job of a chain asks, and a generator would cost 0.3 µs
            if waiter.owner is not None and waiter.watched_by is None:
                return True
        return False

    @property
    def are_complete(self) -> bool:
        """True if a blocking move is open on every queue, and threads wait for the replies to all open moves."""
        awaited = set()
        for waiter in self._waiters:
            if waiter.owner is not None:
                if waiter.watched_by is None:
                    return False
                awaited.add(waiter.queue)
        return awaited.issuperset(self._wanted)

    @property
    def cool_until(self) -> float:
        """When the first of the queues that are left alone may be waited on again; 0 if there is none."""
        return min((waiter.cool_until for waiter in self._waiters if waiter.cool_until), default=0.0)

    def open(self, paused: Iterable[str]) -> None:
        """
        Open a blocking move on every queue that is neither paused nor left alone for now. Pending acknowledgements
        travel with the moves.

        Raises:
            RedisError: Redis is out of reach.
        """
        with self._lock:
            now = monotonic()
            shut = {*paused, *[waiter.queue for waiter in self._waiters if now < waiter.cool_until]}
            awaited = self._open_queues()
            for waiter in self._waiters:
                if waiter.is_open or now < waiter.cool_until:
                    continue
                waiter.cool_until = 0.0
                if waiter.queue not in self._wanted:
                    waiter.link.close()
                elif waiter.queue not in shut and waiter.queue not in awaited:
                    awaited.add(waiter.queue)
                    self._send(waiter)
            settler = self._settler
            if settler is None or not settler.has_pending or settler.has_ends_to_write or self._served in shut:
                return
            self._open_another(self._served)

    def _open_another(self, queue: str) -> None:
        """Open one more move on a queue, to carry the pending acknowledgements."""
        if queue not in self._wanted:
            return
        here = [waiter for waiter in self._waiters if waiter.queue == queue]
        closed = [waiter for waiter in here if not waiter.is_open]
        if not closed and len(here) < _MOST_PER_QUEUE:
            closed = [self._new_waiter(queue)]
            self._waiters = [*self._waiters, *closed]
        if closed:
            self._send(closed[0])

    def _open_queues(self) -> set[str]:
        return {waiter.queue for waiter in self._waiters if waiter.is_open}

    def _send(self, waiter: Waiter) -> None:
        along = self._settler.drain_plain() if self._settler is not None else None
        try:
            waiter.send(
                self._ownership.current,
                along,
                wants_notices=self._on_notices is not None,
                is_trusted=self._ownership.trusts(monotonic()),
            )
        except BaseException:
            # The move may have been sent.
            waiter.give_up()
            raise

    def collect(self, wake_fd: int | None, seconds: float | None) -> tuple[list[UnitOfWork], bool]:
        """
        Wait up to *seconds* for a job to arrive by one of the open moves that no other thread watches.

        Args:
            wake_fd: A file descriptor that ends the wait when it becomes readable.

        Returns:
            The jobs that arrived, and whether *wake_fd* became readable.

        Raises:
            RedisError: A connection broke. A job that it was carrying will be found as an orphan.
        """
        poll = select.poll()
        if wake_fd is not None:
            poll.register(wake_fd, select.POLLIN)
        by_fd = self._watch(poll)
        watched = list(by_fd.values())
        units: list[UnitOfWork] = []
        try:
            while True:
                if watched:
                    patience = max(0.0, min(waiter.overdue_at for waiter in watched) - monotonic())
                    seconds = patience if seconds is None else min(seconds, patience)
                ready = poll.poll(None if seconds is None else max(0.0, seconds) * 1000)
                answered = [by_fd[fd] for fd, _ in ready if fd != wake_fd]
                is_signalled = len(answered) < len(ready)
                with self._lock:
                    self._read(answered, watched, units)
                    # If only acknowledgements were answered, the moves behind them are still open.
                    if units or is_signalled or not answered or not all(waiter.is_open for waiter in answered):
                        _unwatch(watched, poll)
                        return units, is_signalled
        except BaseException:
            _unwatch(watched, poll)
            forget(units)
            raise

    def _watch(self, poll: "select.poll") -> dict[int, Waiter]:
        """Begin to watch the open moves that nobody watches."""
        with self._lock:
            by_fd = {waiter.link.fileno(): waiter for waiter in self._waiters if self._can_be_watched(waiter)}
            for fd, waiter in by_fd.items():
                waiter.watched_by = poll
                poll.register(fd, select.POLLIN)
            return by_fd

    def _read(self, answered: Iterable[Waiter], watched: Iterable[Waiter], units: list[UnitOfWork]) -> None:
        """Add the jobs that arrived to *units*, and give up on those of the *watched* ones that are overdue."""
        failure: Exception | None = None
        for waiter in answered:
            try:
                unit = waiter.receive(self._cool_seconds, self._on_notices, self._hold)
            except Exception as error:  # noqa: BLE001 — the other waiters' jobs must not be dropped with it
                failure = error
                continue
            if unit is not None:
                self._served = unit.queue
                units.append(unit)
        now = monotonic()
        for waiter in watched:
            if waiter.owner is not None and now >= waiter.overdue_at:
                waiter.give_up()
                failure = ReplyLostError(f"no reply on {waiter.queue} for {waiter.link.timeout_seconds:g} seconds")
        if self._held:
            try:
                self._put_back_held()
            except RedisError as error:
                failure = error
        if failure is not None:
            self._on_lost_connection()
            if not units:
                raise failure

    def _hold(self, unit: UnitOfWork) -> None:
        # Keep it in the owner's table, so that it does not go back as an orphan.
        unit.holder.units[unit.field] = unit
        self._held.append(unit)

    def _put_back_held(self) -> None:
        """
        Put back the jobs of paused queues, one queue at a time, once no move is open on the queue any more.

        An open move may bring another job of the queue. When jobs were put back one by one, they changed places, and
        the open move picked up the job that had just been put back. If no move brings a job, all have ended after
        `BLOCK_SECONDS`.
        """
        awaited = self._open_queues()
        leaving = [unit for unit in self._held if unit.queue not in awaited]
        if not leaving:
            return
        self._held = [unit for unit in self._held if unit.queue in awaited]
        together: dict[tuple[Owner, str], list[bytes]] = {}
        for unit in leaving:
            together.setdefault((unit.holder, unit.queue), []).append(unit.raw)
        try:
            with self._pool.link() as link:
                for (owner, queue), jobs in together.items():
                    in_flight.put_back(link, owner.name, queue, jobs)
                    owner.note_returned((queue, raw) for raw in jobs)
        finally:
            forget(leaving)

    def close(self) -> None:
        """Close all connections."""
        forget(self._held)
        for waiter in self._waiters:
            waiter.close_batch()
            waiter.link.close()

    def _can_be_watched(self, waiter: Waiter) -> bool:
        if not waiter.is_open or waiter.watched_by is not None:
            return False
        if not waiter.link.is_open:
            waiter.close_batch()
            raise RedisConnectionError("a connection broke while waiting for jobs")
        return True


# The quotes are for eventlet, which removes `select.poll`: a program that only publishes imports this module, too.
def _unwatch(waiters: Iterable[Waiter], poll: "select.poll") -> None:
    for waiter in waiters:
        if waiter.watched_by is poll:
            waiter.watched_by = None
