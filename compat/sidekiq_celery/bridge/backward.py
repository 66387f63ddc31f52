"""
Turns a Sidekiq job on its way back into a Celery message.

Only tasks go back: jobs that a Celery program has enqueued, or whose class is a task of the app. Jobs that only a
`sidekiq_celery` worker can finish stay: parts of its chords, steps in Ruby, and the internal tasks of its workflows.
"""

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sidekiq_celery._send import flow_store
from sidekiq_celery._wire.chord_part import is_part
from sidekiq_celery._wire.json_values import to_plain, with_bare_floats
from sidekiq_celery._wire.message import shown
from sidekiq_celery._wire.payload import EMBEDS, SAME_NAME, embedded_in, task_headers_of
from sidekiq_celery.bridge.envelope import Envelope
from sidekiq_celery.bridge.fates import MALFORMED, Fate, Found, Kind, Left, Moved
from sidekiq_celery.bridge.layout import CeleryLayout
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import InvalidTaskError
from sidekiq_py import payloads
from sidekiq_py.errors import PayloadError

NO_TASK = "no task of this app; Sidekiq's workers run it"
OURS = "part of a workflow of sidekiq_celery; a worker here has to run it"
UNSENDABLE = "it contains what no message of Celery can hold; a worker here has to run it"
SEALED = "its arguments are in a serializer other than JSON; a worker here has to run it"

_OURS = frozenset({"celery.chord_start", "celery.chord_fail", "celery.step_ended"})
_EMBEDDED = ("callbacks", "errbacks")


class _Job(NamedTuple):
    """A job, where it was found, and its `celery` object."""

    found: Found
    payload: Mapping[str, Any]
    task_headers: Mapping[str, Any]


class Backward:
    """
    Judges jobs on their way to Celery.

    Args:
        app: The app whose tasks go back.
        renames: A mapping from queue names to new names.
        layout: How the destination stores its queues, if it is a Redis.
    """

    def __init__(self, app: App, renames: Mapping[str, str], layout: CeleryLayout) -> None:
        self._app = app
        self._renames = renames
        self._layout = layout
        self._tasks = frozenset(app.tasks)

    def judge(self, found: Found) -> Fate:
        """Decide what happens to a job."""
        try:
            payload = payloads.parse_job(found.text)
            task_headers = task_headers_of(payload)
        except (PayloadError, InvalidTaskError, *MALFORMED):
            return Left(NO_TASK)
        if not task_headers and payload["class"] not in self._tasks:
            return Left(NO_TASK)
        if (
            payload["class"] in _OURS
            or "chord" in task_headers
            or "report" in task_headers
            or "message" in task_headers
        ):
            return Left(OURS)
        try:
            return self._judge(_Job(found, payload, task_headers))
        except MALFORMED:
            return Left(UNSENDABLE)

    def _judge(self, job: _Job) -> Fate:
        chain = self._chain(job.task_headers)
        if chain is None:
            return Left(OURS)
        return self._sealed(job, chain) if "body" in job.task_headers else self._open(job, chain)

    def _chain(self, task_headers: Mapping[str, Any]) -> list[Any] | None:
        """The rest of a chain in Celery's form, the next step last. Returns None if Celery could not finish it."""
        place = task_headers.get("flow")
        try:
            steps = list(flow_store.walk(self._app, [place] if place else task_headers.get("chain")))
        except InvalidTaskError:
            return None
        if place and not steps:
            return None
        if any(is_part((step.get("options") or {}).get("chord")) for step in steps):
            return None
        return [to_plain(step) for step in reversed(steps)]

    def _sealed(self, job: _Job, chain: Sequence[Any]) -> Fate:
        task_headers = job.task_headers
        if not task_headers.get(EMBEDS) or chain or any(task_headers.get(key) for key in _EMBEDDED):
            return Left(SEALED)
        headers = self._headers(job, "", "")
        if task_headers.get("compression"):
            headers["compression"] = task_headers["compression"]
        body = b64decode(task_headers["body"])
        return self._moved(job, headers, body, task_headers["content_type"], task_headers["content_encoding"])

    def _open(self, job: _Job, chain: Sequence[Any]) -> Fate:
        task_headers = job.task_headers
        args: list[Any] = with_bare_floats(payloads.args_of(job.payload))
        kwargs: Any = {}
        if task_headers.get("kw"):
            *args, kwargs = args or [None]
        if not isinstance(kwargs, dict):
            return Left(SEALED)
        # The last step of a chain has an empty one.
        rest = list(chain) or embedded_in(task_headers).get("chain")
        embedded = {**{key: task_headers.get(key) for key in _EMBEDDED}, "chain": rest, "chord": None}
        body = json.dumps([args, kwargs, embedded]).encode()
        headers = self._headers(job, shown(tuple(args)), shown(kwargs))
        return self._moved(job, headers, body, "application/json", "utf-8")

    def _headers(self, job: _Job, args: str, kwargs: str) -> dict[str, Any]:
        found, payload, task_headers = job
        task_id = payload.get("jid")
        task = self._app._tasks.get(payload["class"])
        return {
            "lang": "py",
            "task": payload["class"],
            "id": task_id,
            **{key: task_headers.get(key) for key in (*SAME_NAME, "stamps")},
            "eta": task_headers.get("eta") if found.due is None else datetime.fromtimestamp(found.due, UTC).isoformat(),
            "retries": task_headers.get("retries", 0),
            "timelimit": task_headers.get("timelimit", [None, None]),
            "root_id": task_headers.get("root_id", task_id),
            "argsrepr": task_headers.get("argsrepr", args),
            "kwargsrepr": task_headers.get("kwargsrepr", kwargs),
            "ignore_result": task_headers.get("ignore_result", bool(getattr(task, "ignore_result", False))),
            "replaced_task_nesting": task_headers.get("replaced_task_nesting", 0),
            **(task_headers.get("headers") or {}),
        }

    def _moved(
        self, job: _Job, headers: dict[str, Any], body: bytes, content_type: str, content_encoding: str
    ) -> Moved:
        found, payload, task_headers = job
        queue = self._renames.get(found.queue, found.queue)
        priority = task_headers.get("priority") or 0
        properties = {
            **(task_headers.get("properties") or {}),
            "correlation_id": task_headers.get("correlation_id", payload.get("jid")),
            "reply_to": task_headers.get("reply_to", ""),
            "priority": priority,
        }
        envelope = Envelope(headers, properties, content_type, content_encoding, body)
        command = ("LPUSH", self._layout.key(queue, priority), envelope.as_text(queue))
        kind: Kind = "moved" if found.due is None else "scheduled"
        return Moved(kind, str(payload.get("jid") or ""), command, queue, envelope)
