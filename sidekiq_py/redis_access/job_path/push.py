"""
Pushing jobs: `SADD queues` and `LPUSH queue:<name>`, or `ZADD schedule`.

A push is sent once. It is sent again only if it certainly was not executed: if the connection broke before all of it
was sent, or if an error reply says so (a failover). Then only the refused commands are sent again, on a fresh
connection. They are the same bytes, so a scheduled job stays scheduled; Sidekiq 6.4.1 to 7.2 push it immediately in
this case. After a lost reply, `ReplyLostError` says that the outcome is unknown.

Source: Sidekiq 6.4.1 and 8.1.7, client.rb, `raw_push` and `atomic_push`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from sidekiq_py.errors import ConfigError, RedisReplyError
from sidekiq_py.redis_access.connection.link import Link, pack_command
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import FAILOVER_CODES
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.json_dialect import dumps_known
from sidekiq_py.wire.push_template import BulkJobs

if TYPE_CHECKING:
    from sidekiq_py.redis_access.job_path.watched_push import Watched


# Code of a refusal -> why the push is not enqueued, and what to do. What a failover refused was sent once more.
_ADVICE = dict.fromkeys(
    FAILOVER_CODES,
    ("It was refused twice and", "Give the URL of the primary, or push again when the failover is over"),
) | {
    "NOREPLICAS": ("It was refused twice and", "Push again when replicas are connected, as min-replicas-to-write asks"),
    "OOM": (
        "This Redis is full, and the job",
        "Let workers drain its queues or raise maxmemory, then push again; leave maxmemory-policy at noeviction, "
        "because any other policy would evict jobs",
    ),
    "MISCONF": (
        "This Redis cannot save its data, and the job",
        "Make room on its disk or correct the rights of its directory, then push again",
    ),
    "NOPERM": (
        "This Redis user lacks a right that the push needs, and the job",
        "docs/redis.md lists the rights of a user that pushes jobs, and those that a status, batches and workflows "
        "need in addition",
    ),
}

# After a refusal of SADD alone.
_ENQUEUED = "The jobs are enqueued, but their queue is missing from the set `queues`, so Web UIs may not show it"


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
        return [pack_command(command) for command in self.script_commands(prefix)]

    def script_commands(self, prefix: str = "") -> list[Command]:
        """The same commands, not packed, for a script that also does other things. The first payload runs first."""
        if self.scores is None:
            lpush = ("LPUSH", prefix + keys.queue(self.queue), *self.payloads)
            return [("SADD", prefix + keys.QUEUES, self.queue), lpush]
        entries = chain.from_iterable(zip(self.scores, self.payloads, strict=True))
        return [("ZADD", prefix + keys.SCHEDULE, *entries)]

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


class PushedJob:
    """
    A job that is about to be pushed for the first time. All client middleware has already run.

    Attributes:
        jid, queue: The job's id and queue.
        score: When a scheduled job is due, in seconds since the epoch, as text. None pushes it to *queue* now.
        raw: The payload's bytes.
        is_stopped: True if the job will not be pushed.
    """

    __slots__ = ("is_stopped", "jid", "queue", "raw", "score")

    def __init__(self, jid: str, queue: str, score: str | None, raw: bytes) -> None:
        self.jid = jid
        self.queue = queue
        self.score = score
        self.raw = raw
        self.is_stopped = False

    def __repr__(self) -> str:
        return f"<PushedJob jid={self.jid} queue={self.queue}>"

    def add(self, key: str, value: Any) -> None:
        """
        Append a key to the payload, which must not have that key yet.

        Args:
            value: Any JSON value without floats.
        """
        self.raw = b"%b,%b:%b}" % (self.raw[:-1], dumps_known(key), dumps_known(value))

    def stop(self) -> None:
        """Do not push it; `perform_async` then returns None."""
        self.is_stopped = True


class PushSlice:
    """
    The jobs that one round trip pushes: a single job, or up to 1,000 jobs of a bulk push.

    Attributes:
        class_name: The class that the payloads name.
        options: The options of the declared job; empty if the push gave only a class name.
        pool: The Redis that the jobs go to.
        dialect: The Sidekiq release that the payloads are written for.
        follows: The payload of the job whose end pushes these, as the next step of a workflow; otherwise None.
        effects: Extra commands for the script that pushes the jobs.
        once: The key of a hash and a field in it that together ensure the slice is pushed only once.
        watched: A transaction that may replace *effects*.
        when_pushed: Called once Redis has confirmed the slice, so that it is not sent again.
    """

    # A misspelled name must not go unnoticed: extensions set these attributes.
    __slots__ = (
        *("_held", "_jobs", "class_name", "dialect", "effects", "follows"),
        *("once", "options", "pool", "watched", "when_pushed"),
    )

    def __init__(
        self,
        jobs: Sequence[PushBatch] | UnrenderedBatch,
        class_name: str,
        options: Mapping[str, Any],
        pool: Pool,
        dialect: Dialect,
        follows: dict[str, Any] | None = None,
    ) -> None:
        self._held = jobs
        self._jobs: list[PushedJob] | None = None
        self.class_name = class_name
        self.options = options
        self.pool = pool
        self.dialect = dialect
        self.follows = follows
        self.effects: list[Command] = []
        self.once: tuple[str, str] | None = None
        self.watched: Watched | None = None
        self.when_pushed: Callable[[], object] | None = None

    def __iter__(self) -> Iterator[PushedJob]:
        return iter(self.jobs)

    def __len__(self) -> int:
        if self._jobs is not None:
            return len(self._jobs)
        batches = [self._held] if isinstance(self._held, UnrenderedBatch) else self._held
        return sum(len(batch.jids) for batch in batches)

    @property
    def jobs(self) -> list[PushedJob]:
        """The jobs as objects. They are created on first access."""
        if self._jobs is None:
            self._jobs = [PushedJob(*job) for batch in self._rendered() for job in batch.jobs()]
        return self._jobs

    @property
    def raws(self) -> list[bytes]:
        """The bytes of the jobs that were not stopped."""
        return [raw for batch in self.push_batches for raw in batch.payloads]

    @property
    def scores(self) -> list[str]:
        """The scores of the scheduled jobs that were not stopped."""
        if self._jobs is None and isinstance(self._held, UnrenderedBatch):
            return []
        return [score for batch in self.push_batches for score in batch.scores or ()]

    def may_bear(self, key: str) -> bool:
        """True if a job may already have this key. The name inside an argument also gives True."""
        if isinstance(self._held, UnrenderedBatch):
            return self._held.jobs.may_have(key)
        return key.encode() in b"\n".join(self.raws)

    def number(self, tail: bytes, first: int) -> None:
        """
        Append keys to each job; no job may have them yet. This is nearly free in a bulk push, where the bytes of a
        slice have not been rendered yet.

        Args:
            tail: The keys as JSON, after a leading comma, with `%d` for the job's number and no other `%`.
            first: The number of the first job that was not stopped.
        """
        if isinstance(self._held, UnrenderedBatch):
            self._held = [self._held.render(tail, first)]
        else:
            whole = b"%b" + tail + b"}"
            self.rewrite([whole % (raw[:-1], number) for number, raw in enumerate(self.raws, first)])

    def rewrite(self, raws: Sequence[bytes]) -> None:
        """
        Replace `raws` with other bytes, in the same order. For a slice of 1,000 jobs this costs less than an object per
        job.
        """
        following = iter(raws)
        if self._jobs is None:
            self._held = [
                batch._replace(payloads=[*islice(following, len(batch.payloads))]) for batch in self._rendered()
            ]
            return
        by_jid = dict(zip(self.jids, following, strict=False))
        for job in self._jobs:
            job.raw = by_jid.get(job.jid, job.raw)

    def write(self, *commands: Command) -> None:
        """Run these commands in the push script, before the push. If one is refused, nothing is written."""
        self.effects += commands

    def write_watched(self, watched: "Watched") -> None:
        """
        Push many jobs with this transaction in place of the script and the one command that was passed to `write`. Only
        used if no other extension writes anything and if it is cheaper.
        """
        self.watched = watched

    def push_once(self, key: str, mark: str) -> None:
        """
        Make the push safe to send again after a lost reply: if *mark* is already set in the hash at *key*, the script
        does nothing and the caller treats the jobs as pushed. This has no effect if the jobs are pushed along with
        something that happens only once anyway, such as the end of a job.

        Raises:
            ConfigError: Another extension has already marked this push.
        """
        if self.once is not None and self.once != (key, mark):
            raise ConfigError(f"two extensions want to mark one push, at {self.once[0]} and at {key}; use one of them")
        self.once = (key, mark)

    @property
    def stopped_jids(self) -> set[str]:
        """The jids of the stopped jobs."""
        return set() if self._jobs is None else {job.jid for job in self._jobs if job.is_stopped}

    @property
    def jids(self) -> list[str]:
        """The jids of the jobs left to push."""
        return [jid for batch in self.push_batches for jid in batch.jids]

    @property
    def is_empty(self) -> bool:
        """True if no job is left to push."""
        return not len(self) if self._jobs is None else all(job.is_stopped for job in self._jobs)

    @property
    def outgoing(self) -> list[Outgoing]:
        """The jobs left to push."""
        return [job for batch in self.push_batches for job in batch.jobs()]

    @property
    def push_batches(self) -> Sequence[PushBatch]:
        """The jobs left to push, grouped by destination."""
        if self._jobs is None:
            return self._rendered()
        return push_batches_of(
            [Outgoing(job.jid, job.queue, job.score, job.raw) for job in self._jobs if not job.is_stopped]
        )

    def _rendered(self) -> Sequence[PushBatch]:
        if isinstance(self._held, UnrenderedBatch):
            self._held = [self._held.render()]
        return self._held


def push_one(pool: Pool, queue: str, payload: bytes, score: str | None = None) -> None:
    """
    Push one job to a queue, or schedule it if it has a *score*.

    Raises:
        RedisConnectionError: Nothing was done.
        ReplyLostError: It may or may not have been done.
        RedisReplyError: Redis refused it.
    """
    if score is None:
        head = pool.push_heads.get(queue) or _remember_head(pool, queue)
        packed = b"%b%d\r\n%b\r\n" % (head, len(payload), payload)
    else:
        packed = pack_command(("ZADD", pool.key_prefix + keys.SCHEDULE, score, payload))
    link = pool.acquire()
    place = 0
    try:
        link.send_whole(packed)
        try:
            if score is None:
                link.receive()
                place = 1
            link.receive()
        except RedisReplyError as error:
            commands = push_batch_of(Outgoing("", queue, score, payload)).commands(pool.key_prefix)
            _send_again(link, commands, [(place, error), *_read(link, len(commands), first=place + 1)])
    except BaseException:
        # A time limit may interrupt between the two replies; the unread one must not answer a later command.
        link.close()
        raise
    finally:
        pool.release(link)


class Stream:
    """
    Consecutive pushes on one connection, so that the caller prepares the next push while Redis executes the last one.

    `settle`, and the end of the block, raise what `push_one` would raise for the previous push.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._link: Link | None = None
        self._pending: Sequence[bytes] = ()

    def __enter__(self) -> Self:
        self._link = self._pool.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        link = self._link
        assert link is not None
        try:
            if kind is None or issubclass(kind, Exception):
                self.settle()
            if kind is not None:
                link.close()
        except BaseException:
            link.close()
            raise
        finally:
            self._pool.release(link)

    def settle(self) -> None:
        """Read the result of the last push."""
        assert self._link is not None
        commands, self._pending = self._pending, ()
        refusals = _read(self._link, len(commands))
        if refusals:
            _send_again(self._link, commands, refusals)

    def send(self, commands: Sequence[bytes]) -> None:
        """Send a push; the last one must be settled."""
        assert self._link is not None
        self._link.send_whole(b"".join(commands))
        self._pending = commands


