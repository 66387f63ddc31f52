"""Our JSON and that of real Ruby, byte for byte, on values that like the edges."""

import json
from random import Random

import pytest

from sidekiq_py.errors import ArgumentValueError, JsonParseError
from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.json_dialect import dumps, loads
from tests.wire.ruby_peer import RubyError, RubyPeer
from tests.wire.texts import damaged
from tests.wire.values import EDGE_CHARACTERS, nested, random_float, random_text, random_value

# Spelling that Ruby reads and would not write.
FOREIGN = [
    b' { "a" : 1 , "b":[ 1,\t2 ],\n"c" :null} ', b'"\\u00e9\\ud83d\\ude00\\/\\u2028"', b'{"a":1,"b":2,"a":3}',
    b'{"a":{"x":1},"a":{"y":2}}', b"/* c */[1, // d\n2]", b'["\\x\\q", "\\U0041"]', b'["/* \\x */ // "]', b"-0",
    b"[-0, -0.0]", b"1E5", b"[1e+2, 100e-2, 1.50, 0.10, 1E-7]", b"123456789012345678901234567890", b"[1.0e+400]",
    b"-1e400", b"1e-400", b"18446744073709551615", b"18446744073709551616", b"-9223372036854775809", b"1" * 5000,
    b"-" + b"9" * 9001, b"0." + b"0" * 400 + b"1", b"1" * 400 + b"e0", b"2.5e-324", b"2.4e-324", b"null", b"true",
    b'"x"', b"2",
]  # fmt: skip
MALFORMED = [
    b"", b" ", b"-", b"01", b"-01", b"1.", b".5", b"+1", b"1e", b"1.e5", b"0x1", b"[1,]", b'{"a":1,}', b"[,1]",
    b"{a:1}", b"{'a':1}", b'{"a" 1}', b'{"a":}', b"{:1}", b"[1 2]", b"[1]x", b"[1]\x00", b"1 2", b"NaN", b"[NaN]",
    b"Infinity", b"[-Infinity]", b"-I", b"nul", b"tru", b"truex", b'"', b'"abc', b'"abc\\', b'"\\u12"', b'"\\u12G4"',
    b'"\\u12\\34"', b'"\\ud800"', b'"a\nb"', b'"\x00"', b'"\\\n"', b"/* x", b"/", b"[1 /]", b"1//x", b"#",
    b"\xef\xbb\xbf1", b"\xff", b"\x0c1", b"\xc2\xa01", b"[" * 101 + b"]" * 101, b"[" * 100_000, b"[1,2", b'{"a":1',
    b'{"a"',
]  # fmt: skip


def _ours(text: bytes) -> bytes | None:
    """What we read and write again, `None` if we refuse either, as Ruby's errors are."""
    try:
        return dumps(loads(text), FloatText.RUBY)
    except (JsonParseError, ArgumentValueError):
        return None


def _theirs(ruby_peer: RubyPeer, texts: list[bytes]) -> list[bytes | None]:
    return [None if isinstance(answer, RubyError) else answer for answer in ruby_peer.ask_all("json", texts)]


def test_random_values_come_back_from_ruby_byte_for_byte(ruby_peer: RubyPeer) -> None:
    """What we write is what Ruby writes after reading it, and reads as the value that was meant."""
    random = Random(1)
    values = [random_value(random) for _ in range(4000)]

    texts = [dumps(value, FloatText.RUBY) for value in values]

    assert _theirs(ruby_peer, texts) == texts
    assert [loads(text) for text in texts] == values


def test_floats_have_the_text_that_ruby_gives_them(ruby_peer: RubyPeer) -> None:
    """Ruby is handed the bits, so that no text stands between."""
    random = Random(2)
    values = [random_float(random) for _ in range(8000)]
    values += [sign * 2.0**exponent for exponent in range(-1074, 1024) for sign in (1, -1)]
    values += [float(f"{digits}e{exponent}") for exponent in range(-323, 309) for digits in ("1", "1.5", "9.999")]
    finite = [value for value in values if value - value == 0.0]

    texts = [dumps(value, FloatText.RUBY).decode() for value in finite]

    assert texts == ruby_peer.floats(finite)


def test_strings_have_the_text_that_ruby_gives_them(ruby_peer: RubyPeer) -> None:
    """Every character of the basic plane but NUL alone, and random ones in company; NUL is in the values above."""
    random = Random(3)
    strings = [chr(code) for code in range(1, 0x10000) if not 0xD800 <= code < 0xE000]
    strings += [text for text in (random_text(random) for _ in range(1000)) if "\0" not in text] + EDGE_CHARACTERS[1:]

    texts = [dumps(string, FloatText.RUBY) for string in strings]

    answer = ruby_peer.ask("strings", b"".join(string.encode() + b"\0" for string in strings))
    assert texts == answer.split(b"\n")


def test_foreign_spelling_becomes_ruby_s(ruby_peer: RubyPeer) -> None:
    """What others write is read, and comes out as Ruby's own re-encoding leaves it."""
    assert [_ours(text) for text in FOREIGN] == _theirs(ruby_peer, FOREIGN)


def test_what_ruby_refuses_is_refused(ruby_peer: RubyPeer) -> None:
    """Malformed texts raise `JsonParseError` here and an error there."""
    for text in MALFORMED:
        with pytest.raises(JsonParseError):
            loads(text)

    assert _theirs(ruby_peer, MALFORMED) == [None] * len(MALFORMED)


@pytest.mark.parametrize("levels", [98, 99, 100, 101, 102, 300])
def test_the_limit_of_nesting_is_ruby_s(ruby_peer: RubyPeer, levels: int) -> None:
    """Ruby reads and writes 100 levels and no more; a wide document does not count as a deep one."""
    text = json.dumps(nested(levels), separators=(",", ":")).encode()
    wide = b"[" + b",".join([b'{"k":[]}'] * 200) + b"]"

    assert [_ours(text), _ours(wide)] == _theirs(ruby_peer, [text, wide])


def test_damaged_texts_are_judged_as_ruby_judges_them(ruby_peer: RubyPeer) -> None:
    """
    Thousands of texts, each with a few bytes torn out or put in.

    Those with a high surrogate's escape are out of the comparison: left alone, json 2.6.1 reads it as `?` and eats its
    neighbours.
    """
    random = Random(4)
    texts = [text for text in (damaged(random, random.choice(_WHOLE)) for _ in range(6000)) if b"\\ud8" not in text]

    verdicts = [_ours(text) for text in texts]

    disagreements = [
        (text, ours, theirs)
        for text, ours, theirs in zip(texts, verdicts, _theirs(ruby_peer, texts), strict=True)
        if ours != theirs
    ]
    assert disagreements == []


_WHOLE = [
    b'{"retry":true,"queue":"default","args":[1,"x",{"k":[1.5,null]}],"class":"H","jid":"0123456789ab","created_at":1.5e9}',
    b'[1,2,[3,{"a":"b\\u00e9"}],-0.5e3, "\\ud83d\\ude00"]',
    b'"str\\n\\u1234"',
    b"[]",
]
