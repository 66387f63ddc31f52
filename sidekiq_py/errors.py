"""
Every error of the project.

    SidekiqError
    ├── ConfigError (ValueError)            a setting, flag, YAML key or environment variable is unusable
    ├── PayloadError (ValueError)           bytes from Redis, or an item to push, are not a usable job
    │   └── JsonParseError                  the bytes are not JSON as any Ruby release reads it
    ├── ArgumentError                       an argument is not JSON; `place` says which one
    │   ├── ArgumentTypeError (TypeError)   it has a type that JSON lacks
    │   └── ArgumentValueError (ValueError) it has a value that JSON cannot carry (NaN, a lone surrogate, …)
    ├── DeadLetteredError                   an extension sent a job to the dead set without running it
    ├── DeserializationError                an Active Job argument has no Python value, or its record is not found
    ├── JobTooLargeError                    a job has more bytes than the worker accepts
    ├── JobNotFoundError (LookupError)      a payload names a class that no declared job has
    ├── ExtensionKeyError                   a job depends on Pro, Enterprise or a gem, which are not available here
    ├── ExtensionError                      an extension's hook raised; `extension` names the extension
    ├── JobDeclarationError (ValueError)    a job is declared twice, in `__main__` without a name, or with bad options
    ├── RedisError                          Redis or the connection to it failed; `redis_access` maps errors to these
    │   ├── RedisConnectionError            the connection broke before the command was sent, or could not be made
    │   ├── ReplyLostError                  the connection broke after the command was sent: it may have been executed
    │   │   └── PushOutcomeUnknownError     the same for a push: the job may have been enqueued
    │   ├── RedisReplyError                 Redis answered with an error; `code` is its first word
    │   └── UnsupportedRedisError           too old, or a Cluster
    ├── Stopped                             raised inside a job that was asked to stop
    ├── WrongModeError (RuntimeError)       a testing mode is nested, missing, or cannot run this job that way
    ├── EmptyQueueError (LookupError)       a test wants to run a job, but none is waiting
    ├── SoftTimeLimitError                  raised inside a job that ran past its `timeout`
    ├── HardTimeLimitError                  recorded for a job whose process was killed at its `hard_timeout`
    ├── TerminatedError                     recorded for a job that was terminated while it ran
    ├── PoisonPillError                     recorded for a job whose process died again and again
    ├── LateDeathError                      the failure of a job whose process died before it called death handlers
    └── JobFailed                           raised by a job whose input is bad: it goes to dead without a retry

Signals that control a run are not errors: `Shutdown`, a `BaseException`, which a job's `except Exception` does not
catch, and `Interrupted`. `UnknownOptionWarning` is a `UserWarning`.
"""

import copyreg
from typing import Any


class SidekiqError(Exception):
    """Base class of all errors in the tree above."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, an error is made again from its message alone. Most of these take something else: another process
        # that should get one as a result, as that of a `multiprocessing.Pool`, would wait for it forever.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined] # typeshed lacks it


class ConfigError(SidekiqError, ValueError):
    """A setting is unusable. The message names it and says which values are valid."""


class PayloadError(SidekiqError, ValueError):
    """An item to push, or stored text, is not a usable job."""


class JsonParseError(PayloadError):
    """The text is not JSON."""


class ArgumentError(SidekiqError):
    """
    A job cannot carry an argument.

    Args:
        message: What is wrong and what to do.
        place: The argument's location, as in ``args[0]["key"]``.
    """

    def __init__(self, message: str, place: str) -> None:
        super().__init__(message)
        self.place = place


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has a type that a job cannot carry."""


class ArgumentValueError(ArgumentError, ValueError):
    """An argument has a value that a job cannot carry."""


class DeserializationError(SidekiqError):
    """An Active Job argument cannot be converted to a Python value. Raised inside the run, so the job is retried."""


class JobTooLargeError(SidekiqError):
    """A job has more bytes than the worker accepts; it is kept unread."""


class JobNotFoundError(SidekiqError, LookupError):
    """
    No declared job has the class that a payload names.

    Args:
        is_active_job: True if Rails enqueued it as an Active Job, which `@active_job` declares.
    """

    def __init__(self, job_class: str, *, is_active_job: bool = False) -> None:
        declaration = f"declare it under @active_job({job_class!r})" if is_active_job else f"give it name={job_class!r}"
        super().__init__(
            f"no {'Active Job' if is_active_job else 'job'} is declared as {job_class!r} in this process; import the "
            f"module that declares it (-r), or {declaration}. If Ruby runs it, push it to a queue that only Ruby serves"
        )
        self.job_class = job_class


