"""
The jobs that this process declares, by the class name in their payloads.

This is the only place that looks up a payload's class. Nothing is ever imported or evaluated because a payload names
it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from sidekiq_py.errors import JobDeclarationError, SoftTimeLimitError
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.payload import DEFAULT_OPTIONS
from sidekiq_py.wire.push_template import PushTemplate

if TYPE_CHECKING:
    from sidekiq_py.outcome import DecideOutcome  # a program that only pushes does not need it
    from sidekiq_py.redis_access.job_path.settle_script import Effect

Payload = dict[str, Any]
# A block may declare any kind of exception: which ones a job raises is its own affair.
RetryInBlock = Callable[[int, Any, Payload], float | timedelta | str | None]
ExhaustedBlock = Callable[[Payload, Any], Any]
RetryIn = TypeVar("RetryIn", bound=RetryInBlock)
Exhausted = TypeVar("Exhausted", bound=ExhaustedBlock)
OnNotices = Callable[[Sequence[bytes]], None]
"""Called with the notices that arrive along with jobs: their number, and the ids of revoked jobs."""
OnTooLarge = Callable[[bytes], tuple[str, Sequence["Effect"]]]
"""Called with the bytes of a job that is too large to read. Returns a text to report and the commands for its end."""
Admit = Callable[[Payload, Dialect], tuple[bytes, float] | None]
"""
Called before a job starts. Returns None to start it, or the bytes to put in `schedule` in its place and the time they
are due, in seconds since the epoch. It may block for some milliseconds.
"""


def never_stopping() -> bool:
    """Always False: for runs outside of a worker process that may stop."""
    return False


class DefinitionTemplate:
    """A push template and its queue, with the dialect and default options that it was made for."""

    __slots__ = ("default_options", "dialect", "millisecond_times", "queue", "render")

    def __init__(self, definition: "JobDefinition", dialect: Dialect, default_options: Mapping[str, Any]) -> None:
        options = {**default_options, **definition.options}
        self.dialect = dialect
        self.default_options = default_options
        self.queue: str = {**DEFAULT_OPTIONS, **options}["queue"]
        self.render = PushTemplate(definition.name, options, dialect).render
        self.millisecond_times = dialect.millisecond_times


class JobDefinition:
    """
    Everything that is known about one declared job.

    Args:
        name: The `class` in its payloads.
        options: Sidekiq options that extend or override the defaults of `retry` and `queue`, in declaration order.
        job: The object that middleware receives: the function's handle, or the job class.
        origin: Module and qualified name; distinguishes a second declaration from a reload of the first.
        pool: The shard that the job is pushed to, or None for the program's own Redis.

    Attributes:
        is_async: True if `bind` returns a coroutine function.
        timeout_seconds: The soft limit, raised inside the job.
        hard_timeout_seconds: The limit at which the child process that runs the job is killed.
        retry_in_block: `(count, exception, payload) -> seconds | "kill" | "discard" | None`.
        exhausted_block: `(payload, exception)`, called when no retry is left.
        push_template: The parts that all pushes share, made for the dialect of the last push; None before the first.
        decide_outcome: Decides how an attempt ends, in place of Sidekiq's rules; None applies those.
        is_acknowledged_early: True if the job runs at most once: it is acknowledged before it starts.
        timeout_error: The exception that the soft limit raises.
        admit: Decides if a job may start now; None if it always may.
        resolve: For a class that stands for many jobs, such as Active Job's wrapper: finds the definition for a
            payload, or None. It is None for all other classes.
    """

    __slots__ = (
        "admit",
        "decide_outcome",
        "exhausted_block",
        "hard_timeout_seconds",
        "is_acknowledged_early",
        "is_async",
        "job",
        "name",
        "options",
        "origin",
        "pool",
        "push_template",
        "resolve",
        "retry_in_block",
        "timeout_error",
        "timeout_seconds",
    )

    def __init__(
        self,
        name: str,
        options: dict[str, Any],
        job: Any,
        *,
        origin: str = "",
        is_async: bool = False,
        pool: Any = None,
    ) -> None:
        self.name = name
        self.options = options
        self.job = job
        self.origin = origin
        self.pool = pool
        self.is_async = is_async
        self.is_acknowledged_early = False
        self.timeout_seconds: float | None = None
        self.timeout_error: type[SoftTimeLimitError] = SoftTimeLimitError
        self.hard_timeout_seconds: float | None = None
        self.retry_in_block: RetryInBlock | None = None
        self.exhausted_block: ExhaustedBlock | None = None
        self.decide_outcome: DecideOutcome | None = None
        self.admit: Admit | None = None
        self.resolve: Callable[[Payload], JobDefinition | None] | None = None
        self.push_template: DefinitionTemplate | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.options}>"

    def report_timeout(self, payload: Payload) -> None:
        """Called when the soft limit has been raised in a run of *payload*, in another thread than the job's."""

    def classes(self) -> Iterable[str]:
        """The names of the classes that it runs: its own, or those behind a wrapper."""
        return (self.name,)

    def bind(self, payload: Payload, stopping: Callable[[], bool]) -> Callable[..., Any]:
        """
        The callable to run with the payload's args.

        Args:
            payload: The parsed payload.
            stopping: Returns True once the process is about to stop.
        """
        raise NotImplementedError(f"{self.name} runs elsewhere; it can only be enqueued here")

    def subject(self, bound: Callable[..., Any]) -> Any:
        """The object that server middleware receives: the declared job, or the instance that runs it, as in Ruby."""
        return self.job

    def make_push_template(self, dialect: Dialect, default_options: Mapping[str, Any]) -> DefinitionTemplate:
        """Render the bytes that all pushes of the job share, and keep them in `push_template`."""
        self.push_template = push_template = DefinitionTemplate(self, dialect, default_options)
        return push_template


