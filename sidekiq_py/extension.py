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

An extension is an object with hooks. Each hook is called at one stage of a job's life; a hook that you do not override
costs nothing. To write to Redis, a hook returns commands. They run in the same script as the step itself, so either
both happen or neither does. `docs/extensions.md` walks through an example.

This module also exports everything else that an extension needs: values for declared jobs that decide their own
outcome, commands for the scripts, and access to Redis. To read and write payloads, use `sidekiq_py.payloads`. Importing
this module does not import the engine, so a program that only pushes never loads it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.config import Config
from sidekiq_py.errors import ConfigError
from sidekiq_py.middleware.chain import ServerMiddleware
from sidekiq_py.outcome import Attempt, EndKind, Kind, Outcome, Question
from sidekiq_py.redis_access.connection.connections import Sentinels, is_same_database, sentinels_of
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.connection.settings import RedisSettings, place, redact
from sidekiq_py.redis_access.connection.slices import slices_by_bytes
from sidekiq_py.redis_access.extension import revoked
from sidekiq_py.redis_access.job_path.failed_jobs import Command, DeadLimits, add_to_dead, add_to_retry, trim_dead
from sidekiq_py.redis_access.job_path.promote import Move, move, move_to
from sidekiq_py.redis_access.job_path.push import Outgoing, PushedJob, PushSlice
from sidekiq_py.redis_access.job_path.settle_script import Effect, Held, Join, Once, Tally, Unless, write
from sidekiq_py.redis_access.job_path.verbs import Verb, verbs
from sidekiq_py.redis_access.job_path.watched_push import Watched
from sidekiq_py.redis_access.processes import declared_classes
from sidekiq_py.registry import Admit, JobDefinition, Payload
from sidekiq_py.wire.dialect import Dialect

__all__ = (  # noqa: RUF022 — by what they are for
    # The hooks and their arguments.
    "CONTRACT", "DeadLetter", "DoctorCheck", "Drop", "EndKind", "Extension", "FetchedJob", "JobEnd", "Maintenance",
    "Phase", "Postpone", "PushSlice", "PushedJob",
    # Commands that a script runs.
    "Command", "Effect", "Held", "Join", "Once", "Outgoing", "Tally", "Unless", "Verb", "Watched", "add_to_dead",
    "add_to_retry", "trim_dead", "verbs", "write",
    # Moving entries out of `schedule`, `retry` and `dead`; the jobs that workers must drop.
    "Move", "move", "move_to", "revoked",
    # For declared jobs that decide their own outcome (`JobDefinition.decide_outcome`).
    "Admit", "Attempt", "DeadLimits", "JobDefinition", "Kind", "Outcome", "Payload", "Question",
    # Which classes the workers of Python can run.
    "declared_classes",
    # Redis, and the time.
    "Link", "Pool", "RedisSettings", "Script", "Sentinels", "is_same_database", "monotonic", "now_seconds", "place",
    "redact", "sentinels_of", "slices_by_bytes",
)  # fmt: skip

CONTRACT = 1
"""The version of this contract. It goes up when extensions written for the previous one have to change."""

Phase = Literal["decide", "change", "count", "encode"]
"""
When an extension runs relative to the others. The order is the same in every program and does not depend on
registration: first those that *decide* whether a job goes on (locks, limits), then those that *change* it, those that
*count* it (batches, status) and those that *encode* the stored bytes (encryption). Pushes run in this order, job ends
in reverse; within a phase, extensions run by name.
"""

PHASES: tuple[Phase, ...] = get_args(Phase)


class FetchedJob(NamedTuple):
    """
    A job that was fetched and has not started yet.

    Args:
        payload: The parsed payload.
        raw: The payload's bytes.
        queue: The queue it was fetched from.
        now: Seconds since the epoch.
    """

    payload: Payload
    raw: bytes
    queue: str
    now: float
    dialect: Dialect


class Postpone(NamedTuple):
    """
    Keep the job in `schedule` until *at* (seconds since the epoch). Then it goes to its queue, ahead of jobs that are
    pushed later. No attempt is counted.
    """

    at: float
    reason: str


class Drop(NamedTuple):
    """Remove the job without running it; it ends as `invalidated`."""

    reason: str


class DeadLetter(NamedTuple):
    """Move the job's bytes to the dead set without running it."""

    reason: str


