"""
The data API's reads and edits of queues.

A queue is a list: the newest job is at the head, the next to run at the tail. Jobs that a Python process has fetched
are in flight (`in_flight.py`), where Ruby's UI cannot see them.

Redis may refuse to read one queue: its key is not a list, or this user may not read it. Reads of several queues then
say so of that queue; those of the queue itself raise an error that names it.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection import scan
from sidekiq_py.redis_access.connection.link import Command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import readable, well_typed
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.connection.slices import SLICE_BYTES
from sidekiq_py.redis_access.connection.transaction import transact
from sidekiq_py.redis_access.job_path import settle_script
from sidekiq_py.redis_access.job_path.settle_script import Effect
from sidekiq_py.wire import keys

MOVE_TAIL = Script("move_tail")
TAKE_JOBS = Script("take_jobs")

_PART = 1000

# That many jobs may have come back in front of a job since its position was read, as when their worker died.
MOST_RETURNED = 10_000
# So many steps over jobs take Redis some milliseconds.
_SEARCH_STEPS = 100_000


class PlacedJob(NamedTuple):
    """
    A job and its position in its queue.

    Args:
        value: Its bytes.
        before: How many jobs would run before it when it was read; -1 if unknown.
        left: How many of those before it had left by then, counted from the same moment for all jobs of an iteration.
    """

    value: bytes
    before: int
    left: int = 0

    @property
    def first_position(self) -> int:
        """How many jobs would run before it at the moment from which `left` counts."""
        return self.before + self.left


class QueueState(NamedTuple):
    """
    A queue at one instant.

    Args:
        size: The number of waiting jobs.
        oldest: The bytes of the job that runs next; None if the queue is empty.
        is_paused: True if its name is in the set `paused`.
        error: Why Redis did not let the queue be read; its size is then 0.
    """

    name: str
    size: int
    oldest: bytes | None
    is_paused: bool
    error: str | None = None


def names(pool: Pool) -> list[str]:
    """The sorted names of all queues that were ever pushed to and not cleared since."""
    return scan.members(pool, keys.QUEUES)


def size(pool: Pool, name: str) -> int:
    """How many jobs are waiting."""
    with _naming(pool, name):
        return int(pool.command("LLEN", keys.queue(name)))


def sizes(pool: Pool, queue_names: Sequence[str]) -> list[int]:
    """How many jobs are waiting in each queue, in one round trip; 0 for a queue that cannot be read."""
    return [length or 0 for length in pool.readable([("LLEN", keys.queue(name)) for name in queue_names])]


def waiting(pool: Pool, queue_names: Sequence[str]) -> list[int]:
    """How many jobs in each queue can be fetched: 0 if the queue is paused or its key is not a list."""
    if not queue_names:
        return []
    commands: list[tuple[str, ...]] = [("SMEMBERS", keys.PAUSED)]
    commands += [("LLEN", keys.queue(name)) for name in queue_names]
    replies = pool.replies(commands)
    paused = set() if isinstance(replies[0], RedisReplyError) else set(replies[0])
    pairs = zip(queue_names, replies[1:], strict=True)
    return [
        length if isinstance(length, int) and name.encode(errors="surrogateescape") not in paused else 0
        for name, length in pairs
    ]


def states(pool: Pool, queue_names: Sequence[str]) -> list[QueueState]:
    """The size, the oldest job and the pause of each queue, in one round trip."""
    reads = [read for name in queue_names for read in (*commands_of(name), ("SISMEMBER", keys.PAUSED, name))]
    replies = pool.replies(reads)
    usable, are_paused = readable(replies), well_typed(replies[2::3])
    return [
        QueueState(name, usable[at] or 0, usable[at + 1], bool(is_paused), error_of(*replies[at : at + 2]))
        for name, at, is_paused in zip(queue_names, range(0, len(replies), 3), are_paused, strict=True)
    ]


def commands_of(name: str) -> tuple[Command, Command]:
    """The commands that read a queue's size and the bytes of the job that runs next."""
    return ("LLEN", keys.queue(name)), ("LINDEX", keys.queue(name), -1)


