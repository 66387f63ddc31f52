"""
Pushing jobs: `SADD queues` and `LPUSH queue:<name>`, or `ZADD schedule`.

A push is sent once. It is sent again only if it certainly was not executed: if the connection broke before all of it
was sent, or if an error reply says so (a failover). Then only the refused commands are sent again, on a fresh
connection. They are the same bytes, so a scheduled job stays scheduled; Sidekiq 6.4.1 to 7.2 push it immediately in
this case. After a lost reply, `ReplyLostError` says that the outcome is unknown.

Source: Sidekiq 6.4.1 and 8.1.7, client.rb, `raw_push` and `atomic_push`.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import Link, pack_command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import FAILOVER_CODES
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.wire import keys
from sidekiq_py.wire.push_template import BulkJobs


class Outgoing(NamedTuple):
    """
    A job that is ready to be sent.

    Args:
        score: When a scheduled job is due, in seconds since the epoch, as text. None pushes it to *queue* now.
        payload: The payload's bytes.
    """

    jid: str
    queue: str
    score: str | None
    payload: bytes


def queue_commands(queue: str, payloads: Sequence[bytes], *, prefix: str) -> list[bytes]:
    """
    The packed commands that push *payloads* to a queue; the first payload runs first.

    Args:
        prefix: The pool's `key_prefix`.
    """
    return [_enter_queue(queue, prefix), pack_command(("LPUSH", prefix + keys.queue(queue), *payloads))]


def schedule_command(entries: Sequence[tuple[str, bytes]], *, prefix: str) -> list[bytes]:
    """
    The packed command that schedules jobs.

    Args:
        entries: Score text (seconds since the epoch) and payload of each.
        prefix: The pool's `key_prefix`.
    """
    arguments = [part for entry in entries for part in entry]
    return [pack_command(("ZADD", prefix + keys.SCHEDULE, *arguments))]


class PushBatch(NamedTuple):
    """
    Jobs that one command pushes.

    Args:
        queue: The queue to push to; unused for scheduled jobs.
        scores: When each scheduled job is due, as text; None pushes all jobs to the queue now.
    """

    queue: str
    scores: list[str] | None
    jids: list[str]
    payloads: list[bytes]

    def commands(self, prefix: str) -> list[bytes]:
        """The packed commands that push these jobs; *prefix* is the pool's `key_prefix`."""
        if self.scores is None:
            return queue_commands(self.queue, self.payloads, prefix=prefix)
        return schedule_command(list(zip(self.scores, self.payloads, strict=True)), prefix=prefix)

    def script_commands(self) -> list[Command]:
        """The same commands, not packed, for a script that also does other things."""
        if self.scores is None:
            return [("SADD", keys.QUEUES, self.queue), ("LPUSH", keys.queue(self.queue), *self.payloads)]
        words = [word for entry in zip(self.scores, self.payloads, strict=True) for word in entry]
        return [("ZADD", keys.SCHEDULE, *words)]

    def jobs(self) -> list[Outgoing]:
        """The jobs, one by one."""
        scores: Sequence[str | None] = self.scores or [None] * len(self.jids)
        return [
            Outgoing(jid, self.queue, score, raw)
            for jid, score, raw in zip(self.jids, scores, self.payloads, strict=True)
        ]


class UnrenderedBatch(NamedTuple):
    """Jobs of one queue whose bytes are not made yet, because more keys may be added to them."""

    queue: str
    jids: list[str]
    jobs: BulkJobs

    def render(self, tail: bytes = b"", first: int = 0) -> PushBatch:
        """Make the bytes; the arguments are those of `BulkJobs.render`."""
        return PushBatch(self.queue, None, self.jids, self.jobs.render(tail, first))


def push_batch_of(ready: Outgoing) -> PushBatch:
    """The batch for a single job."""
    return PushBatch(ready.queue, None if ready.score is None else [ready.score], [ready.jid], [ready.payload])


def push_batches_of(jobs: Sequence[Outgoing]) -> list[PushBatch]:
    """Group jobs by destination, in their order."""
    found: dict[tuple[str, bool], PushBatch] = {}
    for jid, queue, score, raw in jobs:
        place = (queue, False) if score is None else ("", True)
        batch = found.get(place)
        if batch is None:
            batch = found[place] = PushBatch(queue, None if score is None else [], [], [])
        if score is not None and batch.scores is not None:
            batch.scores.append(score)
        batch.jids.append(jid)
        batch.payloads.append(raw)
    return list(found.values())


def push_one(pool: Pool, queue: str, payload: bytes) -> None:
    """
    Push one job to a queue.

    Raises:
        RedisError: As `execute`.
    """
    head = pool.push_heads.get(queue) or _remember_head(pool, queue)
    link = pool.acquire()
    try:
        link.send_whole(b"%b%d\r\n%b\r\n" % (head, len(payload), payload))
        try:
            link.receive()
        except RedisReplyError as error:
            _send_again(link, _single(pool, queue, payload), [(0, error), *_read(link, 1, first=1)])
        else:
            try:
                link.receive()
            except RedisReplyError as error:
                _send_again(link, _single(pool, queue, payload), [(1, error)])
    except BaseException:
        # A time limit may interrupt between the two replies; the unread one must not answer a later command.
        link.close()
        raise
    finally:
        pool.release(link)


