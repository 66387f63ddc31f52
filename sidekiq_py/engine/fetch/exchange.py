"""
One round trip to Redis that settles the jobs which have ended and fetches the next ones.

Ended jobs are settled first, so that the jobs they push can be fetched in the same round trip. If a single job has
ended, its end pushes exactly one job, and no other job is available, not even a fetch is needed (`direct_handoff`).
"""

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any

from sidekiq_py.clock import monotonic
from sidekiq_py.engine import draws
from sidekiq_py.engine.fetch.direct_handoff import direct_handoff_of
from sidekiq_py.engine.fetch.fetcher import claimed
from sidekiq_py.engine.fetch.settle import Acknowledgements, Ends, Settler
from sidekiq_py.engine.ownership.owner import Owner, Ownership, UnitOfWork, forget, give_back
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.logs import log
from sidekiq_py.outcome import Question
from sidekiq_py.redis_access.connection.link import Command, Link
from sidekiq_py.redis_access.connection.scripts import is_unknown
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.registry import OnNotices
from sidekiq_py.wire import keys

# The most ends that go into one transaction with a fetch. More would block Redis for others longer than it saves.
_MOST_ENDS_IN_A_TURN = 4
# After a direct handoff found other jobs in the queues, none is tried for this long.
_PAUSE_OF_HANDOFF_SECONDS = 1.0
# Plain moves take up to this many jobs: a script costs as much as several of them.
_MOST_SINGLE = 8
# After anything was paused, suspect or revoked, or a move was refused, only the script fetches for this long.
_PAUSE_OF_SINGLES_SECONDS = 0.5

Drained = dict[Owner, list[UnitOfWork]]


