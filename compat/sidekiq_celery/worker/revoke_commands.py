"""Remote control of revokes: `revoke`, `terminate`, `revoke_by_stamped_headers`, and `revoked`, which lists them."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from signal import SIGUSR1, valid_signals
from typing import TYPE_CHECKING, Any

from sidekiq_celery._admission import revokes
from sidekiq_celery._wire.payload import KEY
from sidekiq_celery.exceptions import SoftTimeLimitExceeded
from sidekiq_celery.platforms import signals as _signals
from sidekiq_celery.utils.functional import maybe_list
from sidekiq_celery.worker.commands import control_command, inspect_command, nok, ok
from sidekiq_celery.worker.control_channel import Recipient, on_message
from sidekiq_py.errors import PayloadError
from sidekiq_py.payloads import escaped, parse_job
from sidekiq_py.worker import UnitOfWork

if TYPE_CHECKING:
    from sidekiq_py.worker import Launcher

logger = logging.getLogger("celery.worker.control")

_TERM = "SIGTERM"
_SOFT = int(SIGUSR1)
_MOST_NAMED = 100
Reply = dict[str, Any]


@control_command(variadic="task_id", signature="[id1 [id2 [... [idN]]]]")
def revoke(state: Any, task_id: Any, terminate: bool = False, signal: Any = None, **kwargs: Any) -> Reply:
    """Revoke task by task id (or list of ids)."""
    task_ids = [str(one) for one in maybe_list(task_id) or ()]
    try:
        number = _number_of(signal)
        # Our own clients have written the revoke to Redis already.
        revokes.revoke(state.app, revokes.not_revoked(state.app, task_ids), waits=False)
    except KeyError as error:
        return nok(f"there is no signal {error}")
    except ValueError as error:
        return nok(str(error))
    if not terminate:
        logger.info("Tasks flagged as revoked: %s", _named(task_ids))
        return ok(f"tasks {{{_named([repr(one) for one in task_ids])}}} flagged as revoked")
    return _terminate(state, number, "terminate: tasks unknown", task_ids=task_ids)


@control_command(args=[("signal", str)], variadic="task_id", signature="<signal> [id1 [id2 [... [idN]]]]")
def terminate(state: Any, signal: Any, task_id: Any, **kwargs: Any) -> Reply:
    """Terminate task by task id (or list of ids)."""
    reply: Reply = revoke(state, task_id, terminate=True, signal=signal)
    return reply


@control_command(variadic="headers", signature="[key1=value1 [key2=value2 [... [keyN=valueN]]]]")
def revoke_by_stamped_headers(
    state: Any, headers: Any, terminate: bool = False, signal: Any = None, **kwargs: Any
) -> Reply:
    """Revoke task by header (or list of headers)."""
    stamps: Mapping[str, Any] = headers if isinstance(headers, Mapping) else dict(one.split("=", 1) for one in headers)
    try:
        number = _number_of(signal)
    except KeyError as error:
        return nok(f"there is no signal {error}")
    revokes.revoke_stamped(state.app, stamps, waits=False)
    if not terminate:
        return ok(f"headers {dict(stamps)} flagged as revoked, but not terminated")
    kept = [revokes.stamp_of(name, value) for name, values in stamps.items() for value in maybe_list(values) or ()]
    return _terminate(state, number, f"headers {dict(stamps)} were not terminated", stamps=kept)


@inspect_command(alias="dump_revoked")
def revoked(state: Any, **kwargs: Any) -> list[str]:
    """List of revoked task-ids."""
    return revokes.revoked_ids(state.app)


def _number_of(wanted: Any) -> int:
    number = _signals.signum(wanted or _TERM)
    if number not in valid_signals():
        raise KeyError(number)
    return number


def _named(task_ids: Sequence[str]) -> str:
    more = len(task_ids) - _MOST_NAMED
    return ", ".join(task_ids[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _terminate(state: Any, number: int, none_runs: str, **which: Any) -> Reply:
    # Ask first and terminate afterwards: a process that is killed for its task can no longer answer.
    replies = state.remote_control.ask_children("find_tasks", signal_number=number, **which)
    answers = [reply.value for reply in replies if reply.value]
    found = [task_id for answer in answers for task_id in answer["found"]]
    refused = [task_id for answer in answers for task_id in answer["refused"]]
    if found:
        state.remote_control.tell_children("end_tasks", signal_number=number, task_ids=found)
    if refused:
        return nok(
            f"terminate: {', '.join(refused)} cannot be ended and will not run again: only -P prefork can kill a task, "
            "and only coroutines can be cancelled; start the worker with -P prefork, or write the task as async def"
        )
    return ok(f"terminate: {', '.join(found)}" if found else none_runs)


@on_message("find_tasks")
def find_tasks(
    recipient: Recipient, signal_number: int, task_ids: Sequence[str] = (), stamps: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Find those of these tasks that run here, and sort them by whether they can be ended."""
    answer: dict[str, list[str]] = {"found": [], "refused": []}
    for task_id, unit in _running(recipient, task_ids, stamps):
        can_be_ended = recipient.launcher is not None and recipient.launcher.termination.can_terminate(unit)
        answer["found" if can_be_ended or signal_number == _SOFT else "refused"].append(task_id)
    return answer


@on_message("end_tasks")
def end_tasks(recipient: Recipient, signal_number: int, task_ids: Sequence[str]) -> None:
    """End the given tasks that run here."""
    for task_id, unit in _running(recipient, task_ids, ()):
        if recipient.launcher is not None and _end(recipient.launcher, unit, signal_number):
            logger.info("Terminating %s (%s)", escaped(task_id), signal_number)


def _end(launcher: "Launcher", unit: UnitOfWork, signal_number: int) -> bool:
    # Celery's processes take this signal the same way: the task can clean up. Here that works in a thread, too.
    if signal_number == _SOFT and launcher.termination.interrupt(unit, SoftTimeLimitExceeded):
        return True
    return launcher.termination.terminate(unit, signal_number)


def _running(recipient: Recipient, task_ids: Sequence[str], stamps: Sequence[str]) -> Iterator[tuple[str, UnitOfWork]]:
    for job in recipient.launcher.state.snapshot() if recipient.launcher is not None else ():
        task_id = _wanted_id(job.unit.raw, task_ids, stamps)
        if task_id is not None:
            yield task_id, job.unit


def _wanted_id(raw: bytes, task_ids: Sequence[str], stamps: Sequence[str]) -> str | None:
    """Return the job's id if it is one of those asked for, else None."""
    try:
        payload = parse_job(raw)
    except PayloadError:
        return None
    task_id = str(payload.get("jid"))
    task_headers = payload.get(KEY)
    own = task_headers.get("stamps") if isinstance(task_headers, dict) else None
    is_stamped = (
        bool(stamps)
        and isinstance(own, dict)
        and revokes.revoked_stamp(own, dict.fromkeys(stamps, 1.0), 0.0) is not None
    )
    return task_id if task_id in task_ids or is_stamped else None
