"""Writing JSON, without Ruby at hand."""

import decimal
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError
from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.json_dialect import check_args, dump_args, dump_args_many, dumps, loads
from sidekiq_py.wire.json_writer import write_integer
from tests.wire.values import nested, random_value


def test_there_is_no_space_and_no_escape_that_ruby_would_not_write() -> None:
    """Raw UTF-8, `/` and U+2028 as they are, control characters in lower case."""
    value = {"a": [1, "é😀/<>&\u2028\x7f", None, True], "b": '\b\f\n\r\t\x01\x1f"\\'}

    text = '{"a":[1,"é😀/<>&\u2028\x7f",null,true],"b":"\\b\\f\\n\\r\\t\\u0001\\u001f\\"\\\\"}'
    assert dumps(value, FloatText.RUBY) == text.encode()


@pytest.mark.parametrize("style", FloatText)
def test_the_exact_writer_agrees_with_the_fast_one(style: FloatText) -> None:
    """An integer past 64 bits, which orjson refuses, changes nothing in the rest."""
    random = Random(1)
    for _ in range(1500):
        value = random_value(random)

        alone = dumps([value, 0], style)

        assert dumps([value, 2**64], style) == alone[:-2] + b"18446744073709551616]"
        assert loads(alone) == [value, 0]


def test_an_integer_of_any_length_is_written() -> None:
    """Python refuses more than 4,300 digits by default; Ruby does not."""
    text = b"9" * 4000 + b"0" * 5999 + b"7"
    number = int("9" * 4000) * 10**6000 + 7

    assert dumps([number, -number], FloatText.RUBY) == b"[%b,-%b]" % (text, text)
    assert loads(b"[%b,-%b]" % (text, text)) == [number, -number]


def test_a_long_integer_is_put_together_from_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Its time then grows little faster than its length. Otherwise, who can push a job could hold the interpreter of
    whoever shows or retries it for as long as they like.
    """
    converted: list[int] = []

    def convert(value: int) -> Decimal:
        converted.append(value)
        return Decimal(value)

    monkeypatch.setattr(decimal, "Decimal", convert)
    number = 10**100_000 - 1

    assert write_integer(number) == "9" * 100_000

    powers = converted.count(2)
    # The two sizes of halves at each level; and each part once, and small enough to be converted at a time.
    assert powers <= 2 * number.bit_length().bit_length()
    assert len(converted) - powers <= 2 * number.bit_length() // 1_900
    assert max(converted).bit_length() <= 1_900


def test_floats_follow_the_style() -> None:
    """The same value in both."""
    values = [1.5, 1e15, 1e-5, 1e23, 594012.05919]

    assert dumps(values, FloatText.RUBY) == b"[1.5,1.0e+15,1.0e-05,1.0e+23,594012.05919]"
    assert dumps(values, FloatText.JSON3) == b"[1.5,1e+15,0.00001,9.999999999999999e+22,594012.0591900001]"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"\udfff": 1}, [nested(100)]])
def test_what_ruby_cannot_generate_is_refused(value: Any) -> None:
    """With the place, even where orjson would write null."""
    with pytest.raises(ArgumentValueError, match="value"):
        dumps(value, FloatText.RUBY)


def test_a_hundred_levels_are_written() -> None:
    """The limit is Ruby's; for arguments it is one less, as the payload is a level of its own."""
    assert dumps(nested(100), FloatText.RUBY)
    assert dump_args([nested(98)], FloatText.RUBY)
    with pytest.raises(ArgumentValueError, match="nested too deep"):
        dump_args([nested(99)], FloatText.RUBY)


@pytest.mark.parametrize("value", [(1,), {1: 2}, b"x", object(), {1}])
def test_a_foreign_type_is_refused(value: Any) -> None:
    """Tuples too, which orjson would write."""
    with pytest.raises(ArgumentTypeError, match=r"^value\[0\]"):
        dumps([value], FloatText.RUBY)


@pytest.mark.parametrize("odd", [1e20, 2**70])
def test_a_foreign_key_is_refused_beside_what_needs_the_exact_writer(odd: Any) -> None:
    """The exact writer is not reached with it."""
    with pytest.raises(ArgumentTypeError, match="has the key 1, an int"):
        dumps([odd, {1: 2}], FloatText.RUBY)


@pytest.mark.parametrize("style", FloatText)
def test_the_three_ways_to_write_arguments_agree(style: FloatText) -> None:
    """One by one, many at once, and as any value."""
    random = Random(2)
    for _ in range(300):
        levels = random.choice([0, 0, 2])
        lists = [
            [random_value(random, levels) for _ in range(random.randint(0, 3))] for _ in range(random.randint(0, 5))
        ]

        many = dump_args_many(lists, style)

        assert many == [dump_args(args, style) for args in lists] == [dumps(args, style) for args in lists]
        check_args(lists)


@pytest.mark.parametrize("lists", [[], [[]], [[], []], [["],["]], [["],["], ["a"]], [[[1], [2]], [3]], [[2**64], [1]]])
def test_many_arguments_are_cut_where_one_list_ends(lists: list[list[Any]]) -> None:
    """Also where a string or a nested list looks like the border between two jobs."""
    assert dump_args_many(lists, FloatText.RUBY) == [dumps(args, FloatText.RUBY) for args in lists]


def test_the_job_of_a_bad_argument_is_named() -> None:
    """In a bulk push the place begins with the job's index."""
    with pytest.raises(ArgumentTypeError) as caught:
        dump_args_many([[1], [2, {"when": (1, 2)}]], FloatText.RUBY)

    assert caught.value.place == 'args[1][1]["when"]'