def execute(pool: Pool, commands: Sequence[bytes]) -> None:
    """
    Run one push.

    Raises:
        RedisConnectionError: Nothing was done.
        ReplyLostError: It may or may not have been done.
        RedisReplyError: Redis refused it.
    """
    with Stream(pool) as stream:
        stream.send(commands)


class Stream:
    """
    Consecutive pushes on one connection, so that the caller prepares the next push while Redis executes the last one.

    Every call, and the end of the block, raises what `execute` would raise for the previous push.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._link: Link | None = None
        self._pending: Sequence[bytes] = ()

    def __enter__(self) -> Self:
        self._link = self._pool.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        link, self._link = self._link, None
        assert link is not None
        try:
            if kind is None or issubclass(kind, Exception):
                self._settle(link)
            if kind is not None:
                link.close()
        except BaseException:
            link.close()
            raise
        finally:
            self._pool.release(link)

    def send(self, commands: Sequence[bytes]) -> None:
        """Read the result of the last push, then send this one."""
        link = self._link
        assert link is not None
        self._settle(link)
        link.send_whole(b"".join(commands))
        self._pending = commands

    def settle(self) -> None:
        """Read the result of the last push."""
        assert self._link is not None
        self._settle(self._link)

    def _settle(self, link: Link) -> None:
        commands, self._pending = self._pending, ()
        if commands:
            refusals = _read(link, len(commands))
            if refusals:
                _send_again(link, commands, refusals)


def refused_for_good(refusals: Sequence[tuple[int, RedisReplyError]], *, count: int) -> RedisReplyError | None:
    """
    The first refusal that another try would not fix, or None.

    Args:
        count: The number of the push's commands; the last one carries the jobs.
    """
    final = next((error for _, error in refusals if error.code not in FAILOVER_CODES), None)
    return final if final is None or refusals[-1][0] != count - 1 else advised(final)


def advised(refusal: RedisReplyError) -> RedisReplyError:
    """*refusal*, or an error that also says what to do if Redis is full. Nothing was pushed."""
    if refusal.code != "OOM":
        return refusal
    return RedisReplyError(
        f"{str(refusal).rstrip('.')}. This Redis is full, and the job is not enqueued (of a bulk push: this slice and "
        "those after it). Let workers drain its queues or raise maxmemory, then push again; leave maxmemory-policy at "
        "noeviction, because any other policy would evict jobs"
    )


def refused_twice(
    refusals: Sequence[tuple[int, RedisReplyError]], again: Sequence[tuple[int, RedisReplyError]], *, count: int
) -> RedisReplyError:
    """
    The error for commands that a failover refused twice. It says what happened to the push.

    Args:
        again: The refusals of the second try, by position in *refusals*.
        count: The number of the push's commands; the last one carries the jobs.
    """
    place, error = again[-1]
    if refusals[place][0] != count - 1:
        advice = "The jobs are enqueued, but their queue is missing from the set `queues`, so Web UIs may not show it"
    else:
        advice = (
            "It was refused twice and is not enqueued (of a bulk push: this slice and those after it). Give the URL of "
            "the primary, or push again when the failover is over"
        )
    return RedisReplyError(f"{str(error).rstrip('.')}. {advice}")


def _read(link: Link, count: int, *, first: int = 0) -> list[tuple[int, RedisReplyError]]:
    """Read *count* replies, for the commands from *first* on. Returns the position and the error of each refusal."""
    refusals: list[tuple[int, RedisReplyError]] = []
    for index in range(first, first + count):
        try:
            link.receive()
        except RedisReplyError as error:
            refusals.append((index, error))
    return refusals


def _send_again(link: Link, commands: Sequence[bytes], refusals: Sequence[tuple[int, RedisReplyError]]) -> None:
    """Send what a failover refused once more, on a fresh connection."""
    final = refused_for_good(refusals, count=len(commands))
    if final is not None:
        raise final
    link.close()
    link.send([commands[index] for index, _ in refusals])
    again = _read(link, len(refusals))
    if again:
        raise refused_twice(refusals, again, count=len(commands))


def _single(pool: Pool, queue: str, payload: bytes) -> list[bytes]:
    return queue_commands(queue, [payload], prefix=pool.key_prefix)


def _enter_queue(queue: str, prefix: str) -> bytes:
    return pack_command(("SADD", prefix + keys.QUEUES, queue))


def _remember_head(pool: Pool, queue: str) -> bytes:
    """The bytes of a push up to the length of its only payload."""
    heads, prefix = pool.push_heads, pool.key_prefix
    if len(heads) >= 1000:  # queue names made up at run time must not fill the memory
        heads.clear()
    key = (prefix + keys.queue(queue)).encode()
    head = _enter_queue(queue, prefix) + b"*3\r\n$5\r\nLPUSH\r\n$%d\r\n%b\r\n$" % (len(key), key)
    heads[queue] = head
    return head
