"""Jobs as `inspect` shows them: running, about to run, and scheduled for later."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any

from sidekiq_celery._pidbox.plain_values import plain
from sidekiq_celery._send.clients import client_of
from sidekiq_celery._wire.payload import arguments_of, task_headers_of
from sidekiq_celery._wire.priorities import base_queue, steps
from sidekiq_celery.contract import App
from sidekiq_py.api import JobSet, RetrySet, ScheduledSet
from sidekiq_py.errors import PayloadError
from sidekiq_py.payloads import parse_job
from sidekiq_py.redaction import current

_MOST_READ = 1000
_MOST_SHOWN = 200
# The value that Celery shows. It is the order of timers and has nothing to do with a task's priority.
_TIMER_PRIORITY = 6


def job_info(
    app: App,
    raw: bytes,
    hostname: str,
    *,
    queue: str | None = None,
    started_at: float | None = None,
    pid: int | None = None,
    is_acknowledged: bool = False,
) -> dict[str, Any]:
    """
    Describe a job in the format of Celery's `inspect`, in types that JSON has, and with redacted arguments.

    Args:
        raw: The payload.
        queue: The queue that the job came from; by default the one that the payload names.
        started_at: Seconds since the epoch; None if the job has not started.
        pid: The process that runs it.
        is_acknowledged: True if the job has been removed from Redis.
    """
    payload = parse_job(raw)
    task_headers: Any = payload.get("celery")
    task_headers = task_headers if isinstance(task_headers, dict) else {}
    name = str(payload.get("wrapped") or payload["class"])
    args, kwargs = (current().arguments(given, name) for given in _arguments(app, payload))
    return {
        "id": payload.get("jid"),
        "name": task_headers.get("shadow") or name,
        "args": args,
        "kwargs": kwargs,
        "type": name,
        "hostname": hostname,
        "time_start": started_at,
        "acknowledged": is_acknowledged,
        "delivery_info": {
            "exchange": "",
            "routing_key": base_queue(queue or str(payload.get("queue") or ""), steps(app)),
            "priority": task_headers.get("priority") or 0,
            "redelivered": False,
        },
        "worker_pid": pid,
    }


def _arguments(app: App, payload: dict[str, Any]) -> tuple[Any, Any]:
    """The arguments as the payload has them. The client decodes values that JSON lacks, as kombu does."""
    args: Any = payload.get("args")
    try:
        task_headers = task_headers_of(payload)
        if "body" in task_headers:
            read = arguments_of(app, args, task_headers)
            return plain(read[0]), plain(read[1])
        if task_headers.get("kw") and isinstance(args[-1], dict):
            return args[:-1], args[-1]
    except Exception as error:  # noqa: BLE001 - show the task whatever its arguments are
        return f"<cannot be read: {type(error).__name__}: {error}>", {}
    return args, {}


def waiting_jobs(app: App, hostname: str) -> list[dict[str, Any]]:
    """
    List tasks of *app* that are scheduled in Redis, by an ETA or between two tries, soonest first.

    They belong to no worker. Up to a thousand entries per set are read, and at most 200 are returned, all from queues
    that this app serves.
    """
    client = client_of(app)
    found = [
        *islice(_of_set(app, ScheduledSet(client=client), hostname), _MOST_SHOWN),
        *islice(_of_set(app, RetrySet(client=client), hostname), _MOST_SHOWN),
    ]
    return sorted(found, key=lambda entry: datetime.fromisoformat(entry["eta"]))[:_MOST_SHOWN]


def _of_set(app: App, jobs: JobSet, hostname: str) -> Iterator[dict[str, Any]]:
    served = set(app.amqp.queues.consume_from)
    for entry in islice(reversed(jobs), _MOST_READ):
        try:
            about = job_info(app, entry.value, hostname)
        except PayloadError:
            continue
        if about["type"] in app.tasks and about["delivery_info"]["routing_key"] in served:
            at = entry.at
            # Milliseconds that another program takes for seconds lie beyond the last time that Python knows.
            with suppress(OverflowError):
                at = at.astimezone(app.timezone)
            yield {"eta": at.isoformat(), "priority": _TIMER_PRIORITY, "request": about}