def refused_for_good(refusals: Sequence[tuple[int, RedisReplyError]], *, count: int) -> RedisReplyError | None:
    """
    The first refusal that another try would not fix, or None.

    Args:
        count: The number of the push's commands; the last one carries the jobs.
    """
    final = next((error for _, error in refusals if error.code not in FAILOVER_CODES), None)
    if final is None:
        return None
    if refusals[-1][0] != count - 1:
        return RedisReplyError(f"{str(final).rstrip('.')}. {_ENQUEUED}")
    return advised(final)


def advised(refusal: RedisReplyError) -> RedisReplyError:
    """*refusal*, with what to do if Redis takes no writes, or its user lacks a right. Nothing was pushed."""
    advice = _ADVICE.get(refusal.code)
    if advice is None:
        return refusal
    reason, remedy = advice
    return RedisReplyError(
        f"{str(refusal).rstrip('.')}. {reason} is not enqueued (of a bulk push: this slice and those after it). "
        f"{remedy}",
        is_advised=True,
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
        return RedisReplyError(f"{str(error).rstrip('.')}. {_ENQUEUED}")
    return advised(error)


def _read(link: Link, count: int, *, first: int = 0) -> list[tuple[int, RedisReplyError]]:
    """Read the replies to *count* commands, from the *first* on. Returns the position and error of each refusal."""
    refusals: list[tuple[int, RedisReplyError]] = []
    for index in range(first, count):
        try:
            link.receive()
        except RedisReplyError as error:
            refusals.append((index, error))
    return refusals


def _send_again(link: Link, commands: Sequence[bytes], refusals: Sequence[tuple[int, RedisReplyError]]) -> None:
    """Send what a failover refused once more, on the fresh connection that a link opens after such a refusal."""
    final = refused_for_good(refusals, count=len(commands))
    if final is not None:
        raise final
    link.send([commands[index] for index, _ in refusals])
    again = _read(link, len(refusals))
    if again:
        raise refused_twice(refusals, again, count=len(commands))


def _remember_head(pool: Pool, queue: str) -> bytes:
    """The bytes of a push up to the length of its only payload."""
    heads, prefix = pool.push_heads, pool.key_prefix
    if len(heads) >= 1000:  # queue names made up at run time must not fill the memory
        heads.clear()
    key = (prefix + keys.queue(queue)).encode()
    head = pack_command(("SADD", prefix + keys.QUEUES, queue)) + b"*3\r\n$5\r\nLPUSH\r\n$%d\r\n%b\r\n$" % (
        len(key),
        key,
    )
    heads[queue] = head
    return head
