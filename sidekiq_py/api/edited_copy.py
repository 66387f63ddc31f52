"""
Create a new job from an old one with other arguments or another queue; every other byte is kept.

    draft = JobDraft(entry)
    draft.arguments                       # ['"bob"', '12345678901234567890123']
    draft.enqueue({0: '"alice"'}, queue="low")

Unchanged parts are not re-encoded: large integers, the text of floats, escapes and foreign keys keep their bytes.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sidekiq_py import program
from sidekiq_py.api.job_record import JobRecord
from sidekiq_py.api.source import client_for
from sidekiq_py.client import outgoing
from sidekiq_py.client.jids import new_jid
from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import now_seconds
from sidekiq_py.errors import JsonParseError, PayloadError
from sidekiq_py.logs import counted
from sidekiq_py.redis_access.job_path.push import Outgoing
from sidekiq_py.wire import json_spans
from sidekiq_py.wire.dialect import Dialect, FloatText
from sidekiq_py.wire.json_dialect import dumps, loads
from sidekiq_py.wire.payload import dump, parse_job, score_text

# The keys that a failure leaves in the payload. The copy starts without them.
_FAILURE_KEYS = ("error_message", "error_class", "error_backtrace", "failed_at", "retried_at", "retry_count", "at")
# The batch or workflow that counts the old job would count the copy again.
_MEMBERSHIP_KEYS = ("bid", "sidekiq_py_batch")
# The same in the object that Celery's tasks, and Ruby's jobs in their workflows, have under the key `celery`.
_WORKFLOW_KEYS = ("chain", "chord", "flow", "report")


class JobDraft:
    """
    An old job that can be enqueued again with changes, under a new id.

    Args:
        record: The old job, which stays where it is.

    Raises:
        PayloadError: It is not a usable job, or belongs to a batch or a workflow.
    """

    def __init__(self, record: JobRecord) -> None:
        self._payload = parse_job(record.value)
        key = _membership_of(self._payload)
        if key is not None:
            raise PayloadError(
                f"this job belongs to a batch or a workflow ({key}), which would count its copy as the same job; "
                "push a new job instead"
            )
        self._text = record.value.decode()
        self._spans = json_spans.members(self._text)
        self.queue = record.queue or "default"

    def __repr__(self) -> str:
        return f"<JobDraft of {self._payload.get('jid')}>"

    @property
    def arguments(self) -> list[str]:
        """The JSON text of each argument, as in the payload."""
        args = self._args_text()
        return [args[start:end] for start, end in json_spans.elements(args)]

    def render(
        self,
        changes: Mapping[int, str | None],
        *,
        more: Sequence[str] = (),
        queue: str | None = None,
        jid: str,
        now: float,
        dialect: Dialect,
        is_scheduled: bool = False,
    ) -> bytes:
        """
        The new job's bytes.

        Args:
            changes: Maps an argument's position to its new JSON text; None drops the argument.
            more: JSON texts of arguments to append.
            queue: Another queue.
            jid: The new job's id.
            now: Epoch seconds.
            dialect: How times are written.
            is_scheduled: True if it goes to the schedule, where it carries no `enqueued_at`.

        Raises:
            JsonParseError: A text is not JSON; the message says which argument.
            PayloadError: There is no argument at a position.
        """
        args = self._with_changes(changes, more)
        queue = queue or self.queue
        stamp = dumps(dialect.stamp(now), dialect.float_text).decode()
        replaced = {"jid": f'"{jid}"', "created_at": stamp, "enqueued_at": stamp}
        if args != self._args_text():
            replaced["args"] = args
        if queue != self._payload.get("queue"):
            replaced["queue"] = dumps(queue, dialect.float_text).decode()
        dropped = (*_FAILURE_KEYS, "enqueued_at") if is_scheduled else _FAILURE_KEYS
        return self._spliced(replaced, dropped).encode()

    def enqueue(
        self,
        changes: Mapping[int, str | None] | None = None,
        *,
        more: Sequence[str] = (),
        queue: str | None = None,
        at: datetime | None = None,
        pool: Any = None,
        client: Client | None = None,
    ) -> str | None:
        """
        Push the new job.

        It goes through the client middleware. If that changes the job, it is written as any other push.

        Args:
            changes: As for `render`.
            more: As for `render`.
            queue: Another queue.
            at: When to run it, as an aware datetime.
            pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
            client: A client to use instead of *pool*.

        Returns:
            The new job's id, or None if a client middleware stopped it.

        Raises:
            JsonParseError: A text is not JSON.
            PayloadError: There is no argument at a position, or *at* has no time zone or is not a time.
            RedisError: As for `Client.push`.
        """
        score = None if at is None else score_text(outgoing.moment(at))
        pusher = client_for(pool, client)
        now = now_seconds()
        dialect = pusher.detection.dialect(now)
        jid = new_jid()
        raw = self.render(
            changes or {}, more=more, queue=queue, jid=jid, now=now, dialect=dialect, is_scheduled=at is not None
        )
        payload = loads(raw)
        kept = outgoing.through(program.client_middleware, payload["class"], loads(raw))
        if kept is None:
            return None
        if kept != payload:
            raw, payload = dump(kept, dialect=dialect), kept
        pusher.send(Outgoing(jid, payload["queue"], score, raw))
        return jid

    def _with_changes(self, changes: Mapping[int, str | None], more: Sequence[str]) -> str:
        """The text of the arguments; the text between unchanged arguments is kept, too."""
        args = self._args_text()
        spans = json_spans.elements(args)
        unknown = [place for place in changes if place not in range(len(spans))]
        if unknown:
            has = counted(len(spans), "argument")
            raise PayloadError(f"the job has {has}, and none at position {unknown[0]!r}; they are counted from 0")
        kept = [place for place in range(len(spans)) if changes.get(place, "") is not None]
        added = [_checked(text, len(kept) + place) for place, text in enumerate(more)]
        if len(kept) < len(spans):
            texts = [_checked(changes.get(place) or args[slice(*spans[place])], place) for place in kept]
            return f"[{','.join([*texts, *added])}]"
        for place in reversed(kept):
            given = changes.get(place)
            if given is not None:
                start, end = spans[place]
                args = args[:start] + _checked(given, place) + args[end:]
        if not added:
            return args
        return f"{args.rstrip()[:-1]}{',' if spans else ''}{','.join(added)}]"

    def _args_text(self) -> str:
        span = self._spans.get("args")
        text = "[]" if span is None else self._text[slice(*span)]
        return "[]" if text == "null" else text

    def _spliced(self, replaced: Mapping[str, str], dropped: Sequence[str]) -> str:
        members = []
        for key, (start, end) in self._spans.items():
            if key not in dropped:
                # Only the spelling of the value matters, not that of the key.
                members.append(f"{_key_text(key)}:{replaced.get(key, self._text[start:end])}")
        known = self._spans.keys()
        added = [key for key in ("queue", "args", "jid", "created_at", "enqueued_at") if key not in known]
        members += [f'"{key}":{replaced[key]}' for key in added if key in replaced and key not in dropped]
        return "{" + ",".join(members) + "}"


def _membership_of(payload: Mapping[str, Any]) -> str | None:
    """The key that makes the job a member of a batch or a workflow; None if it is no member."""
    headers = payload.get("celery")
    found = [key for key in _MEMBERSHIP_KEYS if payload.get(key)]
    if isinstance(headers, dict):
        found += [f"celery.{key}" for key in _WORKFLOW_KEYS if headers.get(key)]
    return found[0] if found else None


def _checked(text: str, place: int) -> str:
    stripped = text.strip()
    try:
        loads(stripped.encode())
    except (JsonParseError, UnicodeEncodeError) as error:
        raise JsonParseError(f"argument {place + 1} is {error}") from None
    return stripped


def _key_text(key: str) -> str:
    return dumps(key, FloatText.RUBY).decode()