def error_of(*replies: Any) -> str | None:
    """The text of the first error among *replies*, or None."""
    return next((str(reply) for reply in replies if isinstance(reply, RedisReplyError)), None)


def oldest(pool: Pool, name: str) -> bytes | None:
    """The bytes of the job that runs next."""
    with _naming(pool, name):
        job: bytes | None = pool.command("LINDEX", keys.queue(name), -1)
    return job


def is_paused(pool: Pool, name: str) -> bool:
    """True if the queue's name is in the set `paused`."""
    return bool(pool.command("SISMEMBER", keys.PAUSED, name))


def pause(pool: Pool, name: str) -> bool:
    """Add the queue's name to the set `paused`, as Sidekiq Pro's `Queue#pause!` does. Returns False if it was there."""
    return bool(pool.command("SADD", keys.PAUSED, name))


def unpause(pool: Pool, name: str) -> bool:
    """Remove the queue's name from the set `paused`. Returns False if it was not there."""
    return bool(pool.command("SREM", keys.PAUSED, name))


def paused(pool: Pool) -> list[str]:
    """The names in the set `paused`, sorted."""
    return scan.members(pool, keys.PAUSED)


def enter(pool: Pool, name: str) -> bool:
    """Add the queue's name to the set `queues`, as a push does. Returns False if it was there."""
    return bool(pool.command("SADD", keys.QUEUES, name))


def page(pool: Pool, name: str, start: int, count: int, *, oldest_first: bool = False) -> tuple[list[bytes], int]:
    """
    Up to *count* jobs from position *start*, counted from the newest or, with *oldest_first*, from the oldest; and the
    length of the queue at that moment.
    """
    key = keys.queue(name)
    window = (-start - count, -start - 1) if oldest_first else (start, start + count - 1)
    with _naming(pool, name):
        jobs, length = transact(pool, [("LRANGE", key, *window), ("LLEN", key)])
    return jobs[::-1] if oldest_first else jobs, length


def place(pool: Pool, name: str, job: bytes, *, oldest_first: bool = False, most: int = 0) -> int | None:
    """
    A job's position, counted as in `page`; None if it is not there. Redis walks the list.

    Args:
        most: Look at this many jobs; 0 for all.
    """
    key = keys.queue(name)
    if not oldest_first:
        found: int | None = pool.command("LPOS", key, job, "MAXLEN", most)
        return found
    length, found = transact(pool, [("LLEN", key), ("LPOS", key, job, "RANK", -1, "MAXLEN", most)])
    return None if found is None else length - 1 - found


def move_tail(pool: Pool, name: str, target: str, count: int) -> int:
    """
    Move up to *count* jobs behind all jobs that wait in *target*, in one step: fewer if they are large. The jobs that
    run next are moved first.

    Returns:
        How many were moved; 0 if there are none. After a lost reply it runs once more, and jobs that the first run
        moved are not counted.
    """
    names = [keys.queue(name), keys.queue(target), keys.QUEUES]
    return int(pool.run(lambda link: MOVE_TAIL.run(link, names, [count, SLICE_BYTES])))


def take_jobs(
    pool: Pool, name: str, jobs: Sequence[PlacedJob], *, target: str | None, left: int = 0
) -> tuple[list[bool | None], int]:
    """
    Remove chosen jobs from a queue, in one step: move them behind all jobs that wait in *target*, or delete them.

    Args:
        left: How many jobs have left by now, counted as `PlacedJob.left`, as far as is known. One job that is not where
            it should be then is searched for, and further ones while that is quick.

    Returns:
        For each job True if it was taken, False if it is gone, None if it was not searched for; and how many have left.

    Raises:
        ReplyLostError: They may have been taken. It is not retried, because that could take other jobs with equal
            bytes.
    """
    names = [keys.queue(name), keys.QUEUES, *([] if target is None else [keys.queue(target)])]
    arguments: list[Any] = [uuid.uuid4().hex, left, MOST_RETURNED, _SEARCH_STEPS, SLICE_BYTES]
    for job in jobs:
        arguments += job
    left, *done = pool.run(lambda link: TAKE_JOBS.run(link, names, arguments), idempotent=False)
    return [None if one < 0 else one == 1 for one in done], left


