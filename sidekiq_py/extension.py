"""
The contract for everything above open-source Sidekiq: periodic jobs, batches, the Celery surface, and yours.

    import sidekiq_py as sidekiq
    from sidekiq_py.extension import Extension

    class Tenants(Extension):
        name = "tenants"

        def push(self, jobs):
            for job in jobs:
                job.add("tenant", current_tenant())

    sidekiq.use(Tenants())

An extension is an object with hooks. Each hook is called at one stage of a job's way; what an extension leaves out
costs nothing. What a hook wants written to Redis it returns as commands, and they ride in the very script that does the
step: both happen or neither. `docs/extensions.md` walks through an example.

What an extension needs besides stands here too: values for declared jobs that decide about their own ends, commands for
the scripts, and the door to Redis. Payloads are read and written by `sidekiq_py.payloads`. No engine is imported: a
program that only pushes loads none.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Literal, NamedTuple

from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.config import Config
from sidekiq_py.errors import ConfigError
from sidekiq_py.middleware.chain import ServerMiddleware
from sidekiq_py.outcome import Attempt, EndKind, Kind, Outcome, Question
from sidekiq_py.redis_access.connection.connections import Sentinels, sentinels_of
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.connection.settings import RedisSettings, place, redact
from sidekiq_py.redis_access.extension import revoked
from sidekiq_py.redis_access.job_path.failed_jobs import Command, DeadLimits, add_to_dead, add_to_retry, trim_dead
from sidekiq_py.redis_access.job_path.promote import Move, move, move_to
from sidekiq_py.redis_access.job_path.push import Outgoing, PushBatch, UnrenderedBatch, push_batches_of
from sidekiq_py.redis_access.job_path.settle_script import Effect, Held, Join, Once, Tally, Unless, write
from sidekiq_py.redis_access.job_path.verbs import Verb, verbs
from sidekiq_py.redis_access.job_path.watched_push import Watched
from sidekiq_py.registry import Admit, JobDefinition, Payload
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.json_dialect import dumps_known

__all__ = (  # noqa: RUF022 — by what they are for
    # The hooks, and what they are handed.
    "CONTRACT", "DeadLetter", "DoctorCheck", "Drop", "EndKind", "Extension", "FetchedJob", "JobEnd", "Maintenance",
    "Phase", "Postpone", "PushSlice", "PushedJob",
    # What a script writes.
    "Command", "Effect", "Held", "Join", "Once", "Outgoing", "Tally", "Unless", "Verb", "Watched", "add_to_dead",
    "add_to_retry", "trim_dead", "verbs", "write",
    # What takes entries out of `schedule`, `retry` and `dead`, and which jobs workers are told to drop.
    "Move", "move", "move_to", "revoked",
    # Declared jobs that decide about their own ends (`JobDefinition.decide_outcome`).
    "Admit", "Attempt", "DeadLimits", "JobDefinition", "Kind", "Outcome", "Payload", "Question",
    # Redis, and the time.
    "Link", "Pool", "RedisSettings", "Script", "Sentinels", "monotonic", "now_seconds", "place", "redact",
    "sentinels_of",
)  # fmt: skip

CONTRACT = 1
"""The number of this contract. It changes where an extension written against the last one would have to."""

Phase = Literal["decide", "change", "count", "encode"]
"""
When an extension has its turn among others, the same in every program whatever the order of registration: those that
*decide* whether a job goes on (locks, limits), those that *change* it, those that *count* it (batches, status), those
that *encode* what is written (encryption). Inward on a push, in reverse at an end; by name within a phase.
"""

PHASES: tuple[Phase, ...] = ("decide", "change", "count", "encode")


class PushedJob:
    """
    A job that is about to be pushed for the first time, behind all client middleware.

    Attributes:
        jid, queue: The job's.
        score: Of a scheduled job, as text: seconds since the epoch; None puts it into *queue*.
        raw: Its bytes.
        is_stopped: It is not to be pushed.
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
        Add a key behind those that the payload has. It must not have it yet.

        Args:
            value: JSON without floats.
        """
        self.raw = b"%b,%b:%b}" % (self.raw[:-1], dumps_known(key), dumps_known(value))

    def stop(self) -> None:
        """Do not push it; `perform_async` then returns None."""
        self.is_stopped = True


class PushSlice:
    """
    Jobs that one round trip pushes: one, or up to a thousand of a bulk push.

    Attributes:
        class_name: What their payloads name.
        options: The options of the declared job, or an empty mapping where only a name was given.
        pool: The Redis that they go to.
        dialect: The release that they are written for.
        follows: The payload of the job whose end writes them, as the next step of a workflow; None for all others.
        effects: What the script that pushes them writes besides.
        once: The hash and the mark by which it is pushed only once.
        watched: What may be written in place of *effects*.
    """

    __slots__ = (
        "_held",
        "_jobs",
        "class_name",
        "dialect",
        "effects",
        "follows",
        "once",
        "options",
        "pool",
        "watched",
    )

    def __init__(
        self,
        jobs: Sequence[PushBatch] | UnrenderedBatch,
        class_name: str,
        options: Mapping[str, Any],
        pool: Pool,
        dialect: Dialect,
        follows: Payload | None = None,
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

    def __iter__(self) -> Iterator[PushedJob]:
        return iter(self.jobs)

    def __len__(self) -> int:
        if self._jobs is not None:
            return len(self._jobs)
        batches = [self._held] if isinstance(self._held, UnrenderedBatch) else self._held
        return sum(len(batch.jids) for batch in batches)

    @property
    def jobs(self) -> list[PushedJob]:
        """The jobs, each as an object of its own; made when somebody asks."""
        if self._jobs is None:
            self._jobs = [PushedJob(*job) for batch in self._rendered() for job in batch.jobs()]
        return self._jobs

    @property
    def raws(self) -> list[bytes]:
        """The bytes of the jobs that nobody has stopped."""
        return [raw for batch in self.push_batches for raw in batch.payloads]

    @property
    def scores(self) -> list[str]:
        """Those of the jobs that are scheduled and that nobody has stopped."""
        if self._jobs is None and isinstance(self._held, UnrenderedBatch):
            return []
        return [score for batch in self.push_batches for score in batch.scores or ()]

    def may_bear(self, key: str) -> bool:
        """Whether a job of them may have this key already; or its name stands in an argument."""
        if isinstance(self._held, UnrenderedBatch):
            return self._held.jobs.may_bear(key)
        return key.encode() in b"\n".join(self.raws)

    def number(self, tail: bytes, first: int) -> None:
        """
        Add keys behind those that each job has, of which none may have them yet. In a bulk push, where the bytes of a
        slice have not been made yet, that costs next to nothing.

        Args:
            tail: With a comma before them and `%d` for the job's number, in which `%` stands nowhere else.
            first: The number of the first job that nobody has stopped.
        """
        if isinstance(self._held, UnrenderedBatch):
            self._held = [self._held.render(tail, first)]
        else:
            whole = b"%b" + tail + b"}"
            self.rewrite([whole % (raw[:-1], number) for number, raw in enumerate(self.raws, first)])

    def rewrite(self, raws: Sequence[bytes]) -> None:
        """
        Put other bytes in place of `raws`, in their order: for a slice of a thousand that costs less than an object for
        each of its jobs.
        """
        following = iter(raws)
        if self._jobs is None:
            self._held = [
                batch._replace(payloads=[*islice(following, len(batch.payloads))]) for batch in self._rendered()
            ]
            return
        by_place = {
            job.jid: raw for batch in self.push_batches for job, raw in zip(batch.jobs(), following, strict=False)
        }
        for job in self._jobs:
            job.raw = by_place.get(job.jid, job.raw)

    def write(self, *commands: Command) -> None:
        """Have these commands done in the script that pushes, before the push; if one is refused, nothing is done."""
        self.effects += commands

    def write_watched(self, watched: Watched) -> None:
        """
        Have many jobs pushed by a transaction with these commands, in place of the script and the one command that
        `write` was given: where no other extension writes anything, and where it pays.
        """
        self.watched = watched

    def push_once(self, key: str, mark: str) -> None:
        """
        Make the push one that may be sent again after a lost reply: whoever finds *mark* set in the hash at *key* does
        nothing, and the caller takes the jobs for pushed. Of no effect where the jobs are pushed along with something
        that is done once anyway, as the end of a job is.

        Raises:
            ConfigError: Another extension has done so.
        """
        if self.once is not None and self.once != (key, mark):
            raise ConfigError(f"two extensions want to mark one push, at {self.once[0]} and at {key}; use one of them")
        self.once = (key, mark)

    @property
    def stopped_jids(self) -> set[str]:
        """The jids of those that are not to be pushed."""
        return set() if self._jobs is None else {job.jid for job in self._jobs if job.is_stopped}

    @property
    def jids(self) -> list[str]:
        """Of what is left to push."""
        return [jid for batch in self.push_batches for jid in batch.jids]

    @property
    def is_empty(self) -> bool:
        """Nothing is left to push."""
        return not len(self) if self._jobs is None else all(job.is_stopped for job in self._jobs)

    @property
    def outgoing(self) -> list[Outgoing]:
        """What is left to push."""
        return [job for batch in self.push_batches for job in batch.jobs()]

    @property
    def push_batches(self) -> Sequence[PushBatch]:
        """The same, by where it goes."""
        if self._jobs is None:
            return self._rendered()
        return push_batches_of(
            [Outgoing(job.jid, job.queue, job.score, job.raw) for job in self._jobs if not job.is_stopped]
        )

    def _rendered(self) -> Sequence[PushBatch]:
        if isinstance(self._held, UnrenderedBatch):
            self._held = [self._held.render()]
        return self._held


class FetchedJob(NamedTuple):
    """
    A job that was fetched and has not started.

    Args:
        payload: As parsed.
        raw: Its bytes.
        queue: Where it was fetched.
        now: Seconds since the epoch.
    """

    payload: Payload
    raw: bytes
    queue: str
    now: float
    dialect: Dialect


@dataclass(frozen=True, slots=True)
class Postpone:
    """It waits in `schedule` until *at* (seconds since the epoch), ahead of newcomers; no attempt is counted."""

    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class Drop:
    """It leaves without a run; its end is `invalidated`."""

    reason: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Its bytes go to the dead set without a run."""

    reason: str


