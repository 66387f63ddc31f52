"""Numbers in text that any program may have written; integers are what Ruby 3.1's `to_i` makes of it, in 64 bits."""

import pytest

from sidekiq_py.wire.number_text import to_finite, to_i


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, 0),
        (b"", 0),
        (b"42", 42),
        (b" 12abc", 12),
        (b"-5", -5),
        (b"+7", 7),
        (b"1_000", 1000),
        (b"1__0", 1),
        (b"_1", 0),
        (b"3.9", 3),
        (b"0x1f", 0),
        (b"abc", 0),
        (b"+-5", 0),
        (b"9" * 5000, 2**63 - 1),
        (b"-1_" + b"0" * 5000, 1 - 2**63),
        ("\N{ARABIC-INDIC DIGIT THREE}".encode(), 0),
    ],
    ids=lambda value: str(value)[:20] if isinstance(value, bytes) else "",
)
def test_it_is_the_integer_that_a_text_begins_with(text: bytes | None, value: int) -> None:
    """Anything else is 0. No counter of Redis has more than 64 bits."""
    assert to_i(text) == value


@pytest.mark.parametrize(
    ("text", "number"),
    [(b"1.5", 1.5), ("1.5", 1.5), (None, 0), (b"", 0), ("x", 0), (b"\xff", 0), ("nan", 0), ("-inf", 0), ("1e999", 0)],
)
def test_what_is_no_finite_number_counts_as_0(text: str | bytes | None, number: float) -> None:
    """Of "nan" and "inf", which `float` reads, no integer or time can be made."""
    assert to_finite(text) == number
