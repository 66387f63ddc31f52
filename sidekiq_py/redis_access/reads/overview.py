"""
Everything that a live view shows, in one round trip per look: counters, sets, queues, processes, running jobs. A view
that shows less asks for less.

The commands depend on names that are stored in Redis. Each look uses the names that the previous look found, and reads
them again in the same round trip. Only the first look needs two round trips.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection import server_info
from sidekiq_py.redis_access.connection.link import Command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import name_in, pairs, raise_first, readable, well_typed
from sidekiq_py.redis_access.connection.server_info import ServerInfo
from sidekiq_py.redis_access.processes import process_set
from sidekiq_py.redis_access.processes.process_set import Beat
from sidekiq_py.redis_access.reads import queue_trends
from sidekiq_py.redis_access.reads.in_flight_counts import InFlightCount, counts_of, owners_of
from sidekiq_py.redis_access.reads.queue_trends import Sample
from sidekiq_py.redis_access.reads.queues import QueueState, error_of
from sidekiq_py.redis_access.reads.queues import commands_of as commands_of_queue
from sidekiq_py.redis_access.reads.stats import TOTALS, Totals, number, totals_of
from sidekiq_py.wire import keys

_NAMES: tuple[Command, ...] = (
    ("SMEMBERS", keys.QUEUES),
    ("SMEMBERS", keys.PROCESSES),
    ("SMEMBERS", keys.PAUSED),
    ("HGETALL", keys.OWNERS),
    ("HGETALL", keys.DEPARTED),
)


Choice = Callable[[Sequence[str]], Sequence[str]]
"""Takes the names of all queues and returns some of them."""


@dataclass(frozen=True, slots=True)
class OverviewScope:
    """
    How much to read. The counters, the sizes of the sets and the names of all queues are always read.

    Args:
        queues: Takes the names of all queues, and returns those whose size and next job to read; None for all.
        processes: Read the heartbeats.
        running: Read the running jobs, and all that each process has in flight. Without it, a job that waits in the
            inbox of a worker counts as in flight only if its queue is chosen. Needs *processes*.
        server: Read what Redis says about itself.
    """

    queues: Choice | None = None
    processes: bool = True
    running: bool = True
    server: bool = False


EVERYTHING = OverviewScope()


@dataclass(frozen=True, slots=True)
class Names:
    """
    The names of everything to read.

    Args:
        owners: Maps each owner to the queues for which it may have inboxes.
    """

    queues: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    paused: frozenset[str] = frozenset()
    owners: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Look(NamedTuple):
    """
    The result of one look.

    Args:
        listed: The names of all queues, from which those to read were chosen.
        running: Identity, thread and entry of the work hash for each running job.
        names: The names for the next look.
        trends: The trends of the requested queues.
        server: None if it was not asked for, or if this user may not use INFO.
    """

    totals: Totals
    listed: tuple[str, ...]
    queues: tuple[QueueState, ...]
    beats: tuple[Beat, ...]
    running: tuple[tuple[str, str, bytes], ...]
    in_flight: tuple[InFlightCount, ...]
    names: Names
    trends: Mapping[str, tuple[Sample, ...]]
    server: ServerInfo | None


def read(
    pool: Pool,
    known: Names | None,
    *,
    now: float,
    scope: OverviewScope = EVERYTHING,
    trends_of: Choice | None = None,
) -> Look:
    """
    Read everything once, or what *scope* names.

    Args:
        known: `Look.names` of the previous look; None to start, which takes a second round trip.
        now: Epoch s.
        trends_of: Chooses the queues whose trends to read; None for none.

    Raises:
        RedisReplyError: This user may not read a counter, a set, or the names of queues or processes.
    """
    if known is None:
        known = _names(pool.well_typed(_NAMES))
    queues = known.queues if scope.queues is None else scope.queues(known.queues)
    charted = [] if trends_of is None else list(trends_of(known.queues))
    processes = known.processes if scope.processes else ()
    commands_of = process_set.commands_of if scope.running else process_set.beat_commands_of
    inboxes = _inboxes(known, None if scope.running else frozenset(queues))
    raw = _replies(
        pool,
        _NAMES,
        TOTALS,
        [command for name in queues for command in commands_of_queue(name)],
        [command for name in processes for command in commands_of(name)],
        [("HKEYS", keys.in_flight(owner)) for owner in known.owners],
        [("LLEN", keys.inbox(owner, queue)) for owner, queue in inboxes],
        queue_trends.commands_of(charted),
        [("INFO",)] if scope.server else [],
    )
    # To show 0 retries to a user who may not read them would be a lie; one queue or process may be out of bounds.
    names, totals = map(well_typed, raw[:2])
    for answers in (raw[3][:: len(commands_of(""))], raw[4]):
        _raise_if_none_is_readable(answers)
    of_queues, of_processes, hashes, lengths, samples, infos = map(readable, raw[2:])
    new = _names(names)
    states = [
        QueueState(name, number(size), oldest, name in new.paused, error_of(*answers))
        for name, (size, oldest), answers in zip(queues, pairs(of_queues), pairs(raw[2]), strict=True)
    ]
    beats, running = _heartbeats(processes, commands_of, of_processes)
    in_flight = counts_of(dict(zip(known.owners, hashes, strict=True)), dict(zip(inboxes, lengths, strict=True)))
    trends = {name: queue_trends.read_reply(reply, now) for name, reply in zip(charted, samples, strict=True)}
    return Look(
        totals_of(totals),
        known.queues,
        tuple(states),
        tuple(beats),
        tuple(running),
        tuple(in_flight),
        new,
        trends,
        next((server_info.describe(server_info.lines_of(info)) for info in infos if info is not None), None),
    )


def _replies(pool: Pool, *parts: Sequence[Command]) -> list[list[Any]]:
    """The replies to each part of what is read in one round trip."""
    replies = iter(pool.replies([command for part in parts for command in part]))
    return [list(islice(replies, len(part))) for part in parts]


def _raise_if_none_is_readable(replies: Sequence[Any]) -> None:
    """Raise the first error if Redis let this user read none: nothing would look like no process, or no job."""
    if replies and all(isinstance(reply, RedisReplyError) for reply in replies):
        raise_first(well_typed(replies))


def _heartbeats(
    processes: Sequence[str], commands_of: Callable[[str], Sequence[Command]], replies: Iterable[Any]
) -> tuple[list[Beat], list[tuple[str, str, bytes]]]:
    """The heartbeats of the processes that are still there, and the jobs that they run."""
    beats, running = [], []
    rest = iter(replies)
    for name in processes:
        beat, entries = process_set.read_reply(name, list(islice(rest, len(commands_of(name)))))
        if beat is not None:
            beats.append(beat)
            running += entries
    return beats, running


def _inboxes(known: Names, chosen: frozenset[str] | None) -> list[tuple[str, str]]:
    """Owner and queue of the inboxes to read: those of chosen queues, or of all."""
    return [
        (owner, queue)
        for owner, queues in known.owners.items()
        for queue in queues
        if chosen is None or queue in chosen
    ]


def _names(replies: Sequence[Any]) -> Names:
    queues, processes, paused, entered, departed = (reply or () for reply in replies)
    return Names(
        tuple(sorted(map(name_in, queues))),
        tuple(sorted(map(name_in, processes))),
        frozenset(map(name_in, paused)),
        owners_of(entered, departed),
    )
