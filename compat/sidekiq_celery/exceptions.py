"""
Celery's errors.

    CeleryError
    ├── ImproperlyConfigured                a setting is unusable
    ├── SecurityError
    ├── TaskPredicate                       raised in a task to say how it ends
    │   ├── Retry, Ignore, Reject
    └── TaskError
        ├── QueueNotFound (KeyError)        a route names a queue that task_queues lacks
        ├── NotRegistered (KeyError)        no task of that name here
        ├── TimeoutError                    a result did not come in time
        ├── MaxRetriesExceededError, TaskRevokedError, InvalidTaskError, ChordError
        └── IncompleteStream, AlreadyRegistered
    BackendError
    ├── BackendGetMetaError, BackendStoreError
    SoftTimeLimitExceeded, TimeLimitExceeded, WorkerLostError, Terminated     roots of their own
    kombu.exceptions.OperationalError       the broker cannot be reached; kombu's own class
    CeleryWarning (UserWarning)
    WorkerShutdown, WorkerTerminate (SystemExit)

`OperationalError` and `CeleryCommandException` are found when they are asked for, as they import kombu and click.
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
    """The root of the warnings."""


class AlwaysEagerIgnored(CeleryWarning):
    """`send_task` sends, whatever `task_always_eager` says."""


class DuplicateNodenameWarning(CeleryWarning):
    """Two workers bear one name."""


class DuplicateTaskNameWarning(CeleryWarning):
    """Two functions are registered under one name."""


class FixupWarning(CeleryWarning):
    """A fix-up cannot do its work."""


class NotConfigured(CeleryWarning):
    """There is no module of settings."""


class SecurityWarning(CeleryWarning):
    """Something may be unsafe."""


class CDeprecationWarning(DeprecationWarning):
    """Something goes in a coming release of Celery."""


class CPendingDeprecationWarning(PendingDeprecationWarning):
    """Something is to be deprecated."""


class CeleryError(Exception):
    """The root of the tree drawn above."""


class ImproperlyConfigured(CeleryError):
    """A setting is unusable; the message says what would be."""


class SecurityError(CeleryError):
    """Something is not allowed."""


class TaskPredicate(CeleryError):
    """Raised in a task to say how it ends."""


class Retry(TaskPredicate):
    """
    The task is to run again.

    Args:
        message: Why, for people.
        exc: What went wrong, or its text.
        when: Seconds from now, or a datetime.
        is_eager: The task runs in the caller's process.
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
        """When, for people."""
        return f"in {self.when}s" if isinstance(self.when, numbers.Number) else f"at {self.when}"

    def __str__(self) -> str:
        if self.message:
            return self.message
        return f"Retry {self.humanize()}: {self.excs}" if self.excs else f"Retry {self.humanize()}"

    def __reduce__(self) -> Any:
        return type(self), (self.message, self.exc, self.when)


RetryTaskError = Retry


class Ignore(TaskPredicate):
    """The task ends and its state stays as it is."""


class Reject(TaskPredicate):
    """
    The job is not wanted.

    Args:
        reason: Why, for people.
        requeue: Back into its queue, instead of away.
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
    """A task is routed to a queue that `task_queues` lacks."""


class IncompleteStream(TaskError):
    """A stream of data ended too soon."""


class NotRegistered(KeyError, TaskError):
    """There is no task of that name in this process."""

    def __repr__(self) -> str:
        return f"Task of kind {self} never registered, please make sure it's imported."


class AlreadyRegistered(TaskError):
    """There is a task of that name already."""


class TimeoutError(TaskError):
    """It took too long."""


class MaxRetriesExceededError(TaskError):
    """
    There is no try left.

    Args:
        task_args, task_kwargs: What the task was called with.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.task_args = kwargs.pop("task_args", [])
        self.task_kwargs = kwargs.pop("task_kwargs", {})
        super().__init__(*args, **kwargs)


class TaskRevokedError(TaskError):
    """The task was revoked, so there is no result."""


class InvalidTaskError(TaskError):
    """The task, or a message for one, is not well made."""


class ChordError(TaskError):
    """A task of a chord's header failed."""


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


class WorkerTerminate(SystemExit):
    """The worker is to stop at once."""


SystemTerminate = WorkerTerminate


class WorkerShutdown(SystemExit):
    """The worker is to stop when its tasks have ended."""


class BackendError(Exception):
    """Results cannot be written or read."""


class BackendGetMetaError(BackendError):
    """
    A result cannot be read.

    Args:
        task_id: Whose.
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
        state, task_id: What, and whose.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args)
        self.state = kwargs.get("state", "")
        self.task_id = kwargs.get("task_id", "")

    def __repr__(self) -> str:
        return f"{super().__repr__()} state:{self.state} task_id:{self.task_id}"
