"""What a job may carry, and what a refusal says."""

import dataclasses
import datetime
import decimal
import enum
import uuid
from collections import OrderedDict
from typing import Any

import pytest

from sidekiq_py.errors import ArgumentError, ArgumentTypeError, ArgumentValueError
from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.json_dialect import check_args, dump_args
from sidekiq_py.wire.json_writer import loosen


class Colour(enum.Enum):
    """An Enum of strings."""

    RED = "red"


class Size(enum.IntEnum):
    """An Enum that is an int."""

    BIG = 3


class Name(str):
    """A subclass of str."""

    __slots__ = ()


@dataclasses.dataclass
class Point:
    """A dataclass."""

    x: int


MOMENT = datetime.datetime(2025, 2, 14, tzinfo=datetime.UTC)
CIRCLE: list[Any] = []
CIRCLE.append([CIRCLE])

REFUSALS = [
    ([{"when": MOMENT}], TypeError, 'args[0]["when"] is a datetime; pass when.isoformat() or an epoch number'),
    ([MOMENT.date()], TypeError, "args[0] is a date; pass day.isoformat()"),
    ([datetime.timedelta(1)], TypeError, "args[0] is a timedelta; pass .total_seconds()"),
    ([1, (2, 3)], TypeError, "args[1] is a tuple; pass list(...), which is what the job would receive"),
    ([{1}], TypeError, "args[0] is a set; pass sorted(...), as JSON has no sets"),
    ([[b"x"]], TypeError, "args[0][0] is bytes; pass .decode() or base64.b64encode(...).decode()"),
    ([decimal.Decimal("1.1")], TypeError, "args[0] is a Decimal; pass str(...), as a float would lose digits"),
    ([uuid.UUID(int=1)], TypeError, "args[0] is a UUID; pass str(...)"),
    ([Colour.RED], TypeError, "args[0] is a Colour, an Enum; pass .value"),
    ([Size.BIG], TypeError, "args[0] is a Size, an Enum; pass .value"),
    ([Point(1)], TypeError, "args[0] is a Point, a dataclass; pass dataclasses.asdict(...)"),
    ([Name("x")], TypeError, "args[0] is a Name, a kind of str; pass str(...), as Ruby would read a plain str"),
    ([OrderedDict()], TypeError, "args[0] is an OrderedDict, a kind of dict; pass dict(...)"),
    ([object()], TypeError, "args[0] is an object; pass strings, numbers, booleans, None, lists and dicts"),
    ([{1: 2}], TypeError, "args[0] has the key 1, an int; JSON's keys are strings, pass str(key)"),
    ([{None: 2}], TypeError, "args[0] has the key None, a NoneType"),
    ([{Name("k"): 2}], TypeError, "args[0] has a key that is a Name, a kind of str"),
    ([float("nan")], ValueError, "args[0] is nan, which JSON cannot carry; pass None or a number"),
    ([{"a": [float("-inf")]}], ValueError, 'args[0]["a"][0] is -inf, which JSON cannot carry'),
    (["a\ud800b"], ValueError, "args[0] contains the lone surrogate '\\ud800', which UTF-8 cannot carry"),
    ([{'k"\udfff': 1}], ValueError, "args[0] contains the lone surrogate '\\udfff'"),
    ([{'say "hi"': {2}}], TypeError, 'args[0]["say \\"hi\\""] is a set'),
    ([CIRCLE], ValueError, "args[0][0][0] contains itself; JSON has no references"),
    ((1, 2), TypeError, "args is a tuple; pass list(...)"),
    ("abc", TypeError, "args is a str; pass a list, [x] for a single argument"),
    ({"a": 1}, TypeError, "args is a dict; pass a list"),
]


@pytest.mark.parametrize(("args", "kind", "message"), REFUSALS)
def test_a_refusal_names_the_place_and_says_what_to_do(args: Any, kind: type[Exception], message: str) -> None:
    """`check_args` and `dump_args` say the same."""
    with pytest.raises(kind) as checked:
        check_args(args)
    with pytest.raises(kind) as dumped:
        dump_args(args, FloatText.RUBY)

    assert str(checked.value).startswith(message)
    assert str(dumped.value) == str(checked.value)
    assert isinstance(checked.value, ArgumentError)
    assert checked.value.place in message


@pytest.mark.parametrize(
    "args", [[], [None, True, 1, 1.5, "é", [], {}], [{"a": [{"b": 2**70}]}], [1e300, 5e-324, -0.0]]
)
def test_plain_json_passes(args: list[Any]) -> None:
    """Exact types only, of any size."""
    check_args(args)


def test_one_list_in_two_places_is_no_circle() -> None:
    """It is written twice."""
    shared = [1]

    check_args([shared, {"a": shared}])

    assert dump_args([shared, shared], FloatText.RUBY) == b"[[1],[1]]"


def test_the_place_can_be_named_otherwise() -> None:
    """Bulk pushes name the job."""
    with pytest.raises(ArgumentTypeError, match=r"^args\[7\]\[0\] is a tuple"):
        check_args([()], "args[7]")


def test_with_the_check_off_values_become_what_ruby_s_to_s_would_make_of_them() -> None:
    """Subclasses turn plain, tuples and sets into lists, keys and orphans into strings."""
    args = [
        (1, {2}),
        Colour.RED,
        Size.BIG,
        Name("x"),
        b"\xc3\xa9",
        decimal.Decimal("1.10"),
        {None: 1, 2: 3, True: [MOMENT]},
    ]

    assert loosen(args) == [
        [1, [2]], "red", 3, "x", "é", "1.10", {"": 1, "2": 3, "true": ["2025-02-14 00:00:00+00:00"]},
    ]  # fmt: skip
    assert dump_args(loosen(args), FloatText.RUBY)


def test_what_cannot_be_loosened_is_refused_by_the_writer() -> None:
    """NaN and circles, as in Ruby."""
    for bad in (float("nan"), CIRCLE):
        with pytest.raises(ArgumentValueError):
            dump_args(loosen([bad]), FloatText.RUBY)
