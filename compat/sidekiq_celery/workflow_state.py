"""
Workflows as they are stored in Redis, one page at a time: the tasks that a task has called, the parts that a chord
waits for, and the steps still to come.

    from sidekiq_celery import workflow_state

    workflow_state.read(app, task_id).members
    workflow_state.unfinished(app).workflows

A tree is walked node by node, so a group of 10,000 costs no more than the page of it that you read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from sidekiq_celery import stored_results
from sidekiq_celery._result.many_children import ManyTasks
from sidekiq_celery._send.clients import client_of
from sidekiq_celery._send.flow_store import DONE, chord_key, flow_key
from sidekiq_celery.contract import App
from sidekiq_celery.stored_results import StoredResult
from sidekiq_py.errors import JsonParseError
from sidekiq_py.extension import Command, Pool
from sidekiq_py.payloads import loads

__all__ = ("Chord", "Member", "Step", "Unfinished", "UnfinishedPage", "WorkflowPage", "read", "unfinished")

_SCANNED_AT_ONCE = 1000
# `sidekiq_py:flow:…` and `sidekiq_py:chord:…` in one pass; other keys that match are filtered out by name.
_PATTERN = "sidekiq_py:[fc][lh]o[wr]*"
_FLOW, _CHORD = flow_key(""), chord_key("")
_MOST_STEPS = 200
_LONGEST_ID = 500


@dataclass(frozen=True, slots=True)
class Member:
    """
    A node below another one.

    Args:
        id: The id of a task or group; empty for a part of a chord of which only the number is known.
        kind: The kind of node; a group has members of its own.
        number: Its position among the members, from 0.
        state: As in `AsyncResult`; PENDING also if no result is stored. Empty for a group.
        count: The number of members of a group.
        result: The stored result of a task.
    """

    id: str
    kind: Literal["task", "group", "part"]
    number: int
    state: str = ""
    count: int = 0
    result: StoredResult | None = None


@dataclass(frozen=True, slots=True)
class Chord:
    """
    A chord that is stored in Redis.

    Args:
        parts: The number of parts that the body waits for; 0 once the chord is done, as nothing else is stored then.
        ended: How many of these have ended.
        is_done: True once the body was enqueued or has failed.
    """

    parts: int
    ended: int
    is_done: bool


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a chain that is still to come."""

    id: str
    task: str


@dataclass(frozen=True, slots=True)
class WorkflowPage:
    """
    A node and some of those below it.

    Args:
        id: The node's id.
        result: The node's stored result, if it is a task that has begun or ended.
        members: The tasks that it has called, or the members of the group, from *start* on.
        total: The number of members in all.
        chord: The chord, if the id is that of a chord.
        steps_left: The number of steps, in the chain that begins with this task, that no task has called yet.
        steps: The first of these steps, as long as the task itself has not ended.
    """

    id: str
    result: StoredResult | None
    members: tuple[Member, ...]
    start: int
    total: int
    chord: Chord | None
    steps_left: int
    steps: tuple[Step, ...]

    @property
    def is_known(self) -> bool:
        """Whether anything is stored under this id."""
        return self.result is not None or self.chord is not None or bool(self.total or self.steps_left)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """
    A workflow that has data in Redis.

    Args:
        id: The id of a chain's first task, or of the group in front of a chord's body.
        steps_left: The number of steps that a chain still has to call.
        chord: The chord's details; None for a chain.
    """

    id: str
    kind: Literal["chain", "chord"]
    steps_left: int
    chord: Chord | None


@dataclass(frozen=True, slots=True)
class UnfinishedPage:
    """
    A page of a scan through Redis.

    Args:
        next: Where to continue; None at the end.
    """

    workflows: tuple[Unfinished, ...]
    next: str | None


def read(app: App, id: str, *, group: str = "", start: int = 0, limit: int = 50) -> WorkflowPage:
    """
    A node of a workflow and a page of the nodes below it, in three round trips; in more if results have over 64 kB.

    Args:
        id: The id of a task, a group or a chord.
        group: The id of a group that the task has called: return its members instead of what the task has called.

    Raises:
        RedisError: As `Pool.run` does.
        ImproperlyConfigured: Results are not stored in Redis.
    """
    pool = client_of(app).pool
    about, size, steps_left = pool.batch(
        [
            ("HMGET", chord_key(id), "parts", "more", DONE),
            ("HLEN", chord_key(id)),
            ("HLEN", flow_key(id)),
        ]
    )
    chord = _chord(about, size)
    result, group_members = stored_results.read_with_group(app, id)
    below: Sequence[Any] = result.children if result is not None else group_members
    if group and result is not None:
        below = next((members for name, members in map(_node, below) if name == group and members is not None), ())
    if below:
        members = _members(app, below, start, limit)
        return WorkflowPage(id, result, members, start, len(below), chord, steps_left, ())
    if chord is not None and chord.parts:
        parts = _parts(pool, id, chord, start, limit)
        return WorkflowPage(id, result, parts, start, chord.parts, chord, steps_left, ())
    steps = _steps(pool, id, limit) if 0 < steps_left <= _MOST_STEPS else ()
    return WorkflowPage(id, result, (), start, 0, chord, steps_left, steps)


