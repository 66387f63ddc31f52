"""
The jobs that this process declares, by the class that payloads name.

Which class a payload names is looked up here and nowhere else: nothing is imported or evaluated from a payload.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sidekiq_py.errors import JobDeclarationError, SoftTimeLimitError
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.payload import DEFAULT_OPTIONS
from sidekiq_py.wire.push_template import PushTemplate

if TYPE_CHECKING:
    from sidekiq_py.outcome import DecideOutcome  # a program that only pushes settles nothing
    from sidekiq_py.redis_access.job_path.settle_script import Effect

Payload = dict[str, Any]
RetryInBlock = Callable[[int, BaseException, Payload], Any]
ExhaustedBlock = Callable[[Payload, BaseException], Any]
OnNotices = Callable[[Sequence[bytes]], None]
"""Handed what Redis tells along with jobs: the number of the notices, and ids of theirs that are revoked."""
OnTooLarge = Callable[[bytes], tuple[str, Sequence["Effect"]]]
"""Handed the bytes of a job that is too large to be read: what is to be said of it, and written with its end."""
Admit = Callable[[Payload, Dialect], tuple[bytes, float] | None]
"""
Asked before a job starts: None, or what is to wait in `schedule` in its place, and until when, seconds since the epoch.
It may wait some milliseconds.
"""


def never_stopping() -> bool:
    """For a run that no stopping process is behind."""
    return False


class DefinitionTemplate:
    """A push template, the queue it pushes to, and what it was made for."""

    __slots__ = ("default_options", "dialect", "millisecond_times", "queue", "render", "template")

    def __init__(self, definition: "JobDefinition", dialect: Dialect, default_options: Mapping[str, Any]) -> None:
        options = {**default_options, **definition.options}
        self.dialect = dialect
        self.default_options = default_options
        self.queue: str = {**DEFAULT_OPTIONS, **options}["queue"]
        self.template = PushTemplate(definition.name, options, dialect)
        self.render = self.template.render
        self.millisecond_times = dialect.millisecond_times


class JobDefinition:
    """
    What is known of one job.

    Args:
        name: The wire's `class`.
        options: Sidekiq's options beyond or instead of `retry` and `queue`'s defaults, in the order of declaration.
        job: What middleware is shown: the function's handle, the job class.
        origin: Module and qualified name, to tell a second declaration from a reload of the first.
        pool: The shard that the job is pushed to, or None for the program's own Redis.

    Attributes:
        is_async: `bind` gives a coroutine function.
        is_iterable: It may raise `Interrupted`, and goes on later.
        timeout_seconds: The soft limit, raised inside the job.
        hard_timeout_seconds: The limit at which the child that runs it is killed.
        retry_in_block: `(count, exception, payload) -> seconds | "kill" | "discard" | None`.
        exhausted_block: `(payload, exception)`, called when no retry is left.
        push_template: What its pushes share, made for the dialect of the last one; None before the first.
        decide_outcome: Decides how an attempt ends, in place of Sidekiq's rules; None for those.
        is_acknowledged_early: It runs at most once: it leaves Redis before it starts.
        timeout_error: What the soft limit raises.
        admit: Asked whether a job may start now; None where it always may.
        resolve: Of a class that stands for many jobs, as Active Job's wrapper does: the definition that a payload
            wants, or None; None for all others.
    """

    __slots__ = (
        "admit",
        "decide_outcome",
        "exhausted_block",
        "hard_timeout_seconds",
        "is_acknowledged_early",
        "is_async",
        "is_iterable",
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
        self.is_iterable = False
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

    def classes(self) -> Iterable[str]:
        """The classes that it runs: its own, or those behind a wrapper."""
        return (self.name,)

    def bind(self, payload: Payload, stopping: Callable[[], bool]) -> Callable[..., Any]:
        """
        What to call with the payload's args.

        Args:
            payload: As parsed.
            stopping: True once the process is about to stop.
        """
        raise NotImplementedError(f"{self.name} runs elsewhere; it can only be enqueued here")

    def subject(self, bound: Callable[..., Any]) -> Any:
        """What server middleware is shown of a run: the declared job, or the instance that runs it, as in Ruby."""
        return self.job

    def make_push_template(self, dialect: Dialect, default_options: Mapping[str, Any]) -> DefinitionTemplate:
        """Make the bytes of a push, but for what differs from one to the next, and keep them in `push_template`."""
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


class Registry:
    """
    Class names to declared jobs.

    Attributes:
        on_notices: Of a worker whose jobs can be revoked; None where nobody listens.
        on_too_large: Asked about jobs of more bytes than `Config.max_job_bytes`.
        elsewhere: Classes that this program enqueues and does not implement: `ruby_job`.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, JobDefinition] = {}
        self.on_notices: OnNotices | None = None
        self.on_too_large: OnTooLarge | None = None
        self.elsewhere: set[str] = set()
        # The dict's own method: every job that runs is looked up once.
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
        """What runs this job: the definition of its class, or of those behind a wrapper the one that it wants."""
        definition = self.find(payload["class"])
        return definition.resolve(payload) if definition is not None and definition.resolve is not None else definition

    def classes(self) -> list[str]:
        """Every class that can be run, Active Jobs by their own names and not by their wrapper's; sorted."""
        return sorted({name for definition in self for name in definition.classes()})

    def add(self, definition: JobDefinition) -> None:
        """
        Enter a job; a reloaded module's takes the place of its former self.

        Raises:
            JobDeclarationError: Another job bears the name.
        """
        present = self._by_name.get(definition.name)
        if present is not None and present.origin != definition.origin:
            raise JobDeclarationError(
                f"the job name {definition.name!r} is declared by {present.origin} and again by {definition.origin}; "
                "give one of them another name="
            )
        self._by_name[definition.name] = definition

    def fall_back(self, find: Callable[[str], JobDefinition | None]) -> None:
        """Ask *find* for classes that nobody declares, behind those that were asked before."""
        known = self.find
        self.find = lambda class_name: known(class_name) or find(class_name)

    def remove(self, class_name: str) -> None:
        """Forget a job; nothing happens if there is none."""
        self._by_name.pop(class_name, None)

    def clear(self) -> None:
        """Forget all jobs."""
        self._by_name.clear()


registry = Registry()
"""The jobs of this program."""