class JobEnd(NamedTuple):
    """
    A job that leaves its queue, its set or the in-flight jobs.

    Args:
        kind: How it ends.
        payload: The payload as the run left it, or as parsed if the job did not run; empty if the bytes are not a job.
        raw: The bytes as they were stored.
        queue: The queue the job was fetched from or waited in; empty if it waited in a set.
        error: The exception that was raised, or None.
        seconds: How long the job ran; 0.0 if it did not.
        now: Seconds since the epoch.
        dialect: The Sidekiq release to write for.
        member: The entry that will be written to `retry` or `dead`; None for other ends.
        score: The score of *member*, in seconds since the epoch.
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
        """The job's id; empty if its bytes are not a job."""
        return str(self.payload.get("jid") or "")

    @property
    def is_final(self) -> bool:
        """True if the job will not run again by itself."""
        return self.kind not in ("retry", "interrupted")


class Maintenance(NamedTuple):
    """
    Periodic work for one process of the fleet. For short moments, two processes may do it at once.

    Args:
        name: Shown in log lines.
        every_seconds: The pause between two rounds.
        run: Does one round. Its writes must stay correct when another process does the same round at that moment. It
            may return the number of seconds until the next round, to run sooner than *every_seconds*.
    """

    name: str
    every_seconds: float
    run: Callable[[Pool], float | None]


class DoctorCheck(NamedTuple):
    """
    A check that `sidekiq-py doctor` runs.

    Args:
        name: A short, stable name for programs.
        group: The heading under which the check is shown.
        topic: What the check examines, as in "... could not be looked at".
        look: Yields at least one `sidekiq_py.doctor.finding.Finding`, or nothing if the check does not apply.
    """

    name: str
    group: str
    topic: str
    look: Callable[[Pool], Iterable[Any]]


