"""Task ids."""

from os import urandom
from typing import Any
from uuid import UUID


def uuid() -> str:
    """
    Return a new random id (version 4, with dashes) in the format of task ids.

    The text is made directly from the random bytes. That is four times as fast as `uuid.uuid4()`, which matters because
    each `delay()` makes one.
    """
    bits = bytearray(urandom(16))
    bits[6] = bits[6] & 0x0F | 0x40
    bits[8] = bits[8] & 0x3F | 0x80
    text = bits.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def plain_id(given: Any) -> Any:
    """A UUID or a text of another class, such as Django's SafeString, as plain text; anything else as it is."""
    if isinstance(given, str):
        return str.__str__(given)
    return str(given) if isinstance(given, UUID) else given
