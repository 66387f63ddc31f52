"""Random JSON values that like the edges."""

import struct
from random import Random
from typing import Any

EDGE_INTEGERS = [
    0, -1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 10**18,
    10**19, 10**30, -(10**30), 10**100,
]  # fmt: skip
EDGE_FLOATS = [
    0.0, -0.0, 1.0, 0.1, 1e14, 1e15, 1e16, 1e17, 123456789012345.6, 1234567890123456.0, 1234567890123456.8, 1e22,
    1e23, 1e-4, 1e-5, 9.999e-5, 1e-7, 1e-9, 1e-10, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308,
    1700000000.123456, 2.0**53, 999999999999999.9, 99999999999999.98,
]  # fmt: skip
EDGE_CHARACTERS = [chr(code) for code in range(0x20)] + [
    '"', "\\", "/", "\x7f", "\x80", "é", "ß", "\u2028", "\u2029", "\ufeff", "\ufffd", "\uffff", "\ud7ff", "\ue000",
    "😀", "\U00010000", "\U0010ffff", "<", ">", "&", "'", "],[", "%", "NaN",
]  # fmt: skip


def random_float(random: Random) -> float:
    """Any finite double: edges, all exponents, short decimals, epoch seconds."""
    choice = random.random()
    if choice < 0.2:
        return random.choice(EDGE_FLOATS) * random.choice([1, -1])
    if choice < 0.5:
        while True:
            [value] = struct.unpack(">d", random.randbytes(8))
            if value - value == 0.0:
                return float(value)
    if choice < 0.7:
        return float(f"{random.randint(-9999, 9999)}e{random.randint(-320, 300)}")
    if choice < 0.85:
        return 1.7e9 + random.random() * 1e8
    return round(random.uniform(-1e6, 1e6), random.randint(0, 8))


def random_text(random: Random) -> str:
    """Mostly edge characters, now and then any of Unicode, or a run that is longer than what a writer takes at once."""
    characters = []
    for _ in range(random.randint(0, 8)):
        if random.random() < 0.02:
            characters.append(random.choice("aé😀") * random.randint(10, 70))
        if random.random() < 0.7:
            characters.append(random.choice(EDGE_CHARACTERS))
        else:
            code = random.randrange(0x110000 - 0x800)
            characters.append(chr(code if code < 0xD800 else code + 0x800))
    return "".join(characters)


def random_value(random: Random, levels: int = 4) -> Any:
    """A scalar, or a list or dict of at most *levels* levels."""
    choice = random.random()
    if levels > 0 and choice < 0.2:
        return [random_value(random, levels - 1) for _ in range(random.randint(0, 5))]
    if levels > 0 and choice < 0.4:
        return {random_text(random): random_value(random, levels - 1) for _ in range(random.randint(0, 5))}
    if choice < 0.6:
        return random_float(random)
    if choice < 0.75:
        return random.choice(EDGE_INTEGERS) if random.random() < 0.5 else random.randint(-(2**70), 2**70)
    if choice < 0.9:
        return random_text(random)
    return random.choice([None, True, False])


def nested(levels: int) -> Any:
    """*levels* levels of lists and dicts, by turns."""
    value: Any = []
    for level in range(levels - 1):
        value = [value] if level % 2 else {"k": value}
    return value
