"""
What becomes of a job after an attempt at it, as a value.

The engine decides by Sidekiq's rules. A declared job may decide for itself (`JobDefinition.decide_outcome`): what it
wants written rides in the script that ends the job, so that it is written once, or not at all and the job is still in
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
How a job left where it was. `success`. `retry`: it failed and waits for another try. `dead`: it is in the dead set,
also where it was too large, unreadable, buried, or its process died four times while it ran. `discarded`: by one of its
blocks or `dead: false`. `dropped`: it failed and has `retry: false`. `interrupted`: an iterable job goes on later.
`invalidated`: an extension's `Drop`. `deleted`: by the data API or the command line. `stopped`: a client middleware
stopped it when it came due.
"""


class Attempt(NamedTuple):
    """
    One run that has ended.

    Args:
        raw: The bytes as they were fetched.
        payload: As middleware and the job left it.
        queue: Where it was fetched.
        result: What the outermost middleware returned; None where it raised.
        error: What was raised, or None.
        config: The worker's.
        dialect: The release to write for.
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
    What a success asks Redis along with its end, for a job that it has pushed and that may run here next.

    Args:
        command: Reads, and writes nothing.
        tell: Called with the reply, unless that is an error; not at all where the end is handed in by itself.
    """

    command: Command
    tell: Callable[[Any], None]


class Outcome(NamedTuple):
    """
    What is to be done with a job after an attempt.

    Args:
        kind: `"done"`: it succeeded. `"retry"` and `"dead"` are written to the set of that name. `"discarded"` (by one
            of its blocks, or `dead: false`) and `"dropped"` (`retry: false`) leave nothing. `"requeue"`: it goes back
            to its queue, by the commands of *vital* if there are any, and did not fail.
        payload: As death handlers see it; empty where the bytes are no job.
        member: What is written.
        score: Under which score, epoch seconds.
        announce_death: Whether death handlers are called.
        vital: The commands without which the job must not be acknowledged.
        trims: The commands that follow and may fail.
        afterwards: Called once all this is written, if the job was still ours.
        is_logged: A log has been told of the error; error handlers still are to be.
        question: Of a `"done"`.
        end: How extensions are told that it ended, where *kind* does not say so: a `"done"` that is no success.
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
"""Decides how an attempt ends; None leaves it to Sidekiq's rules. Also asked where a hard limit has killed the run."""
