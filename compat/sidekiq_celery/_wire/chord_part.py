"""Which part of a chord a task is, as its payload says it."""

from typing import Any

__all__ = (
    "NUMBER",
    "is_part",
    "nth_part",
    "part",
    "shared",
)

NUMBER = "part"
"""The key that tells a part from a body."""


def part(chord_id: str, number: int) -> dict[str, Any]:
    """
    What the *number*-th part of a chord bears as `chord`.

    A group at the end of a part is one of the results that the body is given, as a list: `open` and `close` say how
    many of these begin and end with this part.
    """
    return {"id": chord_id, NUMBER: number}


def is_part(chord: Any) -> bool:
    """Whether an option `chord` is a part's; else it is a body, or nothing."""
    return isinstance(chord, dict) and NUMBER in chord


def nth_part(chord: Any, offset: int) -> Any:
    """
    The option `chord` of a member of a header.

    Args:
        chord: That of the header; a body is the same for all.
        offset: How many parts the members before it have.
    """
    return part(chord["id"], chord[NUMBER] + offset) if is_part(chord) else chord


def shared(chord: Any, counts: list[int]) -> list[Any]:
    """
    The option `chord` of each member of a group that was to be one part: together they are one result, a list.

    Args:
        chord: That of the group.
        counts: How many parts each member has.
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