class FunctionDefinition(JobDefinition):
    """A job that is a function."""

    __slots__ = ("function",)

    def __init__(self, name: str, options: dict[str, Any], job: Any, function: Callable[..., Any], **rest: Any) -> None:
        super().__init__(name, options, job, **rest)
        self.function = function

    def bind(self, payload: Payload, stopping: Callable[[], bool]) -> Callable[..., Any]:
        """The function itself."""
        return self.function


def definition_of(job: Any) -> JobDefinition | None:
    """
    The definition of what a program names as a job: a handle (with the options of `set`), a job class, or a function
    that wraps one. None if it is something else.

    Raises:
        JobDeclarationError: An option of `set` is invalid, or belongs to a single push.
    """
    found = getattr(job, "__sidekiq_job__", None)
    if not isinstance(found, JobDefinition):
        return None
    with_options: Callable[[], JobDefinition] | None = getattr(type(job), "with_options", None)
    return found if with_options is None else job.with_options()


_MOST_ELSEWHERE = 10_000


class Registry:
    """
    Maps class names to declared jobs.

    Attributes:
        on_notices: Receives notices in a worker whose jobs can be revoked; None if nothing listens.
        on_too_large: Called for jobs larger than `Config.max_job_bytes`.
        elsewhere: Classes that this program enqueues but does not implement, as with `ruby_job`; 10,000 at most.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, JobDefinition] = {}
        self.on_notices: OnNotices | None = None
        self.on_too_large: OnTooLarge | None = None
        self.elsewhere: set[str] = set()
        # This is the dict's own method, for speed: every run looks up its job.
        self.find: Callable[[str], JobDefinition | None] = self._by_name.get

    def __repr__(self) -> str:
        return f"<Registry {list(self._by_name)}>"

    def __iter__(self) -> Iterator[JobDefinition]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, class_name: object) -> bool:
        return class_name in self._by_name

    def find_for(self, payload: Payload) -> JobDefinition | None:
        """The definition that runs this job: that of its class or, behind a wrapper, the one that the payload names."""
        definition = self.find(payload["class"])
        return definition.resolve(payload) if definition is not None and definition.resolve is not None else definition

    def classes(self) -> list[str]:
        """All classes that can be run, sorted. Active Jobs are listed by their own names, not by their wrapper's."""
        return sorted({name for definition in self for name in definition.classes()})

    def is_active_job(self, class_name: Any) -> bool:
        """True for a class that is declared as an Active Job alone; it cannot be pushed as a plain job."""
        if self.find(class_name) is not None:
            return False
        return any(definition.resolve is not None and class_name in definition.classes() for definition in self)

    def add(self, definition: JobDefinition) -> None:
        """
        Register a job. If its module was reloaded, it replaces its earlier definition.

        Raises:
            JobDeclarationError: Another job has the name.
        """
        present = self._by_name.get(definition.name)
        if present is not None and present.origin != definition.origin:
            raise JobDeclarationError(
                f"the job name {definition.name!r} is declared by {present.origin} and again by {definition.origin}; "
                "give one of them another name="
            )
        self._by_name[definition.name] = definition

    def add_elsewhere(self, class_name: str) -> None:
        """Note that this program enqueues the class but does not implement it."""
        # A program may make up names as it runs.
        if len(self.elsewhere) < _MOST_ELSEWHERE:
            self.elsewhere.add(class_name)

    def fall_back(self, find: Callable[[str], JobDefinition | None]) -> None:
        """Use *find* for classes that are not declared, after any fallback that was added before."""
        known = self.find
        self.find = lambda class_name: known(class_name) or find(class_name)

    def remove(self, class_name: str) -> None:
        """Remove a job. Does nothing if there is none."""
        self._by_name.pop(class_name, None)

    def clear(self) -> None:
        """Remove all jobs."""
        self._by_name.clear()


registry = Registry()
"""The jobs of this program."""
