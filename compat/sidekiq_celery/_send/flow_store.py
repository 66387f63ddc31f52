"""
Workflows stored in Redis, so that messages do not have to carry them.

`sidekiq_py:flow:<root id>` is a hash from the id of a step to JSON: `s` is its signature; `n` is the place after it,
or null.

`sidekiq_py:chord:<group id>` is a hash: `body` is the body's signature; `parts` is the number of parts; `more` is how
many were added; `0`, `1`, … are the results of the parts, as JSON; `done` is set once the body was enqueued or has
failed.

A **place** is `{"id": <flow>, "next": <step>}`: the point where a workflow continues. A payload has it as
`celery.flow`, and a request as the only member of `chain`. A step is deleted by the job's end that enqueues it, and a
chord when its body is enqueued. What a failed workflow leaves behind expires.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from time import monotonic, sleep
from typing import Any, NamedTuple

from sidekiq_celery._send.clients import client_of, refuse
from sidekiq_celery._send.header_checks import is_place, is_signature
from sidekiq_celery._wire.json_values import beyond_json, from_plain, to_plain
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import InvalidTaskError
from sidekiq_celery.utils.functional import chunks
from sidekiq_celery.utils.ids import uuid
from sidekiq_py.errors import JsonParseError, RedisError, RedisReplyError, ReplyLostError
from sidekiq_py.extension import Command, Outgoing, Question
from sidekiq_py.payloads import loads

TTL_SECONDS = 30 * 24 * 3600
"""A workflow expires after this long without activity."""
AFTERGLOW_SECONDS = 24 * 3600
"""How long a chord stays marked as done, in case one of its parts runs again."""

DONE = "done"

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=beyond_json).encode

# A text without this mark is plain JSON.
_MARK = b"__type__"
_LEVELS_THAT_EACH_PYTHON_WRITES = 900

# Lua can pass about 8,000 values to one command.
_SLICE = 2000

_PATIENCE_SECONDS = 60.0

_RECALLED_SECONDS = 5.0
_MOST_RECALLED = 64
_recalled: dict[str, tuple[float, "ChordRecord"]] = {}

ChainPosition = dict[str, Any]


class Answer(NamedTuple):
    """A place, and the stored text of the step there."""

    place: ChainPosition
    text: bytes


_MOST_ANSWERS = 64
_answers: dict[str, tuple[bytes, Answer]] = {}
"""By the id of a job that this process pushed; each with the job's bytes."""


class Step(NamedTuple):
    """A step of a chain, and the place after it."""

    signature: dict[str, Any]
    behind: ChainPosition | None


class ChordRecord(NamedTuple):
    """
    A chord as it is stored.

    Args:
        body: The body's signature; None if the chord is not known (yet).
    """

    body: dict[str, Any] | None
    parts: int
    is_done: bool


def flow_key(flow_id: str) -> str:
    """The key of the hash with a workflow's steps."""
    return f"sidekiq_py:flow:{flow_id}"


def chord_key(chord_id: str) -> str:
    """The key of a chord's hash."""
    return f"sidekiq_py:chord:{chord_id}"


def is_chain_position(value: Any) -> bool:
    """Whether a member of a `chain` is a place; otherwise it is a signature."""
    return isinstance(value, dict) and "next" in value and "task" not in value


def as_text(value: Any) -> str:
    """
    Write *value* as JSON, with kombu's marks for types that JSON lacks.

    Raises:
        TypeError: It cannot be written.
    """
    try:
        text = _encode(value)
    except (ValueError, RecursionError) as error:
        # The value contains itself, or is nested too deeply.
        raise TypeError(str(error)) from None
    if text.count("[") + text.count("{") > _LEVELS_THAT_EACH_PYTHON_WRITES:
        # Python 3.14 can even write 20,000 levels of nesting, which no worker could read.
        to_plain(value)
    return text


def _from_text(text: bytes) -> Any:
    """Read a value that `as_text` has written."""
    try:
        value = loads(text)
    except JsonParseError:
        # Python's encoder writes values that other parsers reject, such as NaN.
        value = json.loads(text.decode("utf-8"))
    return from_plain(value) if _MARK in text else value


def keep_steps(flow_id: str, chain: Any) -> tuple[ChainPosition | None, list[Command]]:
    """
    Store the rest of a chain.

    Args:
        chain: As in the option `chain`: the next step comes last. The first may be a place.

    Returns:
        The place of the next step, and the commands to write.
    """
    place: ChainPosition | None = None
    fields: list[str] = []
    for step in chain:
        if is_chain_position(step):
            place = dict(step)
            continue
        step_id = step["options"].get("task_id") or uuid()
        # For a signature, json would call its `items` and decode them one by one.
        fields += [step_id, as_text({"s": dict(step), "n": place})]
        place = {"id": flow_id, "next": step_id}
    if not fields:
        return place, []
    key = flow_key(flow_id)
    slices = chunks(iter(fields), _SLICE)
    return place, [*(("HSET", key, *some) for some in slices), ("EXPIRE", key, TTL_SECONDS)]


def keep_chord(chord_id: str, parts: int, body: Any) -> list[Command]:
    """
    The commands that store a chord of *parts* parts. A chord that was called before starts over.

    Raises:
        kombu.exceptions.EncodeError: The body cannot be written.
    """
    key = chord_key(chord_id)
    try:
        text = as_text(body)
    except TypeError as error:
        refuse(error)
    return [("DEL", key), ("HSET", key, "parts", parts, "body", text), ("EXPIRE", key, TTL_SECONDS)]


