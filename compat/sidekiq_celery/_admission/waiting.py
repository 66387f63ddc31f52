"""Finding jobs in `schedule` or `retry`, and moving them to their queues before they are due."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any

from sidekiq_py import Client
from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError, SidekiqError
from sidekiq_py.extension import DeadLimits, Link, Pool, Script, move, move_to
from sidekiq_py.payloads import for_queue, parse_job

_LUA = files("sidekiq_celery._admission") / "lua"
FIND = Script.of_text("find_members", (_LUA / "find_members.lua").read_text("utf-8"))

_SLICE = 1000
# No job goes to the dead set here.
_NO_LIMITS = DeadLimits(1_000_000_000, 10_000_000_000)

Payload = dict[str, Any]


def size(pool: Pool, set_key: str) -> int:
    """The number of waiting jobs."""
    count: int = pool.command("ZCARD", set_key)
    return count


def _find(pool: Pool, set_key: str, field: str, texts: Sequence[str]) -> list[bytes]:
    """
    The members of a set whose *field* is one of *texts*, earliest first. Each slice is a separate script, so Redis can
    do other work in between. A member that moves in the meantime may be missed.
    """
    found: list[bytes] = []
    for start in range(0, size(pool, set_key), _SLICE):

        def look(link: Link, start: int = start) -> list[bytes]:
            members: list[bytes] = FIND.run(link, [set_key], [start, start + _SLICE - 1, field, *texts])
            return members

        found += pool.run(look)
    wanted = set(texts)
    return [member for member in dict.fromkeys(found) if _read(member).get(field) in wanted]


def call_up(client: Client, set_key: str, field: str, texts: Sequence[str], change: Callable[[Payload], bool]) -> None:
    """
    Move the jobs whose *field* is one of *texts* to their queues, each only if it is still in the set.

    Args:
        change: Changes a payload before it is moved. If it returns False, the job stays where it is.
    """
    now = time.time()
    dialect = client.detection.dialect(now)
    moves = []
    for member in _find(client.pool, set_key, field, texts):
        payload = _read(member)
        queue = payload.get("queue")
        if isinstance(queue, str) and change(payload):
            # A value that can be read but not written (1E400) keeps the job where it is.
            with suppress(ArgumentTypeError, ArgumentValueError):
                moves.append(move_to(member, queue, for_queue(payload, dialect=dialect, now=now), None))
    move(client.pool, set_key, moves, now=now, limits=_NO_LIMITS)


def _read(member: bytes) -> Payload:
    try:
        return parse_job(member)
    except SidekiqError:
        return {}
