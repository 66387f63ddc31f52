"""
Every error of the project.

    SidekiqError
    ├── ConfigError (ValueError)            a setting, flag, YAML key or environment variable is unusable
    ├── PayloadError (ValueError)           bytes from Redis, or an item to push, are not a usable job
    │   └── JsonParseError                  the bytes are not JSON as any Ruby release reads it
    ├── ArgumentTypeError (TypeError)       an argument has a type that JSON lacks; `place` says which one
    ├── ArgumentValueError (ValueError)     an argument has a value that JSON cannot carry (NaN, a lone surrogate, …)
    ├── DeadLetteredError                   an extension has sent a job to the dead set without a run
    ├── DeserializationError                an Active Job argument has no Python value, or its record is not found
    ├── JobTooLargeError                    a job has more bytes than the worker takes
    ├── JobNotFoundError (LookupError)      a payload names a class that no declared job bears
    ├── ExtensionKeyError                   a job is minded by Pro, Enterprise or a gem, which do not exist here
    ├── ExtensionError                      a hook of an extension has raised; `extension` names it
    ├── JobDeclarationError (ValueError)    a job is declared twice, in `__main__` without a name, or with bad options
    ├── RedisError                          anything that Redis or the way to it refused; `redis_access` maps to these
    │   ├── RedisConnectionError            the connection broke before the command was sent, or could not be made
    │   ├── ReplyLostError                  the connection broke after the command was sent: it may have been executed
    │   │   └── PushOutcomeUnknownError     the same for a push: the job may have been enqueued
    │   ├── RedisReplyError                 Redis answered with an error; `code` is its first word
    │   └── UnsupportedRedisError           too old, or a Cluster
    ├── Stopped                             raised inside a job that somebody has asked to stop
    ├── WrongModeError (RuntimeError)       a testing mode is nested, missing, or cannot run this job like that
    ├── EmptyQueueError (LookupError)       a test wants to run a job and none waits
    ├── SoftTimeLimitError                  raised inside a job that ran past its `timeout`
    ├── HardTimeLimitError                  what became of a job whose process was killed at its `hard_timeout`
    ├── TerminatedError                     what became of a job that somebody has ended while it ran
    ├── PoisonPillError                     what became of a job whose process died again and again
    ├── LateDeathError                      what a job has failed by in a process that died before it could say so
    └── JobFailed                           raised by a job whose input is bad: it dies at once, with no retry

Signals that steer a run are not errors: `Shutdown` is a `BaseException`, so that a job's `except Exception` lets it
pass. `UnknownOptionWarning` is a `UserWarning`.
"""


class SidekiqError(Exception):
    """The root of the tree drawn above."""


class ConfigError(SidekiqError, ValueError):
    """A setting is unusable; the message names it and says what would be."""


class PayloadError(SidekiqError, ValueError):
    """An item or a stored text is not a usable job."""


class JsonParseError(PayloadError):
    """The text is not JSON."""


class ArgumentTypeError(SidekiqError, TypeError):
    """
    An argument has a type that a job cannot carry.

    Args:
        message: What is wrong and what to do.
        place: Where, as in ``args[0]["key"]``.
    """

    def __init__(self, message: str, place: str) -> None:
        super().__init__(message)
        self.place = place


class ArgumentValueError(SidekiqError, ValueError):
    """
    An argument has a value that a job cannot carry.

    Args:
        message: What is wrong and what to do.
        place: Where, as in ``args[0]["key"]``.
    """

    def __init__(self, message: str, place: str) -> None:
        super().__init__(message)
        self.place = place


class DeserializationError(SidekiqError):
    """An argument of an Active Job cannot be turned into a Python value; raised inside the run, so the job retries."""


class JobTooLargeError(SidekiqError):
    """A job has more bytes than the worker takes; it is kept unread."""


class JobNotFoundError(SidekiqError, LookupError):
    """
    No declared job has the class that a payload names.

    Args:
        is_active_job: Rails enqueued it as an Active Job, which `@active_job` declares.
    """

    def __init__(self, job_class: str, *, is_active_job: bool = False) -> None:
        declaration = f"declare it under @active_job({job_class!r})" if is_active_job else f"give it name={job_class!r}"
        super().__init__(
            f"no {'Active Job' if is_active_job else 'job'} is declared as {job_class!r} in this process; import the "
            f"module that declares it (-r), or {declaration}"
        )
        self.job_class = job_class


class ExtensionKeyError(SidekiqError):
    """
    A job bears a key by which Sidekiq Pro, Enterprise, a gem, or an extension that is not loaded minds it: nobody here
    can end it as it should.

    Args:
        key: Of the payload.
        meaning: What it stands for.
        job_class, jid, queue: The job's.
        is_rubys: Only Ruby can honour it; else an extension of sidekiq_py, which is not loaded here.
    """

    def __init__(self, key: str, meaning: str, job_class: str, jid: str, queue: str, *, is_rubys: bool = True) -> None:
        reason = "which only Ruby can honour. Let Ruby alone serve that queue"
        if not is_rubys:
            reason = "of an extension that this worker has not loaded. Install or update it here"
        super().__init__(
            f"{job_class} (jid {jid}, queue {queue}) has the key {key!r}, {meaning}, {reason}, "
            f"or decide by --extension-key {key}=run or {key}=bury"
        )
        self.key = key
        self.job_class = job_class
        self.jid = jid
        self.queue = queue


