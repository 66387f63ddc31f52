"""
Celery's request and message objects for a job, as `task_received`, `task_unknown` and `task_rejected` pass them.

Both are made from the task's own request, and only if a receiver is connected.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

from sidekiq_celery._send.running_task import RunDetails
from sidekiq_celery._wire.context import Context
from sidekiq_celery._wire.message import aware
from sidekiq_celery._wire.payload import EMBEDDED, SAME_NAME
from sidekiq_celery.exceptions import InvalidTaskError
from sidekiq_celery.utils.nodenames import gethostname

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
            **{name: getattr(request, name) for name in (*SAME_NAME, "ignore_result")},
            "timelimit": list(request.timelimit or (None, None)),
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
    A job that a worker is about to run. `Task.Request` has no effect here.

    Args:
        message: Has `headers`, `properties`, `delivery_info`, `body` and `payload`, as `Message` does.
        hostname: The worker's name; by default the machine's.
        task: By default the one of *app* that the message names.
        headers, body: Used in place of the message's.
        decoded: True if the body is the payload itself, and not its text.
        on_ack, on_reject, request_dict, opts: Without effect: the engine acknowledges jobs.

    Attributes:
        name: The task's name, or the name to show for the call in logs; `type` is always the task's name.
        acknowledged, time_start, worker_pid: False or None, as the task has not started.

    Raises:
        InvalidTaskError: The ETA or expiry is not a valid time.
    """

    acknowledged = False
    time_start: float | None = None
    worker_pid: int | None = None

    def __init__(
        self,
        message: Any,
        on_ack: Any = None,
        hostname: str | None = None,
        eventer: Any = None,
        app: Any = None,
        connection_errors: tuple[type[BaseException], ...] | None = None,
        request_dict: Any = None,
        task: Any = None,
        on_reject: Any = None,
        body: Any = None,
        headers: Mapping[str, Any] | None = None,
        decoded: bool = False,
        utc: bool = True,
        **opts: Any,
    ) -> None:
        fields = dict(message.headers if headers is None else headers)
        properties, place = message.properties or {}, message.delivery_info or {}
        self.message, self.app, self.eventer, self.utc = message, app, eventer, utc
        self.connection_errors = connection_errors or ()
        self.body = message.body if body is None else body
        self.content_type = None if decoded else message.content_type
        self.content_encoding = None if decoded else message.content_encoding
        self.args, self.kwargs, embedded = self.body if decoded else message.payload
        self._embedded: dict[str, Any] = embedded or {}
        self.id = self.task_id = fields["id"]
        self.type: str = fields["task"]
        self.name = self.task_name = fields.get("shadow") or self.type
        self.task = self._task = task or app.tasks[self.type]
        self.argsrepr, self.kwargsrepr = fields.get("argsrepr", ""), fields.get("kwargsrepr", "")
        self.hostname = hostname or gethostname()
        self.delivery_info = {
            "exchange": place.get("exchange"),
            "routing_key": place.get("routing_key"),
            "priority": properties.get("priority"),
            "redelivered": place.get("redelivered", False),
        }
        self.correlation_id, self.reply_to = properties.get("correlation_id"), properties.get("reply_to")
        self.root_id, self.parent_id = fields.get("root_id"), fields.get("parent_id")
        self.group, self.group_index = fields.get("group"), fields.get("group_index")
        self.time_limits = list(fields.get("timelimit") or (None, None))
        self.replaced_task_nesting = fields.get("replaced_task_nesting", 0)
        self.stamped_headers = list(fields.get("stamped_headers") or [])
        self.stamps = {name: (fields.get("stamps") or {}).get(name) for name in self.stamped_headers}
        self.errbacks, self.chord = (self._embedded.get(name) for name in ("errbacks", "chord"))
        ignores = fields.get("ignore_result")
        self.ignore_result = bool(self.task.ignore_result if ignores is None else ignores)
        self.store_errors = not self.ignore_result or self.task.store_errors_even_if_ignored
        self.eta, self.expires = self._moment(fields.get("eta")), self._moment(fields.get("expires"))
        self.request_dict = {
            **fields,
            "properties": properties,
            "reply_to": self.reply_to,
            "correlation_id": self.correlation_id,
            "hostname": self.hostname,
            "delivery_info": self.delivery_info,
            "args": self.args,
            "kwargs": self.kwargs,
        }

    def _moment(self, value: Any) -> datetime | None:
        try:
            return None if value is None else aware(value)
        except (ValueError, TypeError) as error:
            raise InvalidTaskError(f"invalid ETA or expiry: {error}") from error

    @cached_property
    def _context(self) -> Context:
        return Context({**self.request_dict, **self._embedded})

    @property
    def tzlocal(self) -> Any:
        """The app's setting `timezone`."""
        return self.app.conf.timezone

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
    task, context = run.plan.task, run.request
    request = Request(Message(context), hostname=context.hostname, app=task.app, task=task)
    request._context = context
    return request