class Exchange:
    """
    Settles and fetches the jobs of one capsule. Only one thread at a time may use it.

    Args:
        queue_names: All queues that are served.
        max_bytes: The most bytes of jobs that one fetch may bring.
        on_notices: Called with the notices that arrive along with jobs; see `fetch.lua`.

    Attributes:
        paused: Queues that the last fetch skipped because they are paused or their key is not a list.
        fresh: Queues that this owner's registry entry does not name yet, so recovery would not look into their inboxes.
    """

    def __init__(
        self,
        link: Link,
        settler: Settler,
        ownership: Ownership,
        queue_names: Collection[str],
        *,
        max_bytes: int,
        on_notices: OnNotices | None,
    ) -> None:
        self._link = link
        self._settler = settler
        self._ownership = ownership
        self._max_bytes = max_bytes
        self._on_notices = on_notices
        # Queue names by the form used in fields, and by key. A field may still name a queue that is no longer served.
        self._by_field = {name.encode(): name for name in queue_names}
        self._by_key = {keys.queue(name): name for name in queue_names}
        self.paused: list[str] = []
        self.fresh: set[str] = set()
        self._foreign: set[str] = set()
        # The earliest time for the next direct handoff.
        self._next_jobs_at = 0.0
        # The earliest time for the next plain move.
        self._singles_at = 0.0
        # With several queues: those that had a job the last time they were tried.
        self._filled: set[str] = set()
        # Bytes of the longest job in the last batch. It serves as an estimate, because plain moves cannot limit sizes.
        self._longest = 0

    def serve(self, queue_names: Collection[str], begun: Collection[str]) -> None:
        """Fetch from exactly these queues; *begun* are the new ones among them."""
        owner = self._ownership.current
        if owner.published != owner.about:
            self.fresh.update(begun)
        self.fresh.intersection_update(queue_names)
        self._by_field = {**self._by_field, **{name.encode(): name for name in begun}}
        self._by_key = {keys.queue(name): name for name in queue_names}
        self.paused = [name for name in self.paused if name in queue_names]
        self._filled.intersection_update(queue_names)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def run(self, queues: Sequence[tuple[str, int]], wanted: int, asked_at: float) -> list[UnitOfWork]:
        """
        Settle all jobs that have ended, and fetch new ones.

        Args:
            queues: Each queue with its weight, in order of precedence.
            wanted: The most jobs to fetch.
            asked_at: The current time on the monotonic clock.

        Raises:
            RedisError: Redis is unreachable or refuses the commands. The ends are kept for the next call.
        """
        owner = self._ownership.current
        drained = self._settler.drain()
        try:
            next_job = self._next_job(owner, drained, asked_at) if len(queues) == len(self._by_key) else None
            if next_job is not None:
                return [next_job]
            units = None
            if self._may_take_singly(owner, wanted, asked_at):
                units = self._taken_singly(owner, drained, queues, wanted, asked_at)
            if units is None:
                units = self._fetched(owner, drained, queues, wanted, asked_at)
        except BaseException:
            # If the ends were sent, `drained` is empty by now. Sending an end twice is harmless: it is written once.
            self._settler.restore(drained)
            raise
        if units:
            self._longest = max(map(len, [unit.raw for unit in units]))
        return units

    # ---- the job that another's end pushes

    def _next_job(self, owner: Owner, drained: Drained, asked_at: float) -> UnitOfWork | None:
        """
        If a single job has ended and its end pushes one job, settle the one and take the other, unless the queues hold
        other jobs. Returns None if a fetch is needed.
        """
        ended = drained.get(owner, ())
        is_due = asked_at >= self._next_jobs_at and owner.published == owner.about
        if len(ended) != 1 or len(drained) != 1 or not is_due:
            return None
        [unit] = ended
        question = unit.question
        batch = owner.open_batch()
        try:
            found = direct_handoff_of(unit, owner, batch, self._by_key)
            if found is None:
                return None
            reply, *answers = self._link.batch([found.call] if question is None else [found.call, question.command])
            if question is not None:
                _pass_answer(question, answers[0])
            self._settler.note_ends(self._link, ended, [reply])
            drained.clear()
            if type(reply) is not list:
                if not isinstance(reply, RedisReplyError):
                    # Usually because there are other jobs; or something is paused, suspect or revoked.
                    self._next_jobs_at = asked_at + _PAUSE_OF_HANDOFF_SECONDS
                return None
            owner.confirmed_at = asked_at
            self.paused = []
            self._foreign = set()
            if self._on_notices is not None:
                self._on_notices(reply)
            next_job = owner.units[found.next_job.field] = found.next_job
            next_job.fetched_at = monotonic()
            return next_job
        finally:
            owner.close_batch(batch)

    # ---- a few jobs by plain moves

    def _may_take_singly(self, owner: Owner, wanted: int, asked_at: float) -> bool:
        """
        Returns True if few jobs are wanted and nothing came up lately that only the script handles.

        The lease has to be fresh, too: an owner that slept may have been recovered meanwhile, and then nobody looks
        into its inboxes any more.
        """
        return (
            wanted <= _MOST_SINGLE
            and wanted * self._longest <= self._max_bytes
            and asked_at >= self._singles_at
            and owner.published == owner.about
            and self._ownership.trusts(asked_at)
            and not self.paused
            and len(owner.units) < in_flight.MOST_LISTED
        )

    def _taken_singly(
        self, owner: Owner, drained: Drained, queues: Sequence[tuple[str, int]], wanted: int, asked_at: float
    ) -> list[UnitOfWork] | None:
        """Take jobs by plain moves. Returns None if Redis refused them: a fetch may work, or says what is wrong."""
        names = tuple([name for name, _ in queues])
        plan = in_flight.take_plan(owner.name, names, wants_notices=self._on_notices is not None)
        orders = [_drawn_order(queues) for _ in range(wanted)]
        batch = owner.open_batch()
        units: list[UnitOfWork] = []
        paused: list[UnitOfWork] = []
        try:
            found, refused, look = self._moved(drained, plan, orders)
            is_plain = plan.is_plain(look)
            if not is_plain or refused:
                # The next fetch finds out what it is.
                self._singles_at = asked_at + _PAUSE_OF_SINGLES_SECONDS
            if refused and not found:
                return None
            if is_plain:
                owner.confirmed_at = asked_at
                if self._on_notices is not None:
                    self._on_notices(plan.notices(look))
            else:
                # One of them may be a suspect, and a suspect must be the only job that is fetched.
                in_flight.give_back_listed(self._link, owner.name, found[1:])
                owner.note_returned(found[1:])
                found = found[:1]
            now = monotonic()
            for number, (queue, raw) in enumerate(found):
                unit: UnitOfWork | None
                if is_plain and in_flight.may_be_listed(raw):
                    field = f"{batch}.{number}@{queue}".encode()
                    unit = UnitOfWork(raw, queue, owner, field, False, now, is_listed=True)
                else:
                    # A queue with one job that only a script may take usually has more of them.
                    self._singles_at = asked_at + _PAUSE_OF_SINGLES_SECONDS
                    unit = claimed(self._link, owner, f"{batch}.{number}", queue, raw, self._on_notices, paused.append)
                if unit is not None:
                    owner.units[unit.field] = unit
                    units.append(unit)
            if paused:
                give_back(self._link, owner, paused)
            return units
        except BaseException:
            # No processor will get these jobs. Once they are out of the table they go back as orphans.
            forget(units)
            raise
        finally:
            owner.close_batch(batch)

    def _moved(
        self, drained: Drained, plan: in_flight.TakePlan, orders: Sequence[Sequence[int]]
    ) -> tuple[list[tuple[str, bytes]], bool, list[Any]]:
        """
        Move up to one job per order.

        With several queues, a plain move tries the first queue of each order if those queues had a job last time. With
        a backlog that is enough, and the script would be half of what such a job costs Redis.

        Returns:
            The queue and bytes of each job; whether a move was refused; the replies to the check behind the moves.
        """
        names = plan.queue_names
        firsts = [names[order[0]] for order in orders]
        if len(names) == 1 or self._filled.issuperset(firsts):
            replies = self._flush_with(drained, plan.take_from(firsts))
            moves, look = replies[: len(firsts)], replies[len(firsts) :]
            found = [(name, reply) for name, reply in zip(firsts, moves, strict=True) if type(reply) is bytes]
            refused = any(isinstance(reply, RedisReplyError) for reply in moves)
            self._filled.difference_update(
                [name for name, reply in zip(firsts, moves, strict=True) if type(reply) is not bytes]
            )
            if found or refused or len(names) == 1:
                return found, refused, look
        reply, *look = self._flush_with(drained, plan.take_in_order(orders))
        if is_unknown(reply):
            reply, *look = self._link.batch(plan.take_in_order(orders, has_script=False))
        found = plan.taken_in_order(reply)
        self._note_filled(names, orders, [name for name, _ in found])
        return found, isinstance(reply, RedisReplyError), look

    def _note_filled(self, names: Sequence[str], orders: Sequence[Sequence[int]], found: Sequence[str]) -> None:
        """Note which queues had a job: the one the script *found*, but none of those before it in the order."""
        if len(found) < len(orders):
            self._filled.clear()
            return
        for order, name in zip(orders, found, strict=True):
            asked = [names[number] for number in order]
            self._filled.difference_update(asked[: asked.index(name)])
            self._filled.add(name)

    # ---- a fetch

    def _fetched(
        self, owner: Owner, drained: Drained, queues: Sequence[tuple[str, int]], wanted: int, asked_at: float
    ) -> list[UnitOfWork]:
        batch = owner.open_batch()
        takes_exclusive = self._ownership.reserve_exclusive()
        units: list[UnitOfWork] = []
        try:
            plan = in_flight.FetchPlan(
                owner=owner.name,
                registration="" if owner.published == owner.about else owner.about,
                lease_ms=self._ownership.lease_ms,
                batch=batch,
                queues=queues,
                max_jobs=wanted,
                max_bytes=self._max_bytes,
                seed=draws.bits(31),
                may_take_marked=takes_exclusive,
            )
            [reply] = self._flush_with(drained, [in_flight.FETCH.call(*plan.command_parts())])
            if is_unknown(reply):
                reply = self._link.batch([in_flight.FETCH.full_call(*plan.command_parts())])[0]
            # `finally` looks at these as well.
            units = self._units_of(owner, plan, reply, asked_at)
            return units
        finally:
            if takes_exclusive:
                # A marked job is always the only one in its batch.
                self._ownership.release_exclusive(owner, units[0].field if units and units[0].is_marked else None)
            owner.close_batch(batch)

    def _flush_with(self, drained: Drained, fetch: Sequence[Command]) -> list[Any]:
        """
        Send the ends and the fetch in one round trip and return the replies to the fetch. Ends that Redis refuses are
        kept for later.
        """
        ended = [unit for units in drained.values() for unit in units if unit.end is not None]
        done = Acknowledgements(
            self._settler, {owner: [unit for unit in units if unit.end is None] for owner, units in drained.items()}
        )
        questions = [unit.question for unit in ended if unit.question is not None]
        ends = Ends(self._settler, ended)
        commands: list[Command] = [
            *ends.commands,
            *done.commands,
            *fetch,
            *[question.command for question in questions],
        ]
        # If there are only a few ends, a transaction lets this process fetch the jobs they push before Redis serves
        # another waiting process: carrying on here costs less than waking that one up.
        together = 0 < len(ends.commands) <= _MOST_ENDS_IN_A_TURN
        replies = self._link.transaction(commands) if together else self._link.batch(commands)
        rest = iter(replies)
        ended_replies = list(islice(rest, len(ends.commands)))
        done_replies = list(islice(rest, len(done.commands)))
        fetched = list(islice(rest, len(fetch)))
        for question, answer in zip(questions, rest, strict=True):
            _pass_answer(question, answer)
        if ended:
            ends.note(self._link, ended_replies)
        # A refused acknowledgement is sent again by itself and raises nothing here: the fetch may have brought jobs.
        done.note(done_replies)
        drained.clear()
        return fetched

    def _units_of(self, owner: Owner, plan: in_flight.FetchPlan, reply: Any, asked_at: float) -> list[UnitOfWork]:
        if isinstance(reply, RedisReplyError):
            if reply.code != in_flight.FENCED:
                raise reply
            self._ownership.refused(self._link, owner)
            return []
        owner.confirmed_at = asked_at
        owner.published = plan.registration or owner.published
        if owner.published == owner.about:
            self.fresh.clear()
        names, queues = self._by_field, plan.queues
        shut = reply[0]
        self.paused = [queues[number if number >= 0 else ~number][0] for number in shut]
        if shut or self._foreign:
            self._note_foreign({queues[~number][0] for number in shut if number < 0})
        table = owner.units
        now = monotonic()
        units = []
        if self._on_notices is not None:
            self._on_notices(reply[1])
        marked = len(reply) == 4 and b"!" in reply[2] and in_flight.split_field(reply[2])[1]
        for at in range(2, len(reply), 2):
            field = reply[at]
            # Faster than splitting the field. A marked field has no colon as separator, but its queue name may hold
            # one.
            name = None if marked else names.get(field.partition(b":")[2])
            name = name or in_flight.split_field(field)[2]
            units.append(UnitOfWork(reply[at + 1], name, owner, field, marked, now))
        # All jobs enter the table in one step. If part of the reply is unreadable, all of them go back as orphans.
        table.update(zip(reply[2::2], units, strict=True))
        return units

    def _note_foreign(self, names: set[str]) -> None:
        for name in names - self._foreign:
            log.error(
                "queue:%s is not a list: something else wrote to this key. The queue is skipped; "
                "rename or delete the key",
                name,
            )
        self._foreign = names


def _drawn_order(queues: Sequence[tuple[str, int]]) -> list[int]:
    """The queues' indexes in a random order drawn by weight, or in order of precedence if there are no weights."""
    numbers = list(range(len(queues)))
    if len(queues) == 1 or not any(weight for _, weight in queues):
        return numbers
    # Efraimidis and Spirakis: sorting by these keys gives the order of weighted draws without replacement.
    return sorted(numbers, key=lambda number: draws.draw() ** (1 / max(queues[number][1], 1)), reverse=True)


def _pass_answer(question: Question, answer: Any) -> None:
    if isinstance(answer, RedisReplyError):
        return
    try:
        question.tell(answer)
    except Exception:  # noqa: BLE001 — the same round trip may have fetched jobs
        log.exception("the answer to an ended job's question could not be processed")