def unfinished(app: App, after: str = "0", *, limit: int = 50, look_at: int = 10_000) -> UnfinishedPage:
    """
    Scan Redis for chains with steps to come and for chords, in no particular order.

    Args:
        after: `UnfinishedPage.next` of the previous page.
        limit: About how many to return.
        look_at: How many keys to examine at most.

    Raises:
        RedisError: As `Pool.run` does.
        ValueError: *after* is not a number.
    """
    pool = client_of(app).pool
    cursor = int(after)
    keys: list[str] = []
    for _ in range(max(1, look_at // _SCANNED_AT_ONCE)):
        reply, found = pool.command("SCAN", cursor, "MATCH", _PATTERN, "COUNT", _SCANNED_AT_ONCE)
        cursor = int(reply)
        keys += [key.decode(errors="replace") for key in found if key.startswith((_FLOW.encode(), _CHORD.encode()))]
        if cursor == 0 or len(keys) >= limit:
            break
    commands: list[Command] = []
    for key in keys:
        commands += [("HLEN", key), ("HMGET", key, "parts", "more", DONE)]
    replies = pool.well_typed(commands)
    workflows = []
    for key, size, about in zip(keys, replies[::2], replies[1::2], strict=True):
        # Another program may have written a key of another type, which is no workflow.
        if size is None:
            continue
        if key.startswith(_FLOW):
            workflows.append(Unfinished(key.removeprefix(_FLOW), "chain", size, None))
        else:
            workflows.append(Unfinished(key.removeprefix(_CHORD), "chord", 0, _chord(about, size)))
    return UnfinishedPage(tuple(workflows), str(cursor) if cursor else None)


def _chord(about: Sequence[bytes | None], size: int) -> Chord | None:
    if not size:
        return None
    parts, more, done = about
    total = _number(parts) + _number(more)
    # Fields besides the results: parts and body, and more and done if present.
    beside = 2 + (more is not None) + (done is not None)
    return Chord(total, max(0, min(total, size - beside)), done is not None)


def _members(app: App, below: Sequence[Any], start: int, limit: int) -> tuple[Member, ...]:
    nodes = [_node(one) for one in below[start : start + limit]]
    stored = stored_results.read_for_list(app, [name for name, members in nodes if members is None])
    found = []
    for number, (name, members) in enumerate(nodes, start):
        if members is not None:
            found.append(Member(name, "group", number, count=len(members)))
        else:
            result = stored.get(name)
            found.append(Member(name, "task", number, result.state if result else "PENDING", result=result))
    return tuple(found)


def _parts(pool: Pool, id: str, chord: Chord, start: int, limit: int) -> tuple[Member, ...]:
    numbers = range(min(start, chord.parts), min(start + limit, chord.parts))
    if not numbers:
        return ()
    ended = pool.command("HMGET", chord_key(id), *numbers)
    return tuple(
        Member("", "part", number, "PENDING" if text is None else "SUCCESS")
        for number, text in zip(numbers, ended, strict=True)
    )


def _steps(pool: Pool, id: str, limit: int) -> tuple[Step, ...]:
    """The steps in order: each names the one after it."""
    fields = pool.command("HGETALL", flow_key(id))
    steps: dict[str, tuple[Step, str | None]] = {}
    for name, text in zip(fields[::2], fields[1::2], strict=True):
        step_id = name.decode(errors="replace")
        signature, behind = _step(text)
        steps[step_id] = Step(step_id, signature), behind
    followers = {behind for _, behind in steps.values()}
    ordered: dict[str, Step] = {}
    for first in (one for one in steps if one not in followers):
        following: str | None = first
        while following in steps and following not in ordered:
            ordered[following], following = steps[following]
    return tuple(islice(ordered.values(), limit))


def _step(text: bytes) -> tuple[str, str | None]:
    """A step's task, and the id of the step after it."""
    try:
        record = loads(text)
    except JsonParseError:
        return "", None
    record = record if isinstance(record, dict) else {}
    signature, behind = record.get("s"), record.get("n")
    task = signature.get("task") if isinstance(signature, dict) else None
    following = behind.get("next") if isinstance(behind, dict) else None
    return (task if isinstance(task, str) else ""), (following if isinstance(following, str) else None)


def _node(stored: Any) -> tuple[str, Sequence[Any] | None]:
    """Read `[[id, parent], members]`. Returns id and members: None for a task's members, an empty id for other data."""
    if not isinstance(stored, list | tuple) or len(stored) != 2:
        return "", None
    head, members = stored
    name = head[0] if isinstance(head, list | tuple) and head else head
    return _id(name), (members if isinstance(members, list | ManyTasks) else None)


def _id(value: Any) -> str:
    """An id that is safe to send to Redis: without lone UTF-16 surrogates, and empty if it is too long."""
    if not isinstance(value, str) or len(value) > _LONGEST_ID:
        return ""
    return value.encode(errors="replace").decode()


def _number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) < 12 else 0
