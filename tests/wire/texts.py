"""Random JSON texts as nobody's writer spells them: foreign, lenient, damaged, and at the limits."""

from decimal import Decimal
from random import Random
from typing import Any

from tests.wire.values import random_value

_SPACES = ["", "", "", " ", "\n", "\t", "\r", " \n\t\r "]
_COMMENTS = ["/* c */", "// c\n", "/**/", "//\n", '/* " */', "/* * / // */", "/*[*/", "// é\\\n"]
_FOREIGN_SPACES = ["\f", "\v", "\xa0", "\u2028", "\ufeff", "\0", "#\n", "// at the end"]
_UNKNOWN_ESCAPES = ["\\x", "\\U", "\\'", "\\0", "\\é", "\\😀", "\\ ", "\\a1"]
_LONE_SURROGATES = ["\\ud800", "\\udc00", "\\uDFFF", "\\ud83d\\u0041", "\\udbff\\ud800", "\\ude00\\ud83d", "\\ud83dx"]
_BAD_ESCAPES = ["\\u12", "\\u12G4", "\\u", "\\u12\\34", "\\"]
_FRACTIONS = ["", ".0", ".50", ".123456789"]
_RAW_CONTROLS = [chr(code) for code in range(0x20)] + ["\x7f", "\x80", "\u2028"]
_ODD_CHARACTERS = [_UNKNOWN_ESCAPES, _UNKNOWN_ESCAPES, _LONE_SURROGATES, _BAD_ESCAPES, _RAW_CONTROLS]
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}

_FRAGMENTS = [
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"/", b"//", b"/*", b"*/", b"\n", b" ", b"-", b"0", b"9", b".",
    b"e", b"E+", b"true", b"null", b'"a"', b'"b":', b"\\u00e9", b"\\ud83d\\ude00", b"\\ud800", b"\\u0", b"NaN",
    b"1e400", b"12345678901234567890", b"\xc3\xa9", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\x00", b'{"a":1}',
    b'"\\x"', b"1e-7", b"Infinity", b"-Infinity", b"-0", b"\x0c", b",]", b",}",
]  # fmt: skip

_WHOLE = [
    "", " ", "-", "-0", "-0.0", "[-0,-0e1]", "01", "-01", "00", "0.", ".5", "+1", "1e", "1.e5", "1.5e", "1e+",
    "0x1", "1_0", "1.0e400", "-1.0e400", "[1e400]", "[-1E+999]", "1e-400", "2.4703282292062327e-324",
    "2.4703282292062328e-324", "0e5", "0E-5", "1E0005", "[1,]", '{"a":1,}', "[,1]", "[,]", "{,}", "{a:1}",
    "{'a':1}", '{"a" 1}', '{"a":}', "{:1}", "{1:2}", "{null:1}", "[1 2]", "[1]x", "[1]]", "1 2", "NaN", "[NaN]",
    "[-NaN]", "Infinity", "[-Infinity]", "-I", "nul", "truex", "True", "[nulll]", '"', '"abc', '"abc\\', "\ufeff1",
    "\ufeff{}", "/* x", "/", "[1 /]", "1//x", "1//x\n", "//", "/**/", "/*/1", "[1/**/,/**/2]",
    '{/**/"a"/**/:/**/1/**/}', "{//\n}", "[//\n]", "[1,//\n2]", "/***/1", '{"a"://\n1}', "#", '{"a":1,"a":2}',
    '{"a":1,"\\u0061":2}', '{"":1,"":2}', '{"a":{"b":1,"b":2},"c":[]}', '"\\/"', "null", "true", "2", '"x"',
    "123456789012345678901234567890.5", "0.1000000000000000055511151231257827021181583404541015625",
    "9007199254740993.0", "[" * 101 + "1" + "]" * 101, "[" * 100_000, '{"a":' * 101 + "1" + "}" * 101,
    "18446744073709551616", "9" * 5000, "-9223372036854775809", "1" + "0" * 400 + ".0", "0." + "0" * 400 + "1",
    "1" * 400 + "e-399", "[[],{}]", "[ ]", "{ }",
]  # fmt: skip


def random_json_text(random: Random) -> bytes:
    """
    A text that a JSON reader must judge: half of them are sound, the others lenient, damaged or at a limit.

    Sound are spaces, escapes and numbers that a strict reader takes; lenient are comments, duplicate keys and unknown
    escapes, which json takes before 3.0.
    """
    choice = random.random()
    if choice < 0.02:
        return random.choice(_WHOLE).encode()
    if choice < 0.05:
        return _nested(random)
    if choice < 0.60:
        return Speller(random).text().encode()
    if choice < 0.75:
        return Speller(random, oddities=0.06).text().encode()
    return damaged(random, Speller(random).text().encode())