class JobEnd(NamedTuple):
    """
    A job that leaves the place where it was in Redis.

    Args:
        kind: How.
        payload: As the run left it; as parsed where it did not run; empty where the bytes are no job.
        raw: Its bytes as they were stored.
        queue: Where it was fetched, or where it stood; empty for one that waited in a set.
        error: What was raised, or None.
        seconds: How long it ran; 0.0 where it did not.
        now: Seconds since the epoch.
        dialect: The release to write for.
        member: What will stand in `retry` or `dead`; None for other ends.
        score: Of *member*: seconds since the epoch.
    """

    kind: EndKind
    payload: Payload
    raw: bytes
    queue: str
    now: float
    dialect: Dialect
    error: BaseException | None = None
    seconds: float = 0.0
    member: bytes | None = None
    score: float | None = None

    @property
    def jid(self) -> str:
        """The job's id; empty where its bytes are no job."""
        return str(self.payload.get("jid") or "")

    @property
    def is_final(self) -> bool:
        """It will not run again by itself."""
        return self.kind not in ("retry", "interrupted")


@dataclass(frozen=True, slots=True)
class Maintenance:
    """
    Work that one process of the fleet does again and again; for moments it may be two of them.

    Args:
        name: For log lines.
        every_seconds: The pause between two rounds.
        run: One round. What it writes must be right also where another process does the same at that moment. It may
            return the seconds until it wants the next one, if that is sooner.
    """

    name: str
    every_seconds: float
    run: Callable[[Pool], float | None]


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """
    A question of `sidekiq-py doctor`.

    Args:
        name: For programs: short, stable.
        group: Under which heading it is shown.
        topic: What it looks at, as in "... could not be looked at".
        look: Yields at least one `sidekiq_py.doctor.finding.Finding`, unless the question does not apply.
    """

    name: str
    group: str
    topic: str
    look: Callable[[Pool], Iterable[Any]]