def read_step(app: App, place: ChainPosition, known: Answer | None = None) -> Step | None:
    """
    The step at a place. Returns None if it was taken, or has expired.

    Args:
        known: A cached answer for this place, or for another one.

    Raises:
        InvalidTaskError: Another program has overwritten it.
    """
    if known is not None and known.place == place:
        text: bytes | None = known.text
    else:
        text = _ask(app, "HGET", flow_key(place["id"]), place["next"])
    if text is None:
        return None
    try:
        record = _from_text(text)
        step = Step(record["s"], record["n"])
    except Exception:  # noqa: BLE001 - kombu's decoders may raise anything
        raise _overwritten(place) from None
    if not is_signature(step.signature) or not (step.behind is None or is_place(step.behind)):
        raise _overwritten(place)
    return step


def _overwritten(place: ChainPosition) -> InvalidTaskError:
    return InvalidTaskError(
        f"the field {place['next']!r} of {flow_key(place['id'])} is no step of a workflow: another program has "
        "overwritten it"
    )


def question_of(place: ChainPosition, pushed: Sequence[Any] | None) -> Question | None:
    """
    Ask for the step at *place* together with the push of the step before it, which may run in this process next.

    Args:
        pushed: What was pushed. Usually the last of it is the step's job; a step that is itself a workflow pushes
            others.
    """
    job = pushed[-1] if pushed else None
    if not isinstance(job, Outgoing):
        return None
    return Question(("HGET", flow_key(place["id"]), place["next"]), partial(_keep_answer, job, place))


def _keep_answer(job: Outgoing, place: ChainPosition, text: bytes | None) -> None:
    if text is None:
        return
    while len(_answers) >= _MOST_ANSWERS:
        # The oldest entry's job runs in another process, as most do if there are many jobs.
        _answers.pop(next(iter(_answers)), None)
    _answers[job.jid] = job.payload, Answer(place, text)


def answered(payload: dict[str, Any]) -> Answer | None:
    """The answer that this process got when it pushed this very job, or None."""
    jid = payload.get("jid")
    known = _answers.pop(jid, None) if isinstance(jid, str) else None
    if known is None:
        return None
    # A push writes this last. The comparison is needed because the same chain may be called again under the same ids.
    pushed_at = f'"enqueued_at":{payload.get("enqueued_at")!r}}}'.encode()
    return known[1] if known[0].endswith(pushed_at) else None


def take_step(place: ChainPosition) -> list[Command]:
    """The commands to write when the step at a place is enqueued."""
    key = flow_key(place["id"])
    return [("HDEL", key, place["next"]), ("EXPIRE", key, TTL_SECONDS)]


def walk(app: App, chain: Any) -> Iterator[dict[str, Any]]:
    """
    The steps of a `chain`, the next one first; each is read when it is reached.

    Raises:
        InvalidTaskError: Another program has overwritten one, perhaps so that the steps lead in a circle.
    """
    passed = set()
    for step in reversed(chain or ()):
        place = step if is_chain_position(step) else None
        if place is None:
            yield step
        while place is not None:
            found = read_step(app, place)
            if found is None:
                return
            at = place["id"], place["next"]
            if at in passed:
                raise _overwritten(place)
            passed.add(at)
            yield found.signature
            place = found.behind


def read_chord(app: App, chord_id: str) -> ChordRecord:
    """
    The stored record of a chord.

    Raises:
        InvalidTaskError: Another program has overwritten it.
    """
    body, parts, done = _ask(app, "HMGET", chord_key(chord_id), "body", "parts", DONE)
    problem = f"{chord_key(chord_id)} is no chord: another program has overwritten it"
    try:
        record = ChordRecord(None if body is None else _from_text(body), int(parts or 0), done is not None)
    except Exception:  # noqa: BLE001 - as in `read_step`
        raise InvalidTaskError(problem) from None
    if body is not None and not is_signature(record.body):
        raise InvalidTaskError(problem)
    return record


def recall_chord(app: App, chord_id: str) -> ChordRecord:
    """Like `read_chord`, but up to five seconds old: otherwise each of a thousand parts would read the same record."""
    now = monotonic()
    read_at, record = _recalled.get(chord_id, (0.0, None))
    if record is None or now - read_at > _RECALLED_SECONDS:
        record = read_chord(app, chord_id)
        if record.body is not None and not record.is_done:
            if len(_recalled) >= _MOST_RECALLED:
                _recalled.clear()
            _recalled[chord_id] = now, record
    return record


def add_parts(app: App, chord_id: str, count: int) -> int:
    """Add parts to a chord. Returns the number of the first one added."""
    key = chord_key(chord_id)
    more = int(_ask(app, "HINCRBY", key, "more", count, idempotent=False))
    return int(_ask(app, "HGET", key, "parts") or 0) + more - count


def _ask(app: App, *command: Any, idempotent: bool = True) -> Any:
    """
    Redis's reply. The command is retried for as long as a failover or a restart takes, unless it might run twice.

    A task whose end needs the reply does not fail because of a failover or restart.

    Raises:
        InvalidTaskError: The key has a wrong type.
    """
    pool = client_of(app).pool
    give_up_at = monotonic() + _PATIENCE_SECONDS
    pause = 0.05
    while True:
        try:
            return pool.run(lambda link: link.command(*command), idempotent=idempotent)
        except RedisError as error:
            if isinstance(error, RedisReplyError) and error.code == "WRONGTYPE":
                raise InvalidTaskError(f"{command[1]} is not a hash: another program has overwritten it") from error
            is_doubtful = not idempotent and isinstance(error, ReplyLostError)
            if error.is_lasting or is_doubtful or monotonic() > give_up_at:
                raise
        sleep(pause)
        pause = min(2 * pause, 1.0)
