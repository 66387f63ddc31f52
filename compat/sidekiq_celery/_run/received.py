"""
Celery's request and message objects for a job, as `task_received`, `task_unknown` and `task_rejected` pass them.

Both are made from the task's own request, and only if a receiver is connected.
"""

import json
from datetime import datetime
from typing import Any

from sidekiq_celery._send.running_task import RunDetails
from sidekiq_celery._wire.context import Context
from sidekiq_celery._wire.message import aware
from sidekiq_celery._wire.payload import EMBEDDED
from sidekiq_celery.exceptions import InvalidTaskError

# Fields of a run that are not message headers.
_OF_THE_RUN = frozenset(
    {"args", "called_directly", "chain", "correlation_id", "delivery_info", "headers", "hostname", "kwargs"}
)
_NOT_HERE = (
    "the engine fetches and acknowledges jobs here; use the task's own `request`, its hooks, such as on_failure, or "
    "signals, such as task_revoked"
)


class Message:
    """
    A job as a Celery message.

    Attributes:
        headers, properties, delivery_info: As in Celery.
        payload: Positional arguments, keyword arguments, and the tasks that follow the call.
    """

    content_type = "application/json"
    content_encoding = "utf-8"

    def __init__(self, request: Context) -> None:
        fields = vars(request)
        self.headers: dict[str, Any] = {
            "lang": "py",
            "shadow": None,
            "eta": request.eta,
            "expires": request.expires,
            "group": request.group,
            "group_index": request.group_index,
            "retries": request.retries,
            "timelimit": list(request.timelimit or (None, None)),
            "parent_id": request.parent_id,
            "argsrepr": request.argsrepr,
            "kwargsrepr": request.kwargsrepr,
            "origin": request.origin,
            "ignore_result": request.ignore_result,
            "replaced_task_nesting": request.replaced_task_nesting,
            "stamped_headers": request.stamped_headers,
            **{name: value for name, value in fields.items() if name[0] != "_" and name not in _OF_THE_RUN},
        }
        self.delivery_info = request.delivery_info or {}
        self.properties: dict[str, Any] = {
            "correlation_id": request.correlation_id or request.id,
            "reply_to": request.reply_to,
            "priority": self.delivery_info.get("priority"),
        }
        self.payload = (request.args, request.kwargs, {name: fields.get(name) for name in EMBEDDED})

    @property
    def body(self) -> bytes:
        """The payload as JSON; values that JSON cannot represent are written as their `repr`."""
        return json.dumps(self.payload, default=repr).encode()


class Request:
    """
    A job that a worker is about to run. It can be the base of classes that are also used with Celery, but
    `Task.Request` has no effect here.

    Attributes:
        name: The task's name, or the name to show for the call in logs; `type` is always the task's name.
        acknowledged, time_start, worker_pid: False or None, as the task has not started.

    Raises:
        NotImplementedError: The constructor is called.
    """

    acknowledged = False
    time_start: float | None = None
    worker_pid: int | None = None
    connection_errors: tuple[type[BaseException], ...] = ()
    eventer: Any = None
    utc = True

    _context: Context
    _task: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"there is no consumer here that makes requests of messages: {_NOT_HERE}")

    def _fill(self, run: RunDetails) -> "Request":
        task, context = run.plan.task, run.request
        self._context, self._task = context, task
        self.id = self.task_id = run.task_id
        self.type: str = task.name
        self.name = self.task_name = context.shadow or task.name
        self.app = task.app
        self.task = task
        self.args, self.kwargs = run.args, run.kwargs
        self.argsrepr, self.kwargsrepr = context.argsrepr, context.kwargsrepr
        self.message = Message(context)
        self.body = self.message.body
        self.content_type, self.content_encoding = Message.content_type, Message.content_encoding
        self.hostname = context.hostname
        self.delivery_info = context.delivery_info
        self.correlation_id = context.correlation_id
        self.reply_to = context.reply_to
        self.root_id, self.parent_id = context.root_id, context.parent_id
        self.group, self.group_index = context.group, context.group_index
        self.time_limits = list(context.timelimit or (None, None))
        self.replaced_task_nesting = context.replaced_task_nesting
        self.stamped_headers = list(context.stamped_headers or [])
        self.stamps = {name: (context.stamps or {}).get(name) for name in self.stamped_headers}
        self.errbacks, self.chord = context.errbacks, context.chord
        self.ignore_result = bool(task.ignore_result if context.ignore_result is None else context.ignore_result)
        self.store_errors = not self.ignore_result or task.store_errors_even_if_ignored
        self.tzlocal = self.app.conf.timezone
        self.eta, self.expires = self._moment(context.eta), self._moment(context.expires)
        self.request_dict = {
            **self.message.headers,
            "properties": self.message.properties,
            "reply_to": self.reply_to,
            "correlation_id": self.correlation_id,
            "hostname": self.hostname,
            "delivery_info": self.delivery_info,
            "args": self.args,
            "kwargs": self.kwargs,
        }
        return self

    def _moment(self, value: Any) -> datetime | None:
        return None if value is None else aware(self.app, value)

    def info(self, safe: bool = False) -> dict[str, Any]:
        """
        The request in the form that `inspect` shows.

        Args:
            safe: True to return the arguments as text.
        """
        return {
            "id": self.id,
            "name": self.name,
            "args": self.argsrepr if safe else self.args,
            "kwargs": self.kwargsrepr if safe else self.kwargs,
            "type": self.type,
            "hostname": self.hostname,
            "time_start": self.time_start,
            "acknowledged": self.acknowledged,
            "delivery_info": self.delivery_info,
            "worker_pid": self.worker_pid,
        }

    def humaninfo(self) -> str:
        """The task's name and id, as in logs."""
        return f"{self.name}[{self.id}]"

    def send_event(self, type: str, **fields: Any) -> None:
        """Send monitors an event about the task, if events are enabled for it."""
        if self.task.send_events and self.app.conf.worker_send_task_events:
            with self.app.events.default_dispatcher(hostname=self.hostname) as dispatcher:
                dispatcher.send(type, uuid=self.id, **fields)

    def __str__(self) -> str:
        eta = f" ETA:[{self.eta}]" if self.eta else ""
        expires = f" expires:[{self.expires}]" if self.expires else ""
        return f"{self.humaninfo()} {eta} {expires}".strip()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.humaninfo()} {self.argsrepr} {self.kwargsrepr}>"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a request has no {name!r} here: {_NOT_HERE}", name=name, obj=self)


def request_of(run: RunDetails) -> Request:
    """
    The request for a run that has not begun.

    Raises:
        InvalidTaskError: The ETA or expiry is not a valid time.
    """
    try:
        return Request.__new__(Request)._fill(run)
    except (ValueError, TypeError) as error:
        raise InvalidTaskError(f"invalid ETA or expiry: {error}") from error
