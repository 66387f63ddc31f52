"""The tasks that a worker is running, and those it is about to run."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sidekiq_celery._send.clients import client_of
from sidekiq_celery.worker.control_channel import Recipient, on_message
from sidekiq_celery.worker.stats import facts_of_parent
from sidekiq_celery.worker.task_info import job_info
from sidekiq_py.errors import PayloadError
from sidekiq_py.worker import jobs_in_flight

if TYPE_CHECKING:
    from sidekiq_celery.worker.remote_control import RemoteControl


def tasks_of(remote_control: "RemoteControl") -> dict[str, list[dict[str, Any]]]:
    """
    `active` and `reserved` tasks of all processes, in the format of `inspect`.

    The processes are asked. A process cannot answer while its task blocks Python in C code, or while it is frozen; then
    its tasks are read from Redis and have no start time.
    """
    owners: dict[str, str] = facts_of_parent(remote_control).get("owners", {})
    answers = remote_control.ask_children("tasks")
    active = [about for answer in answers for about in (answer.value or {}).get("active", ())]
    reserved = [about for answer in answers for about in (answer.value or {}).get("reserved", ())]
    for pid in owners.keys() - {str(answer.pid) for answer in answers}:
        active += _in_flight(remote_control, owners[pid], int(pid))
    return {"active": active, "reserved": reserved}


def _in_flight(remote_control: "RemoteControl", owner: str, pid: int) -> list[dict[str, Any]]:
    pool = client_of(remote_control.app).pool
    jobs = [(raw, {"queue": queue, "pid": pid}) for queue, raw in jobs_in_flight(pool, owner)]
    return _shown(remote_control.app, remote_control.hostname, jobs)


def _shown(app: Any, hostname: str, jobs: Iterable[tuple[bytes, dict[str, Any]]]) -> list[dict[str, Any]]:
    found = []
    for raw, about in jobs:
        try:
            found.append(job_info(app, raw, hostname, **about))
        except PayloadError:
            # No task can be read from the payload, and none will run.
            continue
    return found


@on_message("tasks")
def tasks(recipient: Recipient) -> dict[str, list[dict[str, Any]]]:
    """The tasks of this process."""
    launcher, app, hostname = recipient.launcher, recipient.worker.app, recipient.worker.hostname
    if launcher is None:
        return {}
    running = (
        (
            job.unit.raw,
            {
                "queue": job.unit.queue,
                "started_at": job.started_at,
                "pid": os.getpid(),
                "is_acknowledged": job.unit.is_acknowledged_early,
            },
        )
        for job in launcher.state.snapshot()
    )
    waiting = ((unit.raw, {"queue": unit.queue}) for unit in launcher.reserved)
    return {"active": _shown(app, hostname, running), "reserved": _shown(app, hostname, waiting)}
