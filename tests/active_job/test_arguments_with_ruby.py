"""The argument codec against real Active Job: what Ruby writes we read, what we write Ruby reads."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from sidekiq_py.active_job import Duration, GlobalID, IndifferentHash, Keywords, Rails, Range, Symbol, symbolize
from sidekiq_py.active_job.arguments import deserialize, serialize
from sidekiq_py.errors import ArgumentValueError
from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.json_dialect import dumps, loads
from tests.active_job import samples

pytestmark = pytest.mark.ruby


def text_of(value, rails):
    """What Python puts on the wire for one argument."""
    return dumps(serialize([value], rails), FloatText.RUBY).decode()


@pytest.fixture
def rails(ruby):
    """The rules of the Rails at the other end."""
    return Rails.pinned(ruby.rails_version)


def assert_round_trip(ruby, rails, code, value):
    """Ruby writes it, Python reads its value and writes the same bytes, Ruby reads an equal value of the same class."""
    text = ruby.ask("serialize", code=code)["json"]

    [seen] = deserialize(loads(text.encode()))

    assert seen == value
    assert isinstance(seen, type(value))
    assert text_of(seen, rails) == text
    assert ruby.ask("equal", code=code, json=text_of(seen, rails))["equal"]


@pytest.mark.parametrize(("code", "value"), samples.COMMON)
def test_a_value_makes_the_round_trip(ruby, rails, code, value):
    """Every type that Rails 6.1 carries."""
    assert_round_trip(ruby, rails, code, value)


def test_what_rails_7_1_added_goes_to_that_rails_alone(ruby, rails):
    """A newer Rails gets the new types; an older one gets what it can read, or an error names the version."""
    if rails.version >= (7, 1):
        for code, value in samples.SINCE_7_1:
            assert_round_trip(ruby, rails, code, value)
        return
    assert ruby.ask("equal", code="'12.5'", json=text_of(Decimal("12.50"), rails))["equal"]
    with pytest.raises(ArgumentValueError, match=r"7\.0"):
        text_of(Range(1, 3), rails)
    with pytest.raises(AssertionError, match="RangeSerializer is not known"):
        ruby.ask("equal", code="1..3", json=text_of(Range(1, 3), Rails.pinned("7.1")))


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (Symbol("low"), ":low"),
        (symbolize({"a": [1]}), "{a: [1]}"),
        ({"a": {"b": None}}, "{'a' => {'b' => nil}}"),
        (Keywords(a=1), "keywords(a: 1).last"),
        (IndifferentHash(a=1), "{a: 1}.with_indifferent_access"),
        (date(2024, 2, 29), "Date.new(2024, 2, 29)"),
        (datetime(2024, 2, 29, 12, 0, 0, 5, UTC), "Time.utc(2024, 2, 29, 12, 0, 0.000005r)"),
        (datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin")), "Time.zone.local(2024, 7, 1, 12)"),
        (timedelta(hours=36), "36.hours"),
        (timedelta(seconds=1.25), "1.25.seconds"),
        (Duration(months=1, days=2), "1.month + 2.days"),
        (GlobalID.create("shop", "Invoice", "a b/ü*~?"), "Invoice.new('a b/ü*~?')"),
    ],
)
def test_a_value_made_in_python_is_the_same_in_ruby(ruby, rails, value, code):
    """Nothing has to come from Ruby first."""
    answer = ruby.ask("equal", code=code, json=text_of(value, rails))

    assert answer["equal"], answer["seen"]


def test_hashes_in_an_indifferent_one_have_the_bytes_of_ruby(ruby, rails):
    """Ruby converts a hash when it stores it there."""
    code = "{b: {c: 1}, d: [[{e: {}}]]}.with_indifferent_access"
    value = IndifferentHash(b={"c": 1}, d=[[symbolize({"e": {}})]])

    assert text_of(value, rails) == ruby.ask("serialize", code=code)["json"]