class Extension:
    """
    Base class of extensions. Override the hooks you need.

    Attributes:
        name: A unique name; it appears in every report about the extension.
        phase: When the extension runs relative to others.
        payload_keys: The keys that the extension adds to payloads. Each maps to a description of what is left undone
            if a worker runs such a job without the extension. Only jobs with one of these keys go through `admit`,
            `around` and `end`. A worker that has not loaded the extension treats such a job like one of Sidekiq Pro
            (refuse, run or bury); if the description is empty, it runs the job.
        push_options: Options of declared jobs. If you list any, `push` is skipped for jobs that are declared with none
            of them. Those are pushed with plain commands, which cost a quarter of a script.
        verbs: The extension's own Lua commands for the scripts that push and settle jobs.
        public_names: Names that the extension adds to `sidekiq_py`, each with the module that defines it.
        api_names: Names that the extension adds to `sidekiq_py.api`, each with the module that defines it.
        commands: Commands and command groups for `sidekiq-py`. Each name maps to its location (`"module:attribute"`)
            and its line in the help, so that the help does not have to import the command.
        job_attributes: Attributes to add to `current_job()`. Each is a function that takes the current job.
        ruby_job_attributes: Attributes to add to what `ruby_job` returns. Each is a function that takes that object.
        contract: The `CONTRACT` that the extension was written for.
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
        """The sort key that puts extensions in order."""
        return PHASES.index(self.phase), self.name

    def overrides(self, hook: str) -> bool:
        """True if the extension has a method *hook* of its own."""
        return getattr(type(self), hook) is not getattr(Extension, hook)

    def wants_pushes(self) -> bool:
        """Called once per push or slice of a bulk push. Return False to skip `push` for it."""
        return True

    def wants_pushes_after(self, payload: Payload) -> bool:
        """
        Called when the end of a job with one of `payload_keys` pushes other jobs, as a workflow does. Return True to
        send them through `push` even if `wants_pushes` returned False.
        """
        return False

    def push(self, jobs: PushSlice) -> None:
        """
        Called when the Python client pushes jobs for the first time. Jobs that move out of `schedule` and `retry`, and
        jobs that Ruby enqueues, do not come through here.

        Raises:
            Exception: Any exception reaches the caller, and nothing is pushed.
        """

    def deferred(self) -> "AbstractContextManager[Any] | None":
        """
        Called when a push that this extension wants is held back until a commit. Returns a context manager that is
        entered around the actual push, possibly in another thread. After a rollback it is dropped without being
        entered.
        """
        return None

    def takes_over(self, payload: Payload, pool: Pool) -> bool:
        """
        Called for a fetched job if one of its `payload_keys` is also a key of Sidekiq Pro, Enterprise or a gem and the
        program has not chosen a policy for that key. Return True to run the job here and end it as `end` says, False
        to leave it to Ruby.

        Args:
            pool: The worker's Redis.

        Raises:
            RedisError: The question cannot be answered now. The job goes back to its queue and is asked about again.
        """
        return False

    def may_hold_up(self, payload: Payload) -> bool:
        """Called before `admit`. Return False to start the job without calling `admit`."""
        return self.overrides("admit")

    def admit(self, job: FetchedJob) -> Postpone | Drop | DeadLetter | None:
        """
        Called when a job with one of `payload_keys` was fetched. Return None to start it.

        Raises:
            Exception: The job waits in `schedule`, longer each time, and the error is reported.
        """
        return None

    def around(self) -> ServerMiddleware | None:
        """Middleware around the run of a job with one of `payload_keys`, outside the program's server middleware."""
        return None

    def end_of_success(self, payload: Payload) -> Tally | None:
        """The result of `end` for a success that the payload alone decides, which is cheaper; None calls `end`."""
        return None

    def end(self, end: JobEnd) -> Iterable[Effect]:
        """
        Called when a job with one of `payload_keys` leaves its place in Redis. Returns commands to run in the script
        that removes it.

        Raises:
            Exception: After a success, the attempt counts as failed. After a failure, the job's bytes go to `dead`.
        """
        return ()

    def forget_run(self, payload: Payload) -> None:
        """
        Called instead of `end` when a run that the extension follows has no end, because the job went back to its queue
        or ran inline; also for an admitted job that does not start, because its own definition postpones it.
        """

    def start(self, pool: Pool, config: Config) -> None:
        """
        Called when a worker starts, before the program's `startup` handlers and the first fetch. If Redis refuses it
        for a reason that passes, such as a failover, the worker starts nevertheless, and it is called again after each
        heartbeat until it succeeds.

        Raises:
            Exception: The worker does not start.
        """

    def followed(self, end: JobEnd, effects: "tuple[Effect, ...]") -> "tuple[Effect, ...]":
        """
        Called with the commands that the job's own definition writes at its end, such as the pushes of a workflow's
        next steps. Returns the commands to write in their place.
        """
        return effects

    def pretend(self, end: JobEnd) -> None:
        """Called in a testing mode after a job with one of `payload_keys` ran. There is no Redis to write to."""

    def maintain(self) -> Sequence[Maintenance]:
        """Periodic work for the fleet. Called once, when a worker starts."""
        return ()

    def explain(self, refusal: str) -> Exception | None:
        """The exception to raise for an error that one of `verbs` returned; None raises the error unchanged."""
        return None

    def checks(self) -> Sequence[DoctorCheck]:
        """Additional checks for the doctor."""
        return ()

    def entries(self, listing: str) -> Iterable[Any]:
        """
        Entries to add to another extension's listing (such as `"cron"`), if any. Read them through
        `sidekiq_py.pushing.current()`: the listing may show another Redis than the program's own.
        """
        return ()

    def pages(self) -> Sequence[Any]:
        """Dashboard pages, in the form that `sidekiq_py.web` documents."""
        return ()

    def ruby_code(self) -> str:
        """Ruby code for `sidekiq-py ruby-support`, or an empty string."""
        return ""


def check(extension: object) -> Extension:
    """
    Return *extension* if this version can work with it.

    Raises:
        ConfigError: It is not an extension, was written for another contract, or its attributes are not usable.
    """
    if isinstance(extension, type) and issubclass(extension, Extension):
        name = extension.__name__
        raise ConfigError(f"{name} is the class of an extension; give an object of it: {name}()")
    if not isinstance(extension, Extension):
        raise ConfigError(f"{extension!r} is not an extension; inherit from sidekiq_py.extension.Extension")
    if not extension.name:
        raise ConfigError(f'{type(extension).__name__} has no name; set name = "…" in the class')
    if extension.contract != CONTRACT:
        raise ConfigError(
            f"the extension {extension.name!r} is written for contract {extension.contract}, and this sidekiq_py has "
            f"contract {CONTRACT}; install compatible versions of both"
        )
    if extension.phase not in PHASES:
        raise ConfigError(
            f"the extension {extension.name!r} has phase {extension.phase!r}; use one of {', '.join(PHASES)}"
        )
    if not isinstance(extension.payload_keys, Mapping):
        raise ConfigError(
            f"payload_keys of the extension {extension.name!r} is {extension.payload_keys!r}; use a dict that says for "
            'each key what a worker without the extension would leave undone, or "" if nothing'
        )
    if not all(isinstance(verb, Verb) for verb in extension.verbs):
        raise ConfigError(
            f"verbs of the extension {extension.name!r} must be a tuple of verbs, also if it is one: (LOCK,)"
        )
    return extension
