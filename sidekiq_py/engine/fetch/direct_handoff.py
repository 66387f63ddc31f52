"""
Runs a job that another job's end pushes, such as the next step of a chain, without a fetch.

If the pushed job is the only one available, it need not go through its queue: the script that settles the first job
puts the second one in flight, as a fetch right after it would have done (`settle_script.Take`).
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from sidekiq_py.engine.ownership.owner import Owner, UnitOfWork
from sidekiq_py.redis_access.job_path import in_flight, settle_script
from sidekiq_py.redis_access.job_path.settle_script import CONDITIONS, Effect

_PUSHES = frozenset({"LPUSH", "RPUSH"})
_first = itemgetter(0)


class DirectHandoff(NamedTuple):
    """
    The command that settles a job, and the job that its end pushes.

    Args:
        call: The command that settles the ended job. It replies with a list if it has also put the next job in flight.
        next_job: The next job, as if it had been fetched. The caller fills in `fetched_at`.
    """

    call: tuple[Any, ...]
    next_job: UnitOfWork


def direct_handoff_of(ended: UnitOfWork, owner: Owner, batch: int, queues: Mapping[str, str]) -> DirectHandoff | None:
    """
    Build the command that settles a job and takes the one that its end pushes.

    Args:
        batch: A batch number of *owner*, for the next job alone.
        queues: The queues that are fetched from: key to name.

    Returns:
        None if the end pushes no job, several, or one to another queue.
    """
    if ended.end is None or isinstance(ended.end, settle_script.Tally):
        return None
    vital, counters = ended.end
    at = _only_push(vital)
    push: Sequence[Any] = () if at is None else vital[at]
    if at is None or len(push) != 3:
        return None
    _, key, job = push
    name = queues.get(key)
    if name is None or type(job) is not bytes:
        return None
    field = f"{batch}.0:{name}".encode()
    take = settle_script.Take(key, job, field, owner.name, tuple(queues))
    effects = [*vital[:at], take, *vital[at + 1 :]]
    call = in_flight.settle_call(owner.name, ended.field, effects, counters, ended.listed)
    return DirectHandoff(call, UnitOfWork(job, name, owner, field, False, fetched_at=0.0))


def _only_push(vital: Sequence[Effect]) -> int | None:
    # A condition begins with its key.
    names = [*map(_first, vital)]
    if names.count("LPUSH") != 1 or "RPUSH" in names:
        return None
    for effect in vital:
        if type(effect) is not tuple and not (
            isinstance(effect, CONDITIONS) and _PUSHES.isdisjoint(map(_first, effect.then))
        ):
            return None
    return names.index("LPUSH")
