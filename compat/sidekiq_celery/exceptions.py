"""
Celery's errors.

    CeleryError
    ├── ImproperlyConfigured                a setting is unusable
    ├── SecurityError
    ├── TaskPredicate                       raised in a task to decide its outcome
    │   ├── Retry, Ignore, Reject
    └── TaskError
        ├── QueueNotFound (KeyError)        a route names a queue that is missing from task_queues
        ├── NotRegistered (KeyError)        this process has no task of that name
        ├── TimeoutError                    a result did not arrive in time
        ├── MaxRetriesExceededError, TaskRevokedError, InvalidTaskError, ChordError
        └── IncompleteStream, AlreadyRegistered
    BackendError
    ├── BackendGetMetaError, BackendStoreError
    SoftTimeLimitExceeded, TimeLimitExceeded, WorkerLostError, Terminated     outside this tree
    kombu.exceptions.OperationalError       the broker cannot be reached; kombu's own class
    CeleryWarning (UserWarning)
    WorkerShutdown, WorkerTerminate (SystemExit)

`OperationalError` and `CeleryCommandException` are imported on first access, because they need kombu and click.
"""

import numbers
from typing import TYPE_CHECKING, Any, NoReturn

from sidekiq_celery.utils.serialization import get_pickleable_exception, safe_repr
from sidekiq_py.errors import SoftTimeLimitError

if TYPE_CHECKING:
    from kombu.exceptions import OperationalError

    from sidekiq_celery._command_error import CeleryCommandException

__all__ = (
    "AlreadyRegistered",
    "AlwaysEagerIgnored",
    "BackendError",
    "BackendGetMetaError",
    "BackendStoreError",
    "CDeprecationWarning",
    "CPendingDeprecationWarning",
    "CeleryCommandException",
    "CeleryError",
    "CeleryWarning",
    "ChordError",
    "DuplicateNodenameWarning",
    "DuplicateTaskNameWarning",
    "FixupWarning",
    "Ignore",
    "ImproperlyConfigured",
    "IncompleteStream",
    "InvalidTaskError",
    "MaxRetriesExceededError",
    "NotConfigured",
    "NotRegistered",
    "OperationalError",
    "QueueNotFound",
    "Reject",
    "Retry",
    "SecurityError",
    "SecurityWarning",
    "SoftTimeLimitExceeded",
    "TaskError",
    "TaskPredicate",
    "TaskRevokedError",
    "Terminated",
    "TimeLimitExceeded",
    "TimeoutError",
    "WorkerLostError",
    "WorkerShutdown",
    "WorkerTerminate",
    "reraise",
)


def __getattr__(name: str) -> Any:
    if name == "OperationalError":
        from kombu.exceptions import OperationalError

        return OperationalError
    if name == "CeleryCommandException":
        from sidekiq_celery._command_error import CeleryCommandException

        return CeleryCommandException
    raise AttributeError(f"module 'sidekiq_celery.exceptions' has no attribute {name!r}")


def reraise(tp: Any, value: BaseException, tb: Any = None) -> NoReturn:
    """Raise *value* with the traceback *tb*."""
    raise value.with_traceback(tb) if value.__traceback__ is not tb else value


class CeleryWarning(UserWarning):
    """The base class of Celery's warnings."""


class AlwaysEagerIgnored(CeleryWarning):
    """`send_task` sends the task even if `task_always_eager` is set."""


class DuplicateNodenameWarning(CeleryWarning):
    """Two workers have the same name."""


class DuplicateTaskNameWarning(CeleryWarning):
    """Two functions are registered under the same name."""


class FixupWarning(CeleryWarning):
    """A fix-up cannot be applied."""


class NotConfigured(CeleryWarning):
    """There is no settings module."""


class SecurityWarning(CeleryWarning):
    """Something may be unsafe."""


class CDeprecationWarning(DeprecationWarning):
    """A feature will be removed in a coming release of Celery."""


class CPendingDeprecationWarning(PendingDeprecationWarning):
    """A feature will be deprecated."""


class CeleryError(Exception):
    """The base class of the tree shown in the module's docstring."""


class ImproperlyConfigured(CeleryError):
    """A setting cannot be used; the message says what can be used instead."""


class SecurityError(CeleryError):
    """Something is not allowed."""


class TaskPredicate(CeleryError):
    """Raised in a task to decide its outcome."""