class ExtensionError(SidekiqError):
    """
    A hook of an extension has raised; its error is the cause of this one.

    Args:
        extension: The extension's name.
        hook: Which hook.
    """

    def __init__(self, extension: str, hook: str, error: BaseException) -> None:
        super().__init__(f"the extension {extension!r} failed in {hook}: {type(error).__name__}: {error}")
        self.extension = extension
        self.hook = hook


class DeadLetteredError(SidekiqError):
    """An extension has sent a job to the dead set without a run; the message is its reason."""


class JobDeclarationError(SidekiqError, ValueError):
    """A job cannot be declared like this."""


class UnknownOptionWarning(UserWarning):
    """A job has an option that Sidekiq does not know; it is written into the payload all the same."""


class RedisError(SidekiqError):
    """Redis, or the way to it, refused."""

    @property
    def is_lasting(self) -> bool:
        """Somebody has to repair something first; an outage, for one, passes by itself."""
        return False

    @property
    def is_about_server(self) -> bool:
        """The server, or the way to it, is in trouble: whatever is asked next would fail too."""
        return True


class RedisConnectionError(RedisError):
    """No connection: the command was not sent."""


class ReplyLostError(RedisError):
    """The command was sent and its reply was lost: it may have been executed."""


class PushOutcomeUnknownError(ReplyLostError):
    """
    The reply to a push was lost: the jobs may be enqueued, or not.

    Args:
        jids: The ids of the jobs in doubt, to look them up before pushing again.
    """

    def __init__(self, jids: list[str], cause: BaseException) -> None:
        shown = ", ".join(jids[:3]) + (f" and {len(jids) - 3} more" if len(jids) > 3 else "")
        super().__init__(
            f"jid {shown} may have been enqueued: {cause}. Look the jid up, or push again only if the job may run twice"
        )
        self.jids = jids


# What goes by without anybody's help. All else, with Lua's own errors, which bear no code, stays until it is repaired.
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
# Whatever else is asked is answered alike. Any other error is about the key, the value or the command at hand.
_SERVER_CODES = _PASSING_CODES | {"DENIED", "WRONGPASS"}


class RedisReplyError(RedisError):
    """
    Redis answered with an error.

    Args:
        message: Redis's own sentence.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = message.split(" ", 1)[0]

    @property
    def is_lasting(self) -> bool:
        """As of any of them; a failover passes by itself."""
        return self.code not in _PASSING_CODES

    @property
    def is_about_server(self) -> bool:
        """As of any of them; False where one key, value or command was refused: work on the others goes on."""
        return self.code in _SERVER_CODES


class UnsupportedRedisError(RedisError):
    """This server is too old, or a Cluster."""


class SoftTimeLimitError(SidekiqError):
    """The job ran longer than its `timeout`."""

    # A thread can only be handed the class.
    def __init__(self, message: str = "the job ran longer than its timeout") -> None:
        super().__init__(message)


class HardTimeLimitError(SidekiqError):
    """The job ran longer than its `hard_timeout`, and its process was killed."""


class TerminatedError(SidekiqError):
    """
    Somebody has ended the job while it ran: its coroutine was cancelled, or its process was killed.

    Args:
        signal_number: Of the signal that was asked for.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"the job was ended from outside while it ran (signal {signal_number})")
        self.signal_number = signal_number

    def __reduce__(self) -> tuple[type["TerminatedError"], tuple[int]]:
        return type(self), (self.signal_number,)


class PoisonPillError(SidekiqError):
    """A job's process died once while it was in flight, and three times more while it ran as a suspect."""

    def __init__(
        self,
        message: str = "the process died 3 times while this job ran as a suspect, after a first death that made it "
        "one, so it started 4 times; it was put into the dead set. Look at memory, native libraries and time limits "
        "before it is retried",
    ) -> None:
        super().__init__(message)


class LateDeathError(SidekiqError):
    """
    A job has failed for good in a process that was killed before it had called the death handlers.

    Args:
        message: Of what it failed by.
        error_class: The name of that.
    """

    def __init__(self, message: str, error_class: str) -> None:
        super().__init__(message)
        self.error_class = error_class

    def __reduce__(self) -> tuple[type["LateDeathError"], tuple[str, str]]:
        return type(self), (str(self), self.error_class)


class WrongModeError(SidekiqError, RuntimeError):
    """A testing mode is nested in another, is missing, or cannot run a job as it was asked to."""


class EmptyQueueError(SidekiqError, LookupError):
    """A test wants to run a job and none waits."""


class Shutdown(BaseException):
    """Raised in a busy job when the deadline of a stop has passed; the job goes back to its queue."""


class JobFailed(SidekiqError):
    """
    Raised by a job: its input is bad, and another try would end no better. It goes to the dead set at once.

        raise sidekiq.JobFailed("row 3 has no e-mail")
    """


class Stopped(SidekiqError):
    """
    Somebody has asked this job to stop, which its next `progress()` raises. Let it pass, after cleaning up: the job
    ends without a retry, and is no failure.
    """
