"""
One round trip with Redis between jobs: the ends of those that were run go out, the next ones come in.

What has ended is handed in first, so that what it pushes can come back at once. A lone job whose end pushes one, where
no other is to be had, does even without a fetch (`direct_handoff`).
"""

import logging
import random
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.fetch.direct_handoff import direct_handoff_of
from sidekiq_py.engine.fetch.fetcher import claimed
from sidekiq_py.engine.fetch.settle import Acknowledgements, Ends, Settler, forget
from sidekiq_py.engine.ownership.owner import Owner, Ownership, UnitOfWork, listed_among
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.outcome import Question
from sidekiq_py.redis_access.connection.link import Command, Link
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.registry import OnNotices
from sidekiq_py.wire import keys

_log = logging.getLogger("sidekiq")

# More would keep Redis from others for longer than is saved.
_MOST_ENDS_IN_A_TURN = 4
# So long after other jobs were there nobody tries whether there are none.
_PAUSE_OF_HANDOFF_SECONDS = 1.0
# Up to so many jobs are taken by plain moves: a script costs as much as some of them.
_MOST_SINGLE = 8
# So long after something was paused, suspect or revoked, or a move was refused, it is the script that fetches.
_PAUSE_OF_SINGLES_SECONDS = 0.5

Gathered = dict[Owner, list[UnitOfWork]]


