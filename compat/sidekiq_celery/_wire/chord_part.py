"""Which part of a chord a task is, as written in its payload."""

from typing import Any

NUMBER = "part"
"""The key that distinguishes a part from a body."""


def part(chord_id: str, number: int) -> dict[str, Any]:
    """
    The `chord` option of a chord's part with that number.

    A group at the end of a part is a single result for the body, as a list. `open` and `close` give the number of such
    lists that begin and end with this part.
    """
    return {"id": chord_id, NUMBER: number}


def is_part(chord: Any) -> bool:
    """Whether a `chord` option belongs to a part; otherwise it is a body, or nothing."""
    return isinstance(chord, dict) and NUMBER in chord


def chord_id_of(chord: Any, group_id: str | None) -> str | None:
    """
    The id of the chord that a task is a part of; None if it is not.

    Args:
        chord: The task's option. If a real Celery client sent it, it is the body, and the chord has its group's id.
    """
    return chord["id"] if is_part(chord) else group_id if chord else None


def nth_part(chord: Any, offset: int) -> Any:
    """
    The `chord` option of a member of a header.

    Args:
        chord: The header's option. A body is the same for all members.
        offset: The number of parts in the members before it.
    """
    return part(chord["id"], chord[NUMBER] + offset) if is_part(chord) else chord


def shared(chord: Any, counts: list[int]) -> list[Any]:
    """
    The `chord` option of each member of a group that is itself one part. Together they are one result, a list.

    Args:
        chord: The group's option.
        counts: The number of parts in each member.
    """
    if not is_part(chord):
        return [chord] * len(counts)
    shares = []
    offset = 0
    for count in counts:
        shares.append(part(chord["id"], chord[NUMBER] + offset))
        offset += count
    if shares:
        shares[0]["open"] = chord.get("open", 0) + 1
        shares[-1]["close"] = chord.get("close", 0) + 1
    return shares
