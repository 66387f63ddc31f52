"""Payloads as comparable text: what differs from one push to the next is replaced, digit by digit where form counts."""

import re
from typing import Any

_MASKS = [
    (re.compile(r'"[0-9a-f]{24}"'), '"JID"'),
    (re.compile(r'"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"'), '"UUID"'),
    (re.compile(r"\b\d{10}\.\d+\b"), "SECONDS"),
    (re.compile(r'"\d{4}-\d\d-\d\dT[\d:.]+Z"'), lambda match: re.sub(r"\d", "0", match[0])),
]


def masked(payload: str | bytes) -> str:
    """A payload's text without ids and times."""
    text = payload.decode() if isinstance(payload, bytes) else payload
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text


def masked_pushes(pushed: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    """What Ruby pushed: each text, and whether it was scheduled."""
    return [(masked(push["payload"]), push["at"] is not None) for push in pushed]
