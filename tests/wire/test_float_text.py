"""The two texts of a float."""

import struct
from random import Random

import pytest

from sidekiq_py.errors import ArgumentValueError
from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.json_dialect import dumps
from tests.wire.values import random_float

# Value, text of `Float#to_s`, text of json 3; taken from json 2.6.1 and from json's own C code for the newer rule.
TEXTS = [
    (0.0, "0.0", "0.0"),
    (-0.0, "-0.0", "-0.0"),
    (1.0, "1.0", "1.0"),
    (-1.5, "-1.5", "-1.5"),
    (1700000000.0, "1700000000.0", "1700000000.0"),
    (1700000000.123456, "1700000000.123456", "1700000000.123456"),
    (1e14, "100000000000000.0", "100000000000000.0"),
    (999999999999999.9, "999999999999999.9", "999999999999999.9"),
    (1e15, "1.0e+15", "1e+15"),
    (1e16, "1.0e+16", "1e+16"),
    (1234567890123456.0, "1.234567890123456e+15", "1.234567890123456e+15"),
    (1234567890123456.75, "1234567890123456.8", "1234567890123456.7"),
    (0.0001, "0.0001", "0.0001"),
    (0.00001, "1.0e-05", "0.00001"),
    (-0.0000001, "-1.0e-07", "-0.0000001"),
    (1e-9, "1.0e-09", "0.000000001"),
    (1e-10, "1.0e-10", "1e-10"),
    (1.5e-7, "1.5e-07", "0.00000015"),
    (1e100, "1.0e+100", "1e+100"),
    (5e-324, "5.0e-324", "5e-324"),
    (2.2250738585072014e-308, "2.2250738585072014e-308", "2.2250738585072014e-308"),
    (1.7976931348623157e308, "1.7976931348623157e+308", "1.7976931348623157e+308"),
]

# Grisu2 does not find the shortest digits of these.
LONGER_DIGITS = [
    (1e23, "9.999999999999999e+22"),
    (7e22, "7.0000000000000004e+22"),
    (8e126, "7.999999999999999e+126"),
    (594012.05919, "594012.0591900001"),
    (42655.09015, "42655.090150000004"),
    (1726296945.550825, "1726296945.5508251"),
    (3.4e-35, "3.4000000000000003e-35"),
    (2.25e-265, "2.2500000000000001e-265"),
    (4.063190554800851e-255, "4.0631905548008512e-255"),
]


def float_text(value: float, style: FloatText) -> str:
    return dumps(value, style).decode()


@pytest.mark.parametrize(("value", "ruby", "json3"), TEXTS)
def test_each_rule_writes_its_own_text(value: float, ruby: str, json3: str) -> None:
    """
    `Float#to_s` turns to exponents at 1e16, or 1e15 for whole numbers, and below 1e-4; json 3 later and differently.
    """
    assert float_text(value, FloatText.RUBY) == ruby
    assert float_text(value, FloatText.JSON3) == json3


@pytest.mark.parametrize(("value", "json3"), LONGER_DIGITS)
def test_json_3_keeps_the_digits_of_its_algorithm(value: float, json3: str) -> None:
    """They are not the shortest, and still read back as the same double."""
    assert float_text(value, FloatText.JSON3) == json3
    assert float_text(-value, FloatText.JSON3) == "-" + json3
    assert float(json3) == value


@pytest.mark.parametrize("style", FloatText)
def test_every_text_reads_back_as_the_same_double(style: FloatText) -> None:
    """Bit for bit, over all exponents."""
    random = Random(1)
    values = [random_float(random) for _ in range(3000)]

    read_back = [float(float_text(value, style)) for value in values]

    assert struct.pack("3000d", *read_back) == struct.pack("3000d", *values)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("style", FloatText)
def test_what_json_cannot_carry_is_refused(value: float, style: FloatText) -> None:
    """NaN and the infinities have no text."""
    with pytest.raises(ArgumentValueError, match="JSON cannot carry"):
        float_text(value, style)