class Exchange:
    """
    Of one capsule. One thread at a time may use it.

    Args:
        queue_names: All that are served.
        max_bytes: Of jobs in one fetch.
        on_notices: Handed the orders that come along with jobs; see `fetch.lua`.

    Attributes:
        paused: Queues that the last fetch has left alone: paused, or their key is no list.
        fresh: Queues that are not in the registry yet: nobody would look into their inboxes.
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
        # By how fields, and how commands, name them. A queue that is served no more may still be named by a field.
        self._by_field = {name.encode(): name for name in queue_names}
        self._by_key = {keys.queue(name): name for name in queue_names}
        self.paused: list[str] = []
        self.fresh: set[str] = set()
        self._foreign: set[str] = set()
        # Before that no job is taken by the end of another.
        self._next_jobs_at = 0.0
        # Before that no job is taken by a plain move.
        self._singles_at = 0.0
        # Of several queues, those that had a job when they were asked last.
        self._filled: set[str] = set()
        # Bytes of the longest job that came last: plain moves ask for no sizes.
        self._longest = 0

    def serve(self, queue_names: Collection[str], begun: Collection[str]) -> None:
        """Take jobs from these queues and no others; *begun* are new."""
        self.fresh.update(begun)
        self.fresh.intersection_update(queue_names)
        self._by_field = {**self._by_field, **{name.encode(): name for name in begun}}
        self._by_key = {keys.queue(name): name for name in queue_names}
        self.paused = [name for name in self.paused if name in queue_names]
        self._filled.intersection_update(queue_names)

    def close(self) -> None:
        """Let go of the connection."""
        self._link.close()

    def run(self, queues: Sequence[tuple[str, int]], wanted: int, asked_at: float) -> list[UnitOfWork]:
        """
        Hand in all ends that are due, and take jobs.

        Args:
            queues: In order of precedence, each with its weight.
            wanted: At most so many.
            asked_at: Now, on the monotonic clock.

        Raises:
            RedisError: Redis is out of reach, or refuses it. What was due is kept for the next time.
        """
        owner = self._ownership.current
        gathered = self._settler.drain()
        try:
            next_job = self._next_job(owner, gathered, asked_at) if len(queues) == len(self._by_key) else None
            if next_job is not None:
                return [next_job]
            take = self._taken_singly if self._may_take_singly(owner, wanted, asked_at) else self._fetched
            units = take(owner, gathered, queues, wanted, asked_at)
        except BaseException:
            # Of what was handed in it is empty. What is handed in twice is written once.
            self._settler.restore(gathered)
            raise
        if units:
            self._longest = max(map(len, [unit.raw for unit in units]))
        return units

    # ---- the job that another's end pushes

    def _next_job(self, owner: Owner, gathered: Gathered, asked_at: float) -> UnitOfWork | None:
        """Where one job has ended and its end pushes one, and no other is to be had: take that. None: fetch."""
        ended = gathered.get(owner, ())
        is_due = asked_at >= self._next_jobs_at and owner.is_registered and owner.told == owner.about
        if len(ended) != 1 or len(gathered) != 1 or not is_due:
            return None
        [unit] = ended
        question = unit.question
        batch = owner.open_batch()
        try:
            found = direct_handoff_of(unit, owner, batch, self._by_key)
            if found is None:
                return None
            reply, *answers = self._link.batch([found.call] if question is None else [found.call, question.command])
            gathered.clear()
            if question is not None:
                _tell(question, answers[0])
            self._settler.note_ends(self._link, ended, [reply])
            if type(reply) is not list:
                if not isinstance(reply, RedisReplyError):
                    # There are other jobs, as a rule; or something is paused, suspect or revoked.
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
        Few jobs are wanted, and nothing was there lately that only the script heeds. One that slept may have been
        struck off meanwhile: nobody looks into its inboxes any more.
        """
        return (
            wanted <= _MOST_SINGLE
            and wanted * self._longest <= self._max_bytes
            and asked_at >= self._singles_at
            and owner.is_registered
            and owner.told == owner.about
            and self._ownership.trusts(asked_at)
            and not self.paused
            and len(owner.units) < in_flight.MOST_LISTED
        )

    def _taken_singly(
        self, owner: Owner, gathered: Gathered, queues: Sequence[tuple[str, int]], wanted: int, asked_at: float
    ) -> list[UnitOfWork]:
        names = tuple([name for name, _ in queues])
        plan = in_flight.take_plan(owner.name, names, wants_notices=self._on_notices is not None)
        orders = [_drawn_order(queues) for _ in range(wanted)]
        batch = owner.open_batch()
        units: list[UnitOfWork] = []
        paused: list[UnitOfWork] = []
        try:
            found, refused, look = self._moved(gathered, plan, orders)
            is_plain = plan.is_plain(look)
            if not is_plain or refused:
                # What it is, a fetch says.
                self._singles_at = asked_at + _PAUSE_OF_SINGLES_SECONDS
            if is_plain:
                owner.confirmed_at = asked_at
                if self._on_notices is not None:
                    self._on_notices(plan.notices(look))
            if not is_plain:
                # One may be a suspect, which is to come alone.
                self._give_back(owner, batch, found[1:])
                found = found[:1]
            now = monotonic()
            for number, (queue, raw) in enumerate(found):
                unit: UnitOfWork | None
                if is_plain and in_flight.may_be_listed(raw):
                    field = f"{batch}.{number}@{queue}".encode()
                    unit = UnitOfWork(raw, queue, owner, field, False, now, is_listed=True)
                else:
                    # A queue with one job that a script has to take has more of them, as a rule.
                    self._singles_at = asked_at + _PAUSE_OF_SINGLES_SECONDS
                    unit = claimed(self._link, owner, f"{batch}.{number}", queue, raw, self._on_notices, paused.append)
                if unit is not None:
                    owner.units[unit.field] = unit
                    units.append(unit)
            if paused:
                in_flight.give_back(self._link, owner.name, [unit.field for unit in paused], listed_among(paused))
            return units
        except BaseException:
            # Nobody will run them: as orphans they go back.
            forget(owner, [unit.field for unit in units])
            raise
        finally:
            owner.close_batch(batch)

    def _moved(
        self, gathered: Gathered, plan: in_flight.TakePlan, orders: Sequence[Sequence[int]]
    ) -> tuple[list[tuple[str, bytes]], bool, list[Any]]:
        """
        Move one job for each order, if there is one.

        Of several queues the first of each order is asked by a plain move, if it had a job last time: with a backlog
        that suffices, and the script would be half of what such a job costs Redis.

        Returns:
            Queue and bytes of each job; whether a move was refused; the replies to the look.
        """
        names = plan.queue_names
        firsts = [names[order[0]] for order in orders]
        if len(names) == 1 or self._filled.issuperset(firsts):
            replies = self._handed_in(gathered, plan.take_from(firsts))
            moves, look = replies[: len(firsts)], replies[len(firsts) :]
            found = [(name, reply) for name, reply in zip(firsts, moves, strict=True) if type(reply) is bytes]
            refused = any(isinstance(reply, RedisReplyError) for reply in moves)
            self._filled.difference_update(
                [name for name, reply in zip(firsts, moves, strict=True) if type(reply) is not bytes]
            )
            if found or refused or len(names) == 1:
                return found, refused, look
        reply, *look = self._handed_in(gathered, plan.take_in_order(orders))
        if isinstance(reply, RedisReplyError) and reply.code == "NOSCRIPT":
            reply, *look = self._link.batch(plan.take_in_order(orders, has_script=False))
        found = plan.taken_in_order(reply)
        self._note_filled(names, orders, [name for name, _ in found])
        return found, isinstance(reply, RedisReplyError), look

    def _note_filled(self, names: Sequence[str], orders: Sequence[Sequence[int]], found: Sequence[str]) -> None:
        """Which queues had a job, as the script has *found* them: those asked before in an order had none."""
        if len(found) < len(orders):
            self._filled.clear()
            return
        for order, name in zip(orders, found, strict=True):
            asked = [names[number] for number in order]
            self._filled.difference_update(asked[: asked.index(name)])
            self._filled.add(name)

    def _give_back(self, owner: Owner, batch: int, jobs: Sequence[tuple[str, bytes]]) -> None:
        """Queue and bytes of jobs that moves have brought into inboxes; the first of them is to run first."""
        listed = {f"{batch}.{number}@{queue}".encode(): raw for number, (queue, raw) in enumerate(jobs)}
        if listed:
            in_flight.give_back(self._link, owner.name, listed, listed)

    # ---- a fetch

    def _fetched(
        self, owner: Owner, gathered: Gathered, queues: Sequence[tuple[str, int]], wanted: int, asked_at: float
    ) -> list[UnitOfWork]:
        batch = owner.open_batch()
        takes_exclusive = self._ownership.reserve_exclusive()
        units: list[UnitOfWork] = []
        try:
            plan = in_flight.FetchPlan(
                owner=owner.name,
                registration="" if owner.told == owner.about else owner.about,
                lease_ms=self._ownership.lease_ms,
                batch=batch,
                queues=queues,
                max_jobs=wanted,
                max_bytes=self._max_bytes,
                seed=random.getrandbits(31),
                may_take_marked=takes_exclusive,
            )
            [reply] = self._handed_in(gathered, [in_flight.FETCH.call(*plan.command_parts())])
            if isinstance(reply, RedisReplyError) and reply.code == "NOSCRIPT":
                reply = self._link.batch([in_flight.FETCH.full_call(*plan.command_parts())])[0]
            units = self._taken_in(owner, plan, reply, asked_at)
            return units
        finally:
            if takes_exclusive:
                # A marked one comes alone.
                self._ownership.release_exclusive(owner, units[0].field if units and units[0].is_marked else None)
            owner.close_batch(batch)

    def _handed_in(self, gathered: Gathered, fetch: Sequence[Command]) -> list[Any]:
        """Ends and fetch in one round trip; the fetch's replies. What is not taken is kept for later."""
        ended = [unit for units in gathered.values() for unit in units if unit.end is not None]
        done = Acknowledgements(
            self._settler, {owner: [unit for unit in units if unit.end is None] for owner, units in gathered.items()}
        )
        questions = [unit.question for unit in ended if unit.question is not None]
        ends = Ends(self._settler, ended)
        commands: list[Command] = [
            *ends.commands,
            *done.commands,
            *fetch,
            *[question.command for question in questions],
        ]
        # Of a few ends what they push is fetched here before one who waits is served: going on costs less than
        # waking him.
        together = 0 < len(ends.commands) <= _MOST_ENDS_IN_A_TURN
        replies = self._link.transaction(commands) if together else self._link.batch(commands)
        rest = iter(replies)
        ended_replies = list(islice(rest, len(ends.commands)))
        done_replies = list(islice(rest, len(done.commands)))
        fetched = list(islice(rest, len(fetch)))
        for question, answer in zip(questions, rest, strict=True):
            _tell(question, answer)
        if ended:
            ends.note(self._link, ended_replies)
        # What is refused is handed in by itself; the fetch beside it may have brought jobs.
        done.note(done_replies)
        gathered.clear()
        return fetched

    def _taken_in(self, owner: Owner, plan: in_flight.FetchPlan, reply: Any, asked_at: float) -> list[UnitOfWork]:
        if isinstance(reply, RedisReplyError):
            if reply.code != in_flight.FENCED:
                raise reply
            self._ownership.advance(owner)
            return []
        owner.is_registered = True
        owner.confirmed_at = asked_at
        owner.told = plan.registration or owner.told
        if owner.told == owner.about:
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
            # Shorter than to split it; not where the mark stands, as a queue's own name may hold a colon.
            name = None if marked else names.get(field.partition(b":")[2])
            name = name or in_flight.split_field(field)[2]
            units.append(UnitOfWork(reply[at + 1], name, owner, field, marked, now))
        # All in one step: of a reply that could not be read to its end, every job is an orphan and goes back.
        table.update(zip(reply[2::2], units, strict=True))
        return units

    def _note_foreign(self, names: set[str]) -> None:
        for name in names - self._foreign:
            _log.error(
                "queue:%s is no list: something else wrote to this key. The queue is left alone; "
                "rename or delete the key",
                name,
            )
        self._foreign = names


def _drawn_order(queues: Sequence[tuple[str, int]]) -> list[int]:
    """The numbers of the queues, drawn by weight; in order of precedence where there are no weights."""
    numbers = list(range(len(queues)))
    if len(queues) == 1 or not any(weight for _, weight in queues):
        return numbers
    # Efraimidis and Spirakis: the order of these is that of draws by weight without putting back.
    return sorted(numbers, key=lambda number: random.random() ** (1 / max(queues[number][1], 1)), reverse=True)


def _tell(question: Question, answer: Any) -> None:
    if isinstance(answer, RedisReplyError):
        return
    try:
        question.tell(answer)
    except Exception:  # noqa: BLE001 — the fetch beside it may have brought jobs
        _log.exception("an answer could not be taken in")
