"""
The job that another's end pushes, such as a chain's next step, where it is the only one to be had.

It need not go through its queue then: the script that ends the one puts the other in flight, as a fetch right behind
would (`settle_script.Take`), and the fetch is spared.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sidekiq_py.engine.ownership.owner import Owner, UnitOfWork
from sidekiq_py.redis_access.job_path import in_flight, settle_script
from sidekiq_py.redis_access.job_path.settle_script import Effect, Held, Join, Once, Unless

_CONDITIONS = (Once, Join, Unless, Held)
_PUSHES = frozenset({"LPUSH", "RPUSH"})


class DirectHandoff(NamedTuple):
    """
    Two jobs, of which the one is the other's end.

    Args:
        call: The command that ends the one. Its reply is a list if it has taken the other.
        next_job: The other, as if it had been fetched; when is to be filled in.
    """

    call: tuple[Any, ...]
    next_job: UnitOfWork


def direct_handoff_of(ended: UnitOfWork, owner: Owner, batch: int, queues: Mapping[str, str]) -> DirectHandoff | None:
    """
    How to end a job and take the one that its end pushes.

    Args:
        batch: A number of *owner*'s, for this job alone.
        queues: Those that are fetched from: from the key of each to its name.

    Returns:
        None if the end pushes none, or several, or to another queue.
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
    found = None
    for at, effect in enumerate(vital):
        if type(effect) is not tuple:
            if not isinstance(effect, _CONDITIONS) or any(command[0] in _PUSHES for command in effect.then):
                return None
        elif effect[0] in _PUSHES:
            if found is not None or effect[0] != "LPUSH":
                return None
            found = at
    return found
