"""Workflows as they are kept in Redis: the steps that come one behind the other."""

from sidekiq_py.redis_access.pool import Link
from sidekiq_py.redis_access.scripts import Script

WALK = Script("walk_flow")


def walk_flow(link: Link, key: str, step_id: str, most_steps: int, most_bytes: int) -> list[tuple[str, bytes]]:
    """
    A step and those behind it, each with its id.

    Args:
        key: A hash from ids to JSON; `walk_flow.lua` says how it tells what comes next.
        most_bytes: After which no more are read; the first one is in any case.

    Returns:
        Nothing if there is no such step.
    """
    first, *others = WALK.run(link, [key], [step_id, most_steps, most_bytes]) or [None]
    if first is None:
        return []
    behind = zip(others[::2], others[1::2], strict=True)
    return [(step_id, first), *((found.decode(), text) for found, text in behind)]