class Speller:
    """
    Spells random values.

    Args:
        oddities: How likely each place of a text holds something that some readers refuse.
    """

    def __init__(self, random: Random, oddities: float = 0.0) -> None:
        self._random = random
        self._oddities = oddities

    def text(self) -> str:
        """A whole text."""
        return self._between() + self._value(random_value(self._random)) + self._between()

    def _value(self, value: Any) -> str:
        kind = type(value)
        if kind is str:
            return self._string(value)
        if kind is float:
            return self._float(value)
        if kind is list:
            items = [self._between() + self._value(item) + self._between() for item in value]
            return f"[{','.join(items) or self._between()}{self._rarely([','])}]"
        if kind is dict:
            pairs = [self._pair(key, item) for key, item in value.items()]
            if pairs and self._is_odd():
                pairs.insert(self._random.randrange(len(pairs)), self._pair(next(iter(value)), 1))
            return f"{{{','.join(pairs) or self._between()}{self._rarely([','])}}}"
        if kind is int:
            return self._rarely(["0", "+", "-"]) + f"{value}"
        return {None: "null", True: "true", False: "false"}[value]

    def _pair(self, key: str, item: Any) -> str:
        between = self._between
        return f"{between()}{self._string(key)}{between()}:{between()}{self._value(item)}{between()}"

    def _between(self) -> str:
        """What stands between two tokens."""
        if self._is_odd():
            return self._random.choice(_COMMENTS if self._random.random() < 0.8 else _FOREIGN_SPACES)
        return self._random.choice(_SPACES)

    def _string(self, value: str) -> str:
        pieces = [self._character(character) for character in value]
        if self._is_odd():
            kind = self._random.choice(
                [_UNKNOWN_ESCAPES, _UNKNOWN_ESCAPES, _LONE_SURROGATES, _BAD_ESCAPES, _RAW_CONTROLS]
            )
            pieces.insert(self._random.randint(0, len(pieces)), self._random.choice(kind))
        return f'"{"".join(pieces)}"'

    def _character(self, character: str) -> str:
        choice = self._random.random()
        if choice < 0.3 and character in _SHORT_ESCAPES:
            return _SHORT_ESCAPES[character]
        if choice < 0.5 or character < " " or character in '"\\':
            units = character.encode("utf-16-be").hex()
            units = units.upper() if choice < 0.1 else units
            return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
        return character

    def _float(self, value: float) -> str:
        """A decimal that reads as *value*, or as one of its neighbours."""
        random = self._random
        choice = random.random()
        if choice < 0.3:
            text = repr(value)
        elif choice < 0.5:
            text = f"{value:.{random.randint(0, 25)}{random.choice('eE')}}"
        elif choice < 0.6 and 1e-30 < abs(value) < 1e30:
            text = f"{value:.{random.randint(1, 40)}f}"
        elif choice < 0.8:
            text = str(_halfway(value, random))
        else:
            digits, fraction = random.randrange(10 ** random.randint(1, 25)), random.choice(_FRACTIONS)
            text = f"{random.choice(['', '-'])}{digits}{fraction}e{random.randint(-330, 310)}"
        return text + self._rarely([".", "e", "0", "_", "f"])

    def _is_odd(self) -> bool:
        return self._oddities > 0 and self._random.random() < self._oddities

    def _rarely(self, texts: list[str]) -> str:
        return self._random.choice(texts) if self._is_odd() and self._random.random() < 0.3 else ""


def _halfway(value: float, random: Random) -> Decimal:
    """The number between two doubles where rounding turns, all its digits written out, or a hair beside it."""
    neighbour = value * (1 + 2.0**-52) if abs(value) < 1e300 else value
    middle = (Decimal(value) + Decimal(neighbour)) / 2
    return middle + random.choice([0, 0, 1, -1]) * abs(middle) * Decimal("1e-25")


def _nested(random: Random) -> bytes:
    """Levels about the limit of 100."""
    levels = random.choice([5, 50, 98, 99, 100, 101, 102, 103, 200])
    openers = [random.choice(["[", '{"k":', "[1,", "[ "]) for _ in range(levels)]
    core = random.choice(["1", "[]", "{}", "", '"[[[["'])
    closers = ["}" if opener[0] == "{" else "]" for opener in reversed(openers)]
    return ("".join(openers) + core + "".join(closers)).encode()


def damaged(random: Random, whole: bytes) -> bytes:
    """*whole* with a few bytes torn out or put in."""
    text = bytearray(whole)
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(text) + 1)
        if random.random() < 0.4:
            del text[place : place + random.randint(1, 3)]
        elif random.random() < 0.8:
            text[place:place] = random.choice(_FRAGMENTS)
        else:
            text[place : place + 1] = random.randbytes(1)
    return bytes(text)
