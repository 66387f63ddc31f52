"""
The outcome of an attempt at a job, as a value.

The engine decides by Sidekiq's rules. A declared job may decide for itself (`JobDefinition.decide_outcome`). Its
commands run in the script that settles the job: they are written exactly once, or not at all and the job stays in
flight.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.redis_access.job_path.settle_script import Effect
from sidekiq_py.wire.dialect import Dialect

if TYPE_CHECKING:
    from sidekiq_py.config import Config  # a worker's settings, which a program that only enqueues does not load

Kind = Literal["done", "retry", "dead", "discarded", "dropped", "requeue"]
Payload = dict[str, Any]

EndKind = Literal[
    "success",
    "retry",
    "dead",
    "discarded",
    "dropped",
    "interrupted",
    "invalidated",
    "deleted",
    "stopped",
]
"""
How a job ended:

- `success`
- `retry`: it failed and will be retried.
- `dead`: it is in the dead set. That includes jobs that were too large, unreadable or buried, and jobs whose process
  died four times while they ran.
- `discarded`: one of its blocks or `dead: false` discarded it.
- `dropped`: it failed and has `retry: false`.
- `interrupted`: an iterable job that will continue later.
- `invalidated`: an extension returned `Drop`.
- `deleted`: the data API or the command line deleted it.
- `stopped`: a client middleware stopped it when it came due.
"""


class Attempt(NamedTuple):
    """
    A finished run.

    Args:
        raw: The bytes as they were fetched.
        payload: The payload as middleware and the job left it.
        queue: The queue the job was fetched from.
        result: The return value of the outermost middleware; None if it raised.
        error: The exception that was raised, or None.
        config: The worker's settings.
        dialect: The Sidekiq release to write for.
        now: Seconds since the epoch.
    """

    raw: bytes
    payload: Payload
    queue: str
    result: Any
    error: BaseException | None
    config: "Config"
    dialect: Dialect
    now: float


class Question(NamedTuple):
    """
    A read that a success sends to Redis together with its end, for a job that it pushed and that may run here next.

    Args:
        command: A command that only reads.
        tell: Called with the reply unless that is an error; not called at all if the end is sent by itself.
    """

    command: Command
    tell: Callable[[Any], None]


class Outcome(NamedTuple):
    """
    What to do with a job after an attempt.

    Args:
        kind: `"done"`: it succeeded. `"retry"` and `"dead"`: it is written to the set of that name. `"discarded"` (by
            one of its blocks or `dead: false`) and `"dropped"` (`retry: false`): nothing is kept. `"requeue"`: it did
            not fail and goes back to its queue, by the commands in *vital* if there are any.
        payload: The payload for death handlers; empty if the bytes are not a job.
        member: The entry to write to the set.
        score: The score of *member*, in seconds since the epoch.
        announce_death: True to call the death handlers.
        vital: Commands without which the job must not be acknowledged.
        trims: Commands that follow and may fail.
        afterwards: Called after all this is written, if the job was still ours.
        is_logged: True if the error is already logged; error handlers are still called.
        question: A read to send along with a `"done"`.
        end: The end that extensions see, if *kind* does not say it: for a `"done"` that is not a success.
    """

    kind: Kind
    payload: Payload
    member: bytes | None = None
    score: float | None = None
    announce_death: bool = False
    vital: tuple[Effect, ...] = ()
    trims: tuple[Effect, ...] = ()
    afterwards: Callable[[], None] | None = None
    is_logged: bool = False
    question: Question | None = None
    end: EndKind | None = None


DecideOutcome = Callable[[Attempt], Outcome | None]
"""Decides how an attempt ends; None applies Sidekiq's rules. Also called after a hard limit has killed the run."""