class Retry(TaskPredicate):
    """
    Run the task again.

    Args:
        message: The reason, in readable form.
        exc: The exception that caused the retry, or its text.
        when: Seconds from now, or a datetime.
        is_eager: True if the task runs in the caller's process.
        sig: The signature that will run.
    """

    message: str | None = None
    exc: Any = None
    when: Any = None

    def __init__(
        self,
        message: str | None = None,
        exc: Any = None,
        when: Any = None,
        is_eager: bool = False,
        sig: Any = None,
        **kwargs: Any,
    ) -> None:
        self.message = message
        self.excs: str | None
        if isinstance(exc, str):
            self.exc, self.excs = None, exc
        else:
            self.exc, self.excs = get_pickleable_exception(exc), safe_repr(exc) if exc else None
        self.when = when
        self.is_eager = is_eager
        self.sig = sig
        super().__init__(self, exc, when, **kwargs)

    def humanize(self) -> str:
        """When the task runs again, in readable form."""
        return f"in {self.when}s" if isinstance(self.when, numbers.Number) else f"at {self.when}"

    def __str__(self) -> str:
        if self.message:
            return self.message
        return f"Retry {self.humanize()}: {self.excs}" if self.excs else f"Retry {self.humanize()}"

    def __reduce__(self) -> Any:
        return type(self), (self.message, self.exc, self.when)


RetryTaskError = Retry


class Ignore(TaskPredicate):
    """End the task and leave its state unchanged."""


class Reject(TaskPredicate):
    """
    Reject the job.

    Args:
        reason: The reason, in readable form.
        requeue: True to put the job back into its queue instead of discarding it.
    """

    def __init__(self, reason: Any = None, requeue: bool = False) -> None:
        self.reason = reason
        self.requeue = requeue
        super().__init__(reason, requeue)

    def __repr__(self) -> str:
        return f"reject requeue={self.requeue}: {self.reason}"


class TaskError(CeleryError):
    """Something is wrong with a task."""


class QueueNotFound(KeyError, TaskError):
    """A task is routed to a queue that is missing from `task_queues`."""


class IncompleteStream(TaskError):
    """A stream of data ended too soon."""


class NotRegistered(KeyError, TaskError):
    """There is no task of that name in this process."""

    def __repr__(self) -> str:
        return f"Task of kind {self} never registered, please make sure it's imported."


class AlreadyRegistered(TaskError):
    """A task of that name already exists."""


class TimeoutError(TaskError):
    """The operation took too long."""


class MaxRetriesExceededError(TaskError):
    """
    The task has no retries left.

    Args:
        task_args, task_kwargs: The arguments that the task was called with.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.task_args = kwargs.pop("task_args", [])
        self.task_kwargs = kwargs.pop("task_kwargs", {})
        super().__init__(*args, **kwargs)


class TaskRevokedError(TaskError):
    """The task was revoked, so there is no result."""


class InvalidTaskError(TaskError):
    """The task, or a message for one, is invalid."""


class ChordError(TaskError):
    """A task in a chord's header failed."""


class SoftTimeLimitExceeded(SoftTimeLimitError):
    """The task ran past its soft time limit; raised inside it."""

    def __init__(self, *args: Any) -> None:
        Exception.__init__(self, *args)

    def __str__(self) -> str:
        return f"SoftTimeLimitExceeded{self.args}"


class TimeLimitExceeded(Exception):
    """The task ran past its time limit, and its process was killed."""

    def __str__(self) -> str:
        return f"TimeLimitExceeded{self.args}"


class WorkerLostError(Exception):
    """The process that ran the task died."""


class Terminated(Exception):
    """The task was revoked with `terminate` while it ran."""


# Those that Celery takes from billiard.
_FROM_BILLIARD = {
    kind.__name__: kind for kind in (SoftTimeLimitExceeded, TimeLimitExceeded, WorkerLostError, Terminated)
}


class WorkerTerminate(SystemExit):
    """Stop the worker immediately."""


SystemTerminate = WorkerTerminate


class WorkerShutdown(SystemExit):
    """Stop the worker once its tasks have finished."""


class BackendError(Exception):
    """Results cannot be written or read."""


class BackendGetMetaError(BackendError):
    """
    A result cannot be read.

    Args:
        task_id: The id of the task whose result it is.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args)
        self.task_id = kwargs.get("task_id", "")

    def __repr__(self) -> str:
        return f"{super().__repr__()} task_id:{self.task_id}"


class BackendStoreError(BackendError):
    """
    A result cannot be written.

    Args:
        state, task_id: The state that was to be stored, and the id of its task.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args)
        self.state = kwargs.get("state", "")
        self.task_id = kwargs.get("task_id", "")

    def __repr__(self) -> str:
        return f"{super().__repr__()} state:{self.state} task_id:{self.task_id}"