class ExtensionKeyError(SidekiqError):
    """
    A job's payload has a key of Sidekiq Pro, Enterprise, a gem, or an extension that is not loaded, so this worker
    cannot settle it correctly.

    Args:
        key: The payload's key.
        meaning: What the key means.
        job_class, jid, queue: Identify the job.
        is_rubys: True if only Ruby can honour the key, False if it belongs to an extension of sidekiq_py that is not
            loaded here.
    """

    def __init__(self, key: str, meaning: str, job_class: str, jid: str, queue: str, *, is_rubys: bool = True) -> None:
        reason = f", {meaning}, which only Ruby can honour. Let Ruby alone serve that queue"
        if not is_rubys:
            reason = f" of an extension that this worker has not loaded ({meaning}). Install or update it here"
        super().__init__(
            f"{job_class} (jid {jid}, queue {queue}) has the key {key!r}{reason}, "
            f"or decide by --extension-key {key}=run or {key}=bury"
        )
        self.key = key
        self.job_class = job_class
        self.jid = jid
        self.queue = queue


class ExtensionError(SidekiqError):
    """
    An extension's hook raised. Its exception is the `__cause__` of this one.

    Args:
        extension: The extension's name.
        hook: The hook's name.
    """

    def __init__(self, extension: str, hook: str, error: BaseException) -> None:
        super().__init__(f"the extension {extension!r} failed in {hook}: {type(error).__name__}: {error}")
        self.extension = extension
        self.hook = hook


class DeadLetteredError(SidekiqError):
    """An extension sent a job to the dead set without running it; the message is the reason."""


class JobDeclarationError(SidekiqError, ValueError):
    """A job declaration is invalid."""


class UnknownOptionWarning(UserWarning):
    """A job has an option that Sidekiq does not know. It is written to the payload anyway."""


class RedisError(SidekiqError):
    """
    Redis, or the connection to it, failed.

    Args:
        message: What happened.
        is_advised: True if the message also says what to do about it.
    """

    def __init__(self, message: str = "", *, is_advised: bool = False) -> None:
        super().__init__(message)
        self.is_advised = is_advised

    @property
    def is_lasting(self) -> bool:
        """True if the error stays until someone fixes its cause. An outage, for example, passes by itself."""
        return False

    @property
    def may_pass_at_start(self) -> bool:
        """
        True if Redis may let a program that starts in later, with no change to its settings: it is starting, loading,
        or full. A password, a user or a database that is wrong stays wrong, and so does TLS on one side alone.
        """
        return not self.is_lasting

    @property
    def is_about_server(self) -> bool:
        """True if the server or the connection is in trouble, so the next command would fail too."""
        return True


class RedisConnectionError(RedisError):
    """
    There is no connection; the command was not sent.

    Args:
        message: See `RedisError`.
        is_advised: See `RedisError`.
        is_about_settings: True if a server was found, but other settings are needed to connect to it.
    """

    def __init__(self, message: str = "", *, is_advised: bool = False, is_about_settings: bool = False) -> None:
        super().__init__(message, is_advised=is_advised)
        self._is_about_settings = is_about_settings

    @property
    def may_pass_at_start(self) -> bool:
        """See `RedisError.may_pass_at_start`."""
        return not self._is_about_settings


class ReplyLostError(RedisError):
    """The command was sent but its reply was lost, so it may have been executed."""


class PushOutcomeUnknownError(ReplyLostError):
    """
    The reply to a push was lost, so the jobs may or may not be enqueued.

    Args:
        jids: The ids of the jobs in doubt. Look them up before you push again.
    """

    def __init__(self, jids: list[str], cause: BaseException) -> None:
        shown = ", ".join(jids[:3]) + (f" and {len(jids) - 3} more" if len(jids) > 3 else "")
        super().__init__(
            f"jid {shown} may have been enqueued: {str(cause).rstrip('.')}. Look up the jid, or push again only if the "
            "job may run twice"
        )
        self.jids = jids


