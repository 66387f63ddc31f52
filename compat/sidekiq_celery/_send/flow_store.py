"""
Workflows as they are kept in Redis, so that messages need not carry them.

`sidekiq_py:flow:<root id>` is a hash from the id of a step to JSON: `s`, its signature; `n`, the place behind it,
or null.

`sidekiq_py:chord:<group id>` is a hash: `body`, the body's signature; `parts`, how many there are; `more`, how many
were added; `0`, `1`, … the result of each part, as JSON; `done`, once the body was enqueued or has failed.

A **place** is `{"id": <flow>, "next": <step>}`: where a workflow goes on. It stands in a payload as `celery.flow`, and
in the request as the only member of `chain`. A step is deleted by the job's end that enqueues it, a chord when its body
is; what is left behind by a workflow that failed goes with time.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from time import monotonic, sleep
from typing import Any, NamedTuple

from sidekiq_celery._wire.json_values import beyond_json, encoder, from_plain, to_plain
from sidekiq_celery.contract import App
from sidekiq_celery.utils.ids import uuid
from sidekiq_py.errors import JsonParseError, RedisError, ReplyLostError
from sidekiq_py.extension import Command, Outgoing, Question
from sidekiq_py.payloads import loads

__all__ = (
    "DONE",
    "Answer",
    "ChainPosition",
    "ChordRecord",
    "Step",
    "add_parts",
    "answered",
    "as_text",
    "chord_key",
    "is_chain_position",
    "keep_chord",
    "keep_steps",
    "question_of",
    "read_chord",
    "read_step",
    "recall_chord",
    "take_step",
    "walk",
)  # fmt: skip

TTL_SECONDS = 30 * 24 * 3600
"""After which a workflow is forgotten on which nothing has happened."""
AFTERGLOW_SECONDS = 24 * 3600
"""How long a chord is known to be done, should a part of it run again."""

DONE = "done"

_encode = encoder(json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=beyond_json))

# Without it nothing in a text is more than JSON.
_MARK = b"__type__"
_LEVELS_THAT_EACH_PYTHON_WRITES = 900

# Lua can hand about 8,000 values to one command.
_SLICE = 2000

_PATIENCE_SECONDS = 60.0

_RECALLED_SECONDS = 5.0
_MOST_RECALLED = 64
_recalled: dict[str, tuple[float, "ChordRecord"]] = {}

ChainPosition = dict[str, Any]


class Answer(NamedTuple):
    """A place, and how the step there is kept."""

    place: ChainPosition
    text: bytes


_MOST_ANSWERS = 64
_answers: dict[str, tuple[bytes, Answer]] = {}
"""By the id of a job that was pushed here, with its bytes."""


class Step(NamedTuple):
    """A step of a chain, and the place behind it."""

    signature: dict[str, Any]
    behind: ChainPosition | None


class ChordRecord(NamedTuple):
    """
    A chord.

    Args:
        body: Its signature; None if nothing is known of the chord (yet).
    """

    body: dict[str, Any] | None
    parts: int
    is_done: bool


def flow_key(flow_id: str) -> str:
    """The hash of a workflow's steps."""
    return f"sidekiq_py:flow:{flow_id}"


def chord_key(chord_id: str) -> str:
    """The hash of a chord."""
    return f"sidekiq_py:chord:{chord_id}"


def is_chain_position(value: Any) -> bool:
    """Whether a member of a `chain` is a place; else it is a signature."""
    return isinstance(value, dict) and "next" in value and "task" not in value


def as_text(value: Any) -> str:
    """
    JSON, with kombu's marks for what JSON lacks.

    Raises:
        TypeError: It cannot be written.
    """
    try:
        text = _encode(value)
    except (ValueError, RecursionError) as error:
        # It contains itself, or is nested too deep.
        raise TypeError(str(error)) from None
    if text.count("[") + text.count("{") > _LEVELS_THAT_EACH_PYTHON_WRITES:
        # Python 3.14 also writes what is nested 20,000 levels deep, and no worker could read it.
        to_plain(value)
    return text


def _from_text(text: bytes) -> Any:
    """What `as_text` was given."""
    try:
        value = loads(text)
    except JsonParseError:
        # Python's writes what no other reads, such as NaN.
        value = json.loads(text.decode("utf-8"))
    return from_plain(value) if _MARK in text else value


def keep_steps(flow_id: str, chain: Any) -> tuple[ChainPosition | None, list[Command]]:
    """
    Keep the rest of a chain.

    Args:
        chain: As the option `chain`: the next step is the last of it. The first may be a place.

    Returns:
        The place of the next step, and what to write.
    """
    place: ChainPosition | None = None
    fields: list[str] = []
    for step in chain:
        if is_chain_position(step):
            place = dict(step)
            continue
        step_id = step["options"].get("task_id") or uuid()
        # json would ask a signature for its items, one by one.
        fields += [step_id, as_text({"s": dict(step), "n": place})]
        place = {"id": flow_id, "next": step_id}
    if not fields:
        return place, []
    key = flow_key(flow_id)
    slices = (fields[start : start + _SLICE] for start in range(0, len(fields), _SLICE))
    return place, [*(("HSET", key, *some) for some in slices), ("EXPIRE", key, TTL_SECONDS)]