class Extension:
    """
    Base class of extensions; override what you need.

    Attributes:
        name: Unique; stands in every report about it.
        phase: Its turn among others.
        payload_keys: Keys that it puts into payloads, each with what is left undone where a worker runs such a job
            without the extension. A job that bears one passes `admit`, `around` and `end`; others do not. Workers
            that have not loaded the extension treat such a job as they do one of Sidekiq Pro's (refuse, run, bury);
            with an empty text in the place of what is left undone they run it.
        push_options: Options of declared jobs. If there are some here, pushes of jobs that are declared with none of
            them pass by: such jobs are pushed by plain commands, which costs a quarter of a script.
        verbs: Commands of its own, in Lua, for the scripts that push and end jobs.
        public_names: Names in `sidekiq_py` that belong to it, each with the module that has it.
        api_names: The same for `sidekiq_py.api`.
        commands: Commands and groups of `sidekiq-py`: by name, where each is (`"module:attribute"`) and its line in the
            help, which is so shown without importing it.
        job_attributes: Attributes of `current_job()`: each a function of the current job.
        ruby_job_attributes: Attributes of what `ruby_job` makes: each a function of that.
        contract: The `CONTRACT` that it was written for.
    """

    name: ClassVar[str] = ""
    phase: ClassVar[Phase] = "change"
    contract: ClassVar[int] = 1
    payload_keys: ClassVar[Mapping[str, str]] = {}
    push_options: ClassVar[Sequence[str]] = ()
    verbs: ClassVar[Sequence[Verb]] = ()
    public_names: ClassVar[Mapping[str, str]] = {}
    api_names: ClassVar[Mapping[str, str]] = {}
    commands: ClassVar[Mapping[str, tuple[str, str]]] = {}
    job_attributes: Mapping[str, Callable[[Any], Any]] = {}
    ruby_job_attributes: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def turn(self) -> tuple[int, str]:
        """By which extensions are sorted."""
        return PHASES.index(self.phase), self.name

    @property
    def has_push(self) -> bool:
        """It has a hook for pushes."""
        return type(self).push is not Extension.push

    @property
    def has_around(self) -> bool:
        """It has a middleware of its own."""
        return type(self).around is not Extension.around

    def wants_pushes(self) -> bool:
        """Asked once a push, or a slice of a bulk push: False lets it pass without a look at the jobs."""
        return True

    def wants_pushes_after(self, payload: Payload) -> bool:
        """
        Asked where the end of a job that bears one of `payload_keys` pushes others, as a workflow does: True has them
        pass `push`, also where `wants_pushes` says no.
        """
        return False

    def push(self, jobs: PushSlice) -> None:
        """
        Jobs are pushed for the first time, through the Python client. Moves out of `schedule` and `retry` are no
        pushes, and what Ruby enqueues does not pass here.

        Raises:
            Exception: Whatever it is reaches the caller, and nothing is pushed.
        """

    def deferred(self) -> "AbstractContextManager[Any] | None":
        """
        A push that it wants waits for a commit. Returns what is entered around the push once it is made, perhaps in
        another thread; after a rollback it is never entered, and dropped.
        """
        return None

    def takes_over(self, payload: Payload, pool: Pool) -> bool:
        """
        Asked of a fetched job that bears one of `payload_keys` which is also a key of Sidekiq Pro, Enterprise or a gem,
        and for which the program has chosen no policy: True has it run and end here, as `end` says. False leaves it to
        Ruby.

        Args:
            pool: The worker's Redis.

        Raises:
            RedisError: That cannot be told now; the job goes back and is asked about again.
        """
        return False

    def may_hold_up(self, payload: Payload) -> bool:
        """Asked before `admit`: False lets this job start without it."""
        return type(self).admit is not Extension.admit

    def admit(self, job: FetchedJob) -> Postpone | Drop | DeadLetter | None:
        """
        A job that bears one of `payload_keys` was fetched; None starts it.

        Raises:
            Exception: The job waits in `schedule`, each time longer, and the error is reported.
        """
        return None

    def around(self) -> ServerMiddleware | None:
        """What wraps the run of a job that bears one of `payload_keys`, outside the program's server middleware."""
        return None

    def end_of_success(self, payload: Payload) -> Tally | None:
        """What `end` returns for a success, where the payload tells all; None has `end` asked. Jobs are cheaper so."""
        return None

    def end(self, end: JobEnd) -> Iterable[Effect]:
        """
        A job that bears one of `payload_keys` leaves Redis's place where it was; returns the commands for the script
        that does it.

        Raises:
            Exception: After a success the attempt counts as failed; after a failure the job goes to `dead` with its
                bytes.
        """
        return ()

    def forget_run(self, payload: Payload) -> None:
        """A run whose end the extension asked to hear of has none: the job went back to its queue, or ran inline."""

    def start(self, pool: Pool, config: Config) -> None:
        """
        A worker starts, before the program's `startup` handlers and before it fetches.

        Raises:
            Exception: The worker does not start.
        """

    @property
    def has_followed(self) -> bool:
        """It has a hook for what ends push."""
        return type(self).followed is not Extension.followed

    def followed(self, end: JobEnd, effects: "tuple[Effect, ...]") -> "tuple[Effect, ...]":
        """
        What the job's own definition writes with its end, such as the pushes of a workflow's next steps; returns what
        is to be written in its place.
        """
        return effects

    def pretend(self, end: JobEnd) -> None:
        """In a testing mode a job that bears one of `payload_keys` has run: there is no Redis to write to."""

    def maintain(self) -> Sequence[Maintenance]:
        """Asked once, at the start of a worker."""
        return ()

    def explain(self, refusal: str) -> Exception | None:
        """What a caller is raised for an error that one of `verbs` has returned, or None for the error as it is."""
        return None

    def checks(self) -> Sequence[DoctorCheck]:
        """What the doctor looks at besides."""
        return ()

    def entries(self, listing: str) -> Iterable[Any]:
        """What it adds to a listing of another extension (`"cron"`), or nothing."""
        return ()

    def pages(self) -> Sequence[Any]:
        """Pages of the dashboard: `sidekiq_py.web` documents their form."""
        return ()

    def ruby_code(self) -> str:
        """Ruby for `sidekiq-py ruby-support`, or an empty text."""
        return ""


def check(extension: object) -> Extension:
    """
    *extension*, if this version can work with it.

    Raises:
        ConfigError: It is no extension, has no name, or was written for another contract.
    """
    if not isinstance(extension, Extension):
        raise ConfigError(f"{extension!r} is not an extension; inherit from sidekiq_py.extension.Extension")
    if not extension.name:
        raise ConfigError(f'{type(extension).__name__} has no name; set name = "…" in the class')
    if extension.contract != CONTRACT:
        raise ConfigError(
            f"the extension {extension.name!r} is written for contract {extension.contract}, and this sidekiq_py has "
            f"contract {CONTRACT}; install versions of both that fit"
        )
    if extension.phase not in PHASES:
        raise ConfigError(
            f"the extension {extension.name!r} has phase {extension.phase!r}; use one of {', '.join(PHASES)}"
        )
    return extension