# These pass without intervention. All other errors last until someone fixes them; that includes Lua's own errors, which
# have no code.
_PASSING_CODES = frozenset(
    {
        "BUSY",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "MISCONF",
        "NOAUTH",
        "NOREPLICAS",
        "NOSCRIPT",
        "OOM",
        "READONLY",
        "TRYAGAIN",
        "UNBLOCKED",
    }
)
# With these, any other command would fail too. All other codes concern one key, value or command.
_SERVER_CODES = _PASSING_CODES | {"DENIED", "WRONGPASS"}


class RedisReplyError(RedisError):
    """
    Redis answered with an error.

    Args:
        message: The error text from Redis, and perhaps what to do about it.
        is_advised: See `RedisError`.
    """

    def __init__(self, message: str, *, is_advised: bool = False) -> None:
        super().__init__(message, is_advised=is_advised)
        word = message.split(" ", 1)[0]
        # redis-py removes "ERR" from the text.
        self.code = word if word.isupper() else "ERR"

    @property
    def is_lasting(self) -> bool:
        """See `RedisError.is_lasting`. A failover, for example, passes by itself."""
        return self.code not in _PASSING_CODES

    @property
    def may_pass_at_start(self) -> bool:
        """See `RedisError.may_pass_at_start`. A password that is changed passes for a program that runs, not here."""
        return not self.is_lasting and self.code != "NOAUTH"

    @property
    def is_about_server(self) -> bool:
        """See `RedisError.is_about_server`. False if one key, value or command was refused; others still work."""
        return self.code in _SERVER_CODES


def rights_hint(error: BaseException) -> str:
    """What to append to the message of *error* if Redis refused a command for lack of a right; otherwise empty."""
    lacks_right = isinstance(error, RedisReplyError) and error.code == "NOPERM" and not error.is_advised
    return ". docs/redis.md lists the rights that each program needs" if lacks_right else ""


class UnsupportedRedisError(RedisError):
    """The server is too old, a Redis Cluster or a Sentinel, or it runs no scripts."""

    @property
    def may_pass_at_start(self) -> bool:
        """See `RedisError.may_pass_at_start`."""
        return False


class SoftTimeLimitError(SidekiqError):
    """The job ran longer than its `timeout`."""

    # An exception can only be raised in another thread by its class, so the message needs a default.
    def __init__(self, message: str = "the job ran longer than its timeout") -> None:
        super().__init__(message)


class HardTimeLimitError(SidekiqError):
    """The job ran longer than its `hard_timeout`, and its process was killed."""


class TerminatedError(SidekiqError):
    """
    The job was terminated while it ran: its coroutine was cancelled or its process was killed.

    Args:
        signal_number: The number of the requested signal.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"the job was terminated while it ran (signal {signal_number})")
        self.signal_number = signal_number


class PoisonPillError(SidekiqError):
    """A job's process died once while the job was in flight, and three more times while the job ran by itself."""

    def __init__(
        self,
        message: str = "the process died 3 times while this job ran by itself, and once before with this job in "
        "flight; it was moved to the dead set. Check memory, native libraries and time limits before you retry it",
    ) -> None:
        super().__init__(message)


class LateDeathError(SidekiqError):
    """
    A job failed for good in a process that was killed before it called the death handlers.

    Args:
        message: The message of the original error.
        error_class: The name of the original error's class.
    """

    def __init__(self, message: str, error_class: str) -> None:
        super().__init__(message)
        self.error_class = error_class


class WrongModeError(SidekiqError, RuntimeError):
    """A testing mode is nested in another, is missing, or cannot run a job in the requested way."""


class EmptyQueueError(SidekiqError, LookupError):
    """A test wants to run a job, but none is waiting."""


class Shutdown(BaseException):
    """Raised in a busy job when the shutdown deadline has passed; the job goes back to its queue."""


class Interrupted(Exception):
    """Raised by an iterable job that has saved its position and has to be pushed again."""


class JobFailed(SidekiqError):
    """
    Raise this in a job whose input is bad, so that a retry would not help. The job goes straight to the dead set.

        raise sidekiq.JobFailed("row 3 has no e-mail")
    """


class Stopped(SidekiqError):
    """
    Raised by a job's next `progress()` call after the job was asked to stop. Clean up and let it propagate: the job
    ends without a retry and does not count as failed.
    """
