"""
Moves due jobs from `retry` and `schedule` to their queues, and keeps the lease of the process that polls most often.

The caller reads the due members, computes what each job becomes, and `move` replaces a slice of them in one script. Any
number of pollers may do so at once, including Ruby's: if a member is gone, nothing is written for it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import pcall_error, raise_first
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.connection.slices import SLICE_BYTES, slices_by_bytes, slices_of
from sidekiq_py.redis_access.job_path import settle_script
from sidekiq_py.redis_access.job_path.failed_jobs import DeadLimits, add_to_dead, trim_dead
from sidekiq_py.wire import keys
from sidekiq_py.wire.payload import score_text

DUE = Script("due")
PROMOTE = Script("promote")
HOLD_POLLER = Script("hold_poller")
LEAVE_POLLER = Script("leave_poller")

# In the order in which a poller reads them.
WAITING_SETS = (keys.RETRY, keys.SCHEDULE)
SLICE_JOBS = 100

# A lease that lasts this many times longer than it is taken for is not one of ours.
_FAR_OFF = 20

_FIRST_QUEUE_KEY = 5
_ELSEWHERE = {"dead": 0, "nowhere": -1, "schedule": -2}


class Move(NamedTuple):
    """
    Where to move one member.

    Args:
        member: Its bytes in the set.
        target: `"nowhere"` removes it.
        queue: The queue's name, for target `"queue"`.
        data: The bytes to push to the queue or to put in `schedule`.
        score: The score there, for target `"schedule"`.
        effects: The commands that extensions want written with it, for targets `"nowhere"` and `"dead"`.
    """

    member: bytes
    target: Literal["queue", "schedule", "dead", "nowhere"]
    queue: str = ""
    data: bytes = b""
    score: str = ""
    effects: tuple[settle_script.Effect, ...] = ()


class Moved(NamedTuple):
    """
    What `move` did with one member.

    Args:
        done: False if another process had taken it, or if *refusal* says why it stays in the set.
    """

    move: Move
    done: bool
    refusal: RedisReplyError | None = None


def move_to(member: bytes, queue: str, data: bytes, score: str | None) -> Move:
    """A move to its queue, or to `schedule` if it has a score."""
    return Move(member, "queue", queue, data) if score is None else Move(member, "schedule", "", data, score)


def due_commands(now: float, ahead_seconds: Sequence[float]) -> list[tuple[str, ...]]:
    """Commands that count due members without reading payloads; `noted_due` reads their replies."""
    moments = [score_text(now + seconds) for seconds in ahead_seconds]
    return [("ZCOUNT", name, "-inf", until) for until in moments for name in WAITING_SETS]


def noted_due(replies: Sequence[Any]) -> list[int]:
    """
    For each moment in `due_commands`, the number of members of `WAITING_SETS` that are due by then.

    A set that cannot be read (a key of the wrong type, no permission) counts as one due member; `due_members` then
    raises the error.
    """
    counts = [_count(reply) for reply in replies]
    return [sum(of_a_moment) for of_a_moment in slices_of(counts, len(WAITING_SETS))]


def due_members(
    pool: Pool, set_key: str, now: float, *, after: float | None = None, skip: int = 0
) -> tuple[list[bytes], bool]:
    """
    Some of the due members, earliest first: up to `SLICE_JOBS` or `SLICE_BYTES`, but at least one.

    Args:
        after: Skip those that were due by then.
        skip: Also skip this many of the others.

    Returns:
        The members, and True if there are more.
    """
    arguments = [score_text(now), "" if after is None else score_text(after), skip, SLICE_JOBS, SLICE_BYTES]
    more, *members = pool.run(lambda link: DUE.run(link, [set_key], arguments))
    return members, more > 0


def move(pool: Pool, set_key: str, moves: Sequence[Move], *, now: float, limits: DeadLimits) -> list[Moved]:
    """
    Move members of *set_key*, each only if it is still there. May be repeated after a lost reply.

    Raises:
        RedisError: The server is in trouble. Members that were already moved stay moved, and none is lost. An error
            that concerns only one member is its `Moved.refusal`.
    """
    results: list[Moved] = []
    for some in slices_of([step for step in moves if not step.effects], SLICE_JOBS):
        for part in slices_by_bytes(some, lambda step: len(step.member) + len(step.data)):
            results += _move_part(pool, set_key, part, now, limits)
    with_effects = (step for step in moves if step.effects)
    for part in slices_by_bytes(with_effects, lambda step: len(step.member)):
        results += _take_out(pool, set_key, part, now, limits)
    return results


def _take_out(pool: Pool, set_key: str, part: Sequence[Move], now: float, limits: DeadLimits) -> list[Moved]:
    """Move members with effects, each in a separate script."""
    jobs = [(step.member, _vital(step, now, limits)) for step in part]

    def take_out(link: Link) -> list[Any]:
        replies = settle_script.take_from_set(link, set_key, jobs)
        raise_first([reply for reply in replies if isinstance(reply, RedisReplyError) and reply.is_about_server])
        return replies

    return [_moved(step, reply) for step, reply in zip(part, pool.run(take_out), strict=True)]


def _vital(step: Move, now: float, limits: DeadLimits) -> list[settle_script.Effect]:
    if step.target != "dead":
        return [*step.effects]
    # The effects come first: if a verb fails while it writes, the job must not be in both sets.
    return [*step.effects, add_to_dead(step.member, now), *trim_dead(now, limits)]


def _move_part(pool: Pool, set_key: str, part: Sequence[Move], now: float, limits: DeadLimits) -> list[Moved]:
    names, arguments = _script_parts(set_key, part, now, limits)
    try:
        replies = pool.run(partial(_run, names=names, arguments=arguments))
    except RedisReplyError as error:
        if error.is_about_server:
            raise
        if len(part) == 1:
            return [Moved(part[0], done=False, refusal=error)]
        # Redis refuses the whole script because of one key that this user may not write.
        return [moved for step in part for moved in _move_part(pool, set_key, [step], now, limits)]
    return [_moved(step, reply) for step, reply in zip(part, replies, strict=True)]


def look_at_poller(pool: Pool, ttl_ms: int) -> tuple[bytes | None, int]:
    """
    The identity of the quick poller, and the number of processes. A lease is nobody's without an end, or if it lasts
    for much longer than *ttl_ms*, as when the clock of Redis was set back.

    Uses plain commands: all processes but one ask for the lease in vain, and a script costs Redis ten times as much.
    """
    holder, left_ms, processes = pool.replies(
        [("GET", keys.POLLER_LEASE), ("PTTL", keys.POLLER_LEASE), ("SCARD", keys.PROCESSES)]
    )
    raise_first([holder, processes])
    # A user with the rights of an earlier release may lack PTTL.
    is_held = not isinstance(left_ms, int) or 0 <= left_ms <= _FAR_OFF * ttl_ms
    return holder if is_held else None, int(processes)


def hold_lease(link: Link, key: str, identity: str, ttl_ms: int) -> bool:
    """Take or renew a lease that one process at a time holds. Returns False if another process holds it."""
    return bool(HOLD_POLLER.run(link, [key], [identity, ttl_ms, _FAR_OFF * ttl_ms]))


def hold_poller(pool: Pool, identity: str, ttl_ms: int) -> bool:
    """Take or renew the lease of the quick poller. Returns False if another process holds it."""
    try:
        return pool.run(lambda link: hold_lease(link, keys.POLLER_LEASE, identity, ttl_ms))
    except RedisReplyError as error:
        if error.code != "WRONGTYPE":
            raise
        text = f"WRONGTYPE {keys.POLLER_LEASE} is not a string: something else wrote to this key. Rename or delete it"
        raise RedisReplyError(text, is_advised=True) from error


def leave_poller(pool: Pool, identity: str) -> None:
    """Release the lease if *identity* holds it."""
    pool.run(lambda link: LEAVE_POLLER.run(link, [keys.POLLER_LEASE], [identity]))


def _count(reply: int | RedisReplyError) -> int:
    if isinstance(reply, int):
        return reply
    if reply.is_about_server:
        raise reply
    return 1


def _script_parts(set_key: str, moves: Sequence[Move], now: float, limits: DeadLimits) -> tuple[list[str], list[Any]]:
    """KEYS and ARGV of `promote.lua`."""
    names = list(dict.fromkeys(keys.queue(step.queue) for step in moves if step.target == "queue"))
    numbers = {name: number for number, name in enumerate(names, _FIRST_QUEUE_KEY)}
    arguments: list[Any] = [score_text(now), limits.oldest_score(now), limits.last_rank]
    for step in moves:
        number = numbers[keys.queue(step.queue)] if step.target == "queue" else _ELSEWHERE[step.target]
        arguments += [step.member, number, step.data, step.score]
    return [set_key, keys.DEAD, keys.QUEUES, keys.SCHEDULE, *names], arguments


def _run(link: Link, names: list[str], arguments: list[Any]) -> list[int | RedisReplyError]:
    replies = [
        pcall_error(reply) if isinstance(reply, bytes) else reply for reply in PROMOTE.run(link, names, arguments)
    ]
    for reply in replies:
        # Raised here, so that the pool can find the new primary.
        if isinstance(reply, RedisReplyError) and reply.is_about_server:
            raise reply
    return replies


def _moved(step: Move, reply: int | RedisReplyError) -> Moved:
    if isinstance(reply, RedisReplyError):
        return Moved(step, done=False, refusal=reply)
    return Moved(step, done=reply == 1)