def remove(pool: Pool, name: str, job: bytes, *, before: int) -> bool:
    """
    Remove one job with these exact bytes. Returns False if there is none.

    Args:
        before: As `PlacedJob.before`; it decides from which end Redis searches.

    Raises:
        ReplyLostError: It may have been removed. It is not retried, because that could remove a second job with equal
            bytes.
    """
    # Redis looks at each job on the way: from the wrong end, at a million.
    is_near_tail = 0 <= before < size(pool, name) // 2
    return bool(pool.command("LREM", keys.queue(name), -1 if is_near_tail else 1, job, idempotent=False))


def remove_with(pool: Pool, name: str, job: bytes, effects: Sequence[Effect]) -> bool:
    """Like `remove`, in one script with *effects*."""
    key = keys.queue(name)
    return pool.run(lambda link: settle_script.take_from_queue(link, key, job, effects), idempotent=False)


def clear(pool: Pool, name: str, *, keep_name: bool = False, unpause: bool = False) -> int:
    """
    Remove the queue and its name. Returns how many jobs it had. A key that is not a list is left alone: UNLINK would
    delete what another program keeps there.

    Args:
        keep_name: Keep the name in the set of queues.
        unpause: Also remove the name from the set of paused queues.
    """
    size(pool, name)
    key = keys.queue(name)
    length, *_ = transact(
        pool,
        [
            ("LLEN", key),
            ("UNLINK", key),
            *([] if keep_name else [("SREM", keys.QUEUES, name)]),
            *([("SREM", keys.PAUSED, name)] if unpause else []),
        ],
    )
    return int(length)


def drain(pool: Pool, name: str) -> Iterator[list[bytes]]:
    """Remove the queue and its name, like `clear`, and yield the jobs that it had, in parts."""
    key = keys.queue(name)
    for _ in range(size(pool, name) // _PART):
        jobs, _ = transact(pool, [("LRANGE", key, -_PART, -1), ("LTRIM", key, 0, -_PART - 1)])
        yield jobs
    # The rest, including jobs that were pushed meanwhile.
    rest, *_ = transact(pool, [("LRANGE", key, 0, -1), ("UNLINK", key), ("SREM", keys.QUEUES, name)])
    yield rest


@contextmanager
def _naming(pool: Pool, name: str) -> Iterator[None]:
    """Replace an error that concerns only this queue with one that names it and says what to do."""
    try:
        yield
    except RedisReplyError as error:
        if error.is_about_server:
            raise
        text = f"{error.code} the queue {name} cannot be used: {_reason(pool, name, error)}"
        raise RedisReplyError(text, is_advised=True) from error


def _reason(pool: Pool, name: str, error: RedisReplyError) -> str:
    key = keys.queue(name)
    if error.code == "NOPERM":
        said = str(error).removeprefix("NOPERM ")
        return (
            f"Redis does not let this user read its key {key} ({said}). Give the user that right, or name another user "
            "in the URL of Redis"
        )
    if error.code != "WRONGTYPE":
        return str(error)
    import shlex  # only needed here, and a worker imports this module

    [kind] = pool.readable([("TYPE", key)])
    is_a = f"is a {kind.decode()} and not a list" if kind else "is not a list"
    namespace = pool.settings.namespace
    words = ["sidekiq-py", "set-aside", key, *(["--namespace", namespace] if namespace else [])]
    return f"its key {key} {is_a}. Find out what wrote it, and move it away: {shlex.join(words)}"
