"""Reading JSON, without Ruby at hand."""

from random import Random

import pytest

from sidekiq_py.errors import JsonParseError, PayloadError
from sidekiq_py.wire.json_dialect import loads
from tests.wire.values import EDGE_INTEGERS


@pytest.mark.parametrize("number", EDGE_INTEGERS)
def test_integers_are_exact_at_any_length(number: int) -> None:
    """Where the fast reader would make a float of it, the exact one reads."""
    value = loads(b'{"n":[%d, "x"]}' % number)

    assert value == {"n": [number, "x"]}
    assert type(value["n"][0]) is int


def test_integers_longer_than_python_converts_at_once_are_exact() -> None:
    """Python refuses more than 4,300 digits by default; Ruby does not."""
    text = b"-" + b"1234567890" * 1000

    value = loads(text)

    assert (-value) % 10**20 == 12345678901234567890
    assert (-value) // 10**9980 == 12345678901234567890


def test_a_run_of_digits_in_a_string_stays_a_string() -> None:
    """The guard for long integers may be wrong about where digits stand, and nothing comes of it."""
    assert loads(b'{"jid":"01234567890123456789012345"}') == {"jid": "01234567890123456789012345"}


def test_the_last_of_duplicate_keys_stands_at_the_first_place() -> None:
    """As in a Ruby hash."""
    assert list(loads(b'{"a":1,"b":2,"a":3}').items()) == [("a", 3), ("b", 2)]
    assert list(loads(b'{"a":1,"b":12345678901234567890123,"a":3}').items()) == [
        ("a", 3),
        ("b", 12345678901234567890123),
    ]


def test_comments_and_unknown_escapes_are_read() -> None:
    """json before 3.0 reads them, so a payload may hold them; strings that look like comments stay."""
    assert loads(b'/* a */ [1, // b\n "\\q/* c */ // \\u00e9"]') == [1, "q/* c */ // é"]


def test_a_float_beyond_all_doubles_is_infinite() -> None:
    """As in Ruby; it cannot be written again."""
    assert loads(b"[1E400, -1e400]") == [float("inf"), float("-inf")]


@pytest.mark.parametrize(
    "text",
    [
        b'"\\ud800"',
        b'"\\udc00"',
        b'"\\ud800\\u0041"',
        b'"x\\udfff"',
        b'{"\\ud83d":1}',
        b'{"a":"\\ud83d","a":1}',
        b'/* c */{"a":["\\ud83d"],"a":1}',
    ],
)
def test_a_lone_surrogate_is_refused(text: bytes) -> None:
    """Ruby reads some of these into strings that it cannot write."""
    with pytest.raises(JsonParseError, match="surrogate"):
        loads(text)


@pytest.mark.parametrize("opener", [b"[", b'{"a":', b'[{"a":'])
def test_bottomless_nesting_is_refused(opener: bytes) -> None:
    """Neither the fast reader's limit nor Python's recursion limit shows."""
    with pytest.raises(JsonParseError):
        loads(opener * 50_000)


def test_brackets_behind_a_quote_in_a_comment_are_counted() -> None:
    """A comment may hold half a string, which must not hide what follows from the count of levels."""
    with pytest.raises(JsonParseError):
        loads(b'/* " */' + b"[" * 50_000 + b"]" * 50_000 + b'/* " */')


@pytest.mark.parametrize(
    "text",
    [b'{"args":["' + b'{\\"a\\":1},' * 100_000, b"[1, " + b"/* " * 400_000, b"[1, " + b"//" * 600_000],
    ids=["string", "comment", "line"],
)
def test_what_has_no_end_is_refused_at_once(text: bytes) -> None:
    """
    A payload that was cut off in an argument that is JSON itself has quotes in great numbers. Threads of Python wait
    for whoever reads it, among them the one that renews the worker's lease.
    """
    with pytest.raises(JsonParseError):
        loads(text)


@pytest.mark.parametrize("comment", [b"", b"/* only the exact reader takes it */"])
def test_a_hundred_levels_are_read_and_no_more(comment: bytes) -> None:
    """Brackets in strings do not count, and both readers count alike."""
    brackets = b'"' + b"[" * 200 + b'"'

    assert loads(comment + b"[" * 100 + brackets + b"]" * 100)
    with pytest.raises(JsonParseError, match="100 levels"):
        loads(comment + b"[" * 101 + brackets + b"]" * 101)


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    """The message says which byte."""
    with pytest.raises(JsonParseError, match="byte 1 is 0xff"):
        loads(b'"\xff"')


def test_nothing_but_a_parse_error_comes_of_garbage() -> None:
    """Random bytes, and random pieces of JSON: a value or `JsonParseError`, which is a `PayloadError`."""
    random = Random(1)
    pieces = [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"\\",
        b"\\u",
        b"d800",
        b",",
        b":",
        b"1",
        b"e",
        b"-",
        b"//",
        b"/*",
        b"\xff",
        b"\0",
    ]
    for _ in range(20_000):
        text = (
            random.randbytes(random.randint(0, 40)) if random.random() < 0.5 else b"".join(random.choices(pieces, k=9))
        )
        try:
            loads(text)
        except PayloadError as error:
            assert type(error) is JsonParseError  # noqa: PT017
