"""Ids of tasks."""

from os import urandom

__all__ = ("uuid",)


def uuid() -> str:
    """
    A new random id (version 4) with its dashes, such as task ids are.

    The text is made from the random bytes themselves: four times as fast as `uuid.uuid4()`, which counts as each
    `delay()` makes one.
    """
    bits = bytearray(urandom(16))
    bits[6] = bits[6] & 0x0F | 0x40
    bits[8] = bits[8] & 0x3F | 0x80
    text = bits.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