def keep_chord(chord_id: str, parts: int, body: Any) -> list[Command]:
    """
    What to write to keep a chord of so many parts; one that was called before begins anew.

    Raises:
        kombu.exceptions.EncodeError: Its body cannot be written.
    """
    key = chord_key(chord_id)
    try:
        text = as_text(body)
    except TypeError as error:
        from sidekiq_celery._send.clients import refuse

        refuse(error)
    return [("DEL", key), ("HSET", key, "parts", parts, "body", text), ("EXPIRE", key, TTL_SECONDS)]


def read_step(app: App, place: ChainPosition, known: Answer | None = None) -> Step | None:
    """
    The step at a place; None if it was taken, or forgotten.

    Args:
        known: Of this place or another one.
    """
    if known is not None and known.place == place:
        text: bytes | None = known.text
    else:
        text = _ask(app, "HGET", flow_key(place["id"]), place["next"])
    if text is None:
        return None
    record = _from_text(text)
    return Step(record["s"], record["n"])


def question_of(place: ChainPosition, pushed: Sequence[Any] | None) -> Question | None:
    """
    What to ask along with the push of a step that may run in this process next: the step at *place*, behind it.

    Args:
        pushed: The step's job is the last of it, as a rule; a step that is a workflow of its own has pushed others.
    """
    job = pushed[-1] if pushed else None
    if not isinstance(job, Outgoing):
        return None
    return Question(("HGET", flow_key(place["id"]), place["next"]), partial(_keep_answer, job, place))


def _keep_answer(job: Outgoing, place: ChainPosition, text: bytes | None) -> None:
    if text is None:
        return
    while len(_answers) >= _MOST_ANSWERS:
        # Its job runs elsewhere, as most do where there are many.
        _answers.pop(next(iter(_answers)), None)
    _answers[job.jid] = job.payload, Answer(place, text)


def answered(payload: dict[str, Any]) -> Answer | None:
    """What was asked when this very job was pushed, in this process."""
    jid = payload.get("jid")
    known = _answers.pop(jid, None) if isinstance(jid, str) else None
    if known is None:
        return None
    # The last that a push writes; the same chain may be called again under the same ids.
    pushed_at = f'"enqueued_at":{payload.get("enqueued_at")!r}}}'.encode()
    return known[1] if known[0].endswith(pushed_at) else None


def take_step(place: ChainPosition) -> list[Command]:
    """What to write when the step at a place is enqueued."""
    key = flow_key(place["id"])
    return [("HDEL", key, place["next"]), ("EXPIRE", key, TTL_SECONDS)]


def walk(app: App, chain: Any) -> Iterator[dict[str, Any]]:
    """The steps of a `chain`, the next one first, read as they are asked for."""
    for step in reversed(chain or ()):
        place = step if is_chain_position(step) else None
        if place is None:
            yield step
        while place is not None:
            found = read_step(app, place)
            if found is None:
                return
            yield found.signature
            place = found.behind


def read_chord(app: App, chord_id: str) -> ChordRecord:
    """What is kept of a chord."""
    body, parts, done = _ask(app, "HMGET", chord_key(chord_id), "body", "parts", DONE)
    signature = None if body is None else _from_text(body)
    return ChordRecord(signature, int(parts or 0), done is not None)


def recall_chord(app: App, chord_id: str) -> ChordRecord:
    """The same, as it was a few seconds ago at most: what a thousand parts would ask for, one after the other."""
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
    """Let a chord have more parts; returns the number of the first of them."""
    key = chord_key(chord_id)
    more = int(_ask(app, "HINCRBY", key, "more", count, idempotent=False))
    return int(_ask(app, "HGET", key, "parts") or 0) + more - count


def _ask(app: App, *command: Any, idempotent: bool = True) -> Any:
    """
    Redis's answer; it is asked again, unless that might be done twice, for as long as a failover or a restart takes.

    A task whose end needs it has not failed because of them.
    """
    from sidekiq_celery._send.clients import client_of

    pool = client_of(app).pool
    give_up_at = monotonic() + _PATIENCE_SECONDS
    pause = 0.05
    while True:
        try:
            return pool.run(lambda link: link.command(*command), idempotent=idempotent)
        except RedisError as error:
            is_doubtful = not idempotent and isinstance(error, ReplyLostError)
            if error.is_lasting or is_doubtful or monotonic() > give_up_at:
                raise
        sleep(pause)
        pause = min(2 * pause, 1.0)
