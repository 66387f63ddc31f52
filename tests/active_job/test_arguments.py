"""The argument codec by itself: Python values, errors, and texts recorded from newer Rails."""

import copy
import json
import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidekiq_py.active_job import (
    Duration,
    GlobalID,
    IndifferentHash,
    Keywords,
    Rails,
    Range,
    RubyModule,
    RubyTime,
    Symbol,
    register_locator,
    register_serializer,
    symbolize,
)
from sidekiq_py.active_job.arguments import deserialize, serialize
from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError, ConfigError, DeserializationError
from sidekiq_py.wire.dialect import Dialect, FloatText
from sidekiq_py.wire.json_dialect import dumps, loads
from tests.active_job import samples

RAILS_6_0, RAILS_6_1, RAILS_7_1 = Rails.pinned("6.0"), Rails.pinned("6.1"), Rails.pinned("7.1")
RECORDED = Path(__file__).with_name("recorded") / "rails_7.2.json"


def written(value: Any, rails: Rails = RAILS_7_1) -> Any:
    """The JSON form of one argument."""
    return serialize([value], rails)[0]


def read(form: Any) -> Any:
    """The value of one argument's JSON form."""
    return deserialize([form])[0]


@pytest.mark.parametrize(("code", "value"), samples.COMMON + samples.SINCE_7_1)
def test_what_rails_7_2_wrote_is_the_python_value_and_goes_back_byte_for_byte(code, value):
    """Texts recorded from Rails 7.2, read and written again."""
    text = json.loads(RECORDED.read_text())[code].encode()

    [seen] = deserialize(loads(text))

    assert seen == value
    assert isinstance(seen, type(value))
    assert dumps(serialize([seen], RAILS_7_1), FloatText.RUBY) == text


def test_a_symbol_is_a_str_of_its_own_kind():
    """A symbol compares and hashes as its text, so keys are found either way, and shows what it is."""
    symbol = read(written(Symbol("low")))

    assert symbol == "low"
    assert repr(symbol) == "Symbol('low')"
    assert type(str(symbol)) is str
    assert read(written(symbolize({"id": 7})))["id"] == 7


def test_a_hash_tells_which_of_its_keys_were_symbols():
    """Symbol keys are listed behind all keys, also where there are none."""
    assert written({Symbol("a"): 1, "b": 2}) == {"a": 1, "b": 2, "_aj_symbol_keys": ["a"]}
    assert list(written({"b": 2})) == ["b", "_aj_symbol_keys"]


def test_a_hash_without_a_marker_has_string_keys():
    """Producers that are no Rails leave the marker out."""
    assert read({"a": {"b": 1}}) == {"a": {"b": 1}}
    assert type(next(iter(read({"a": 1})))) is str


def test_keywords_and_indifferent_hashes_keep_their_class():
    """The three kinds of hash stay apart, also inside of one another."""
    value = [Keywords(a=1), IndifferentHash(b=[IndifferentHash(c=Symbol("d"))])]

    [keywords, params] = read(written(value))

    assert (type(keywords), type(params), type(params["b"][0])) == (Keywords, IndifferentHash, IndifferentHash)
    assert repr(keywords) == "Keywords(a=1)"


def test_every_hash_in_an_indifferent_one_is_indifferent_too():
    """As in Ruby, where a HashWithIndifferentAccess converts what is stored in it."""
    plain = {"b": {"c": 1}, "d": [[symbolize({"e": {}})]]}

    of_hashes = IndifferentHash(b=IndifferentHash(c=1), d=[[IndifferentHash(e=IndifferentHash())]])

    assert written(IndifferentHash(plain)) == written(of_hashes)


def test_nanoseconds_survive_and_show():
    """A Python datetime holds microseconds; the rest is kept beside it."""
    form = {"_aj_serialized": "ActiveJob::Serializers::TimeSerializer", "value": "2024-01-01T00:00:00.123456789Z"}

    moment = read(form)

    assert isinstance(moment, RubyTime)
    assert (moment.microsecond, moment.nanosecond) == (123_456, 123_456_789)
    assert written(moment) == form


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
@pytest.mark.parametrize(
    "value",
    [
        RubyTime.of(datetime(2024, 1, 1, tzinfo=UTC), "DateTime", text="2024-01-01T00:00:00.000000001+00:00"),
        Duration(months=1),
        GlobalID("gid://shop/Invoice/1"),
        Symbol("a"),
    ],
)
def test_copies_write_the_same_text(value, duplicate):
    """Copying and pickling keep what a value remembers of Ruby."""
    twin = duplicate(value)

    assert type(twin) is type(value)
    assert written(twin) == written(value)


def test_what_is_computed_from_a_time_of_ruby_is_written_anew():
    """Arithmetic never writes the old text."""
    moment = read(written(datetime(2024, 1, 1, 12, tzinfo=UTC)))

    later = moment + timedelta(seconds=1.5)

    assert written(later)["value"] == "2024-01-01T12:00:01.500000000Z"
    assert written(moment.astimezone(ZoneInfo("Europe/Berlin")))["value"] == "2024-01-01T13:00:00.000000000+01:00"


def test_a_datetime_in_a_named_zone_is_a_time_with_zone():
    """Rails 7.0 (since 7.0.9) and later is told the zone; 6.1 takes the reader's own zone, for the same moment."""
    noon = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))

    assert written(noon) == {
        "_aj_serialized": "ActiveJob::Serializers::TimeWithZoneSerializer",
        "value": "2024-07-01T12:00:00.000000000+02:00",
        "time_zone": "Europe/Berlin",
    }
    assert written(noon, Rails.pinned("7.0.10")) == written(noon)
    assert "time_zone" not in written(noon, RAILS_6_1)
    assert read(written(noon)).tzinfo is ZoneInfo("Europe/Berlin")


def test_the_zone_utc_has_the_name_that_rails_gives_it():
    """In Ruby, `ActiveSupport::TimeZone["UTC"].tzinfo.name`."""
    assert written(datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("UTC")))["time_zone"] == "Etc/UTC"


def test_a_zone_that_this_machine_lacks_leaves_the_offset():
    """The moment is right, and the name of the zone goes back as it came."""
    form = {
        "_aj_serialized": "ActiveJob::Serializers::TimeWithZoneSerializer",
        "value": "2024-07-01T12:00:00.000000000+02:00",
        "time_zone": "Moon/Tranquility",
    }

    moment = read(form)

    assert moment == datetime(2024, 7, 1, 10, tzinfo=UTC)
    assert written(moment) == form


def test_rails_6_0_writes_whole_seconds():
    """Nine decimals came with 6.1."""
    assert written(datetime(2024, 1, 1, 0, 0, 0, 5, UTC), RAILS_6_0)["value"] == "2024-01-01T00:00:00Z"


def test_local_mean_time_goes_out_as_utc():
    """Ruby drops the seconds of an offset, and would read another moment."""
    moment = datetime(1880, 1, 1, tzinfo=timezone(timedelta(seconds=3208)))

    assert written(moment)["value"] == "1879-12-31T23:06:32.000000000Z"


def test_a_timedelta_is_a_duration_of_seconds():
    """Elapsed time has no days or months of the calendar; whole seconds are integers."""
    assert written(timedelta(days=1, hours=12)) == {
        "_aj_serialized": "ActiveJob::Serializers::DurationSerializer",
        "value": 129_600,
        "parts": [[{"_aj_serialized": "ActiveJob::Serializers::SymbolSerializer", "value": "seconds"}, 129_600]],
    }
    assert written(timedelta(milliseconds=-1500))["value"] == -1.5
    assert read(written(timedelta(days=1, hours=12))) == timedelta(days=1, hours=12)


def test_a_duration_keeps_its_parts():
    """A month is a calendar step in Ruby, and 2,629,746 seconds as a number."""
    month = read(written(Duration(months=1, days=2)))

    assert month.parts == {"months": 1, "days": 2}
    assert month == timedelta(seconds=2_629_746 + 172_800)
    assert repr(month) == "Duration(months=1, days=2)"
    with pytest.raises(TypeError, match="fortnights"):
        Duration(fortnights=1)


def test_a_decimal_is_a_string_before_rails_7_1():
    """There Rails itself loses the type; later it does not."""
    assert written(Decimal("12.50"), RAILS_6_1) == "12.5"
    assert read(written(Decimal("12.50"))) == Decimal("12.5")


@given(st.decimals(allow_nan=False, places=None))
def test_every_decimal_comes_back(number):
    """No digit is rounded away, whatever the context's precision."""
    assert read(written(number)) == number


def test_ranges_and_python_ranges():
    """A Ruby range has no step; Python's range is one that excludes its end."""
    assert read(written(range(1, 4))) == Range(1, 4, exclude_end=True)
    assert list(Range(1, 3)) == [1, 2, 3]
    assert 3 in Range(1, 3)
    assert 3 not in Range(1, 3, exclude_end=True)
    assert 99 in Range(1, None)


@pytest.mark.parametrize(
    ("value", "rails", "message"),
    [
        ({"_aj_symbol_keys": 1}, RAILS_7_1, "reserves for itself"),
        ([{"x": {"_aj_serialized": 1}}], RAILS_7_1, r"arguments\[0\]\[0\]\['x'\]"),
        (datetime(2024, 1, 1), RAILS_7_1, "without a zone"),
        (Range(1, 2), RAILS_6_1, "7.0"),
        ({"of": Range(1, 2)}, RAILS_6_1, r"arguments\[0\]\['of'\] is a range"),
        (range(0, 10, 2), RAILS_7_1, "no step"),
        (RubyModule("String"), RAILS_6_0, "6.1"),
    ],
)
def test_a_value_that_rails_could_not_read_is_refused_with_its_place(value, rails, message):
    """The error names the argument and what to do."""
    with pytest.raises(ArgumentValueError, match=message):
        serialize([value], rails)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((1, 2), "is of type tuple"),
        ({1, 2}, "is of type set"),
        ({1: 2}, r"pass str\(key\)"),
        ([{"a": object()}], r"arguments\[0\]\[0\]\['a'\] is of type object"),
        ([object()], r"or call register_serializer for its class"),
    ],
)
def test_a_type_that_active_job_lacks_is_refused_with_its_place(value, message):
    """As Rails' SerializationError, before anything is pushed."""
    with pytest.raises(ArgumentTypeError, match=message):
        serialize([value], RAILS_7_1)


def test_a_circle_is_refused():
    """Nesting ends where Ruby's JSON ends."""
    circle: list[Any] = []
    circle.append(circle)

    with pytest.raises(ArgumentValueError, match="nested deeper"):
        serialize([circle], RAILS_7_1)


@pytest.mark.parametrize(
    "form",
    [
        {"_aj_serialized": "NopeSerializer", "value": 1},
        {"_aj_serialized": None},
        {"_aj_serialized": "ActiveJob::Serializers::TimeSerializer", "value": "12024-01-01T00:00:00Z"},
        {"_aj_serialized": "ActiveJob::Serializers::TimeSerializer", "value": "2024-01-01T00:00:00"},
        {"_aj_serialized": "ActiveJob::Serializers::DateSerializer", "value": "-0044-03-15"},
        {"_aj_serialized": "ActiveJob::Serializers::DurationSerializer", "value": "1/3", "parts": []},
        {"_aj_serialized": "ActiveJob::Serializers::SymbolSerializer"},
        {"_aj_globalid": "nonsense"},
    ],
)
def test_an_argument_that_cannot_be_read_is_an_error_and_no_guess(form):
    """The job fails and is kept for a retry, with the place in the message."""
    with pytest.raises(DeserializationError, match=r"arguments\[1\] cannot be read"):
        deserialize([1, form])


def test_a_global_id_without_a_locator_stays_one():
    """Nothing is loaded unasked, and the URI goes back as it came."""
    form = {"_aj_globalid": "gid://shop/Billing::Invoice/a+b%2Fc?db=eu&x="}

    gid = read(form)

    assert (gid.app, gid.model_name, gid.model_id) == ("shop", "Billing::Invoice", "a b/c")
    assert gid.params == {"db": "eu", "x": ""}
    assert written(gid) == form


def test_a_global_id_by_its_parts():
    """Ids are escaped as CGI.escape does, queries as URI.encode_www_form, composite keys have slashes."""
    gid = GlobalID.create("shop", "Order", ["eu/1", 7], {"k": "*~ "})

    assert str(gid) == "gid://shop/Order/eu%2F1/7?k=*%7E+"
    assert gid.model_id == ("eu/1", "7")
    assert gid == GlobalID(str(gid))


@pytest.mark.parametrize(
    "parts", [("not ok", "A", 1), ("", "A", 1), ("shop", "", 1), ("shop", "A", ""), ("shop", "A", [])]
)
def test_a_global_id_needs_all_its_parts(parts):
    """An unsaved record, for one, has no id."""
    with pytest.raises(ValueError, match=r"app name|not a GlobalID"):
        GlobalID.create(*parts)


def test_a_locator_finds_records_of_its_app():
    """The app's name counts in any case; other apps' records stay GlobalIDs."""

    @register_locator("Shop")
    def find(gid):
        return ("record", gid.model_id)

    assert read({"_aj_globalid": "gid://shop/Invoice/1"}) == ("record", "1")
    assert isinstance(read({"_aj_globalid": "gid://other/Invoice/1"}), GlobalID)


def test_a_record_that_is_gone_fails_the_job():
    """What the locator raises is the cause."""

    @register_locator()
    def find(gid):
        raise LookupError("no invoice 1")

    with pytest.raises(DeserializationError, match="no invoice 1") as failure:
        read({"_aj_globalid": "gid://shop/Invoice/1"})
    assert isinstance(failure.value.__cause__, LookupError)


def test_a_record_that_names_itself_is_an_argument():
    """Any object with `to_global_id`."""

    class Invoice:
        def to_global_id(self):
            return GlobalID.create("shop", "Invoice", 3)

    assert written(Invoice()) == {"_aj_globalid": "gid://shop/Invoice/3"}


def test_a_serializer_of_the_apps_own():
    """Values of the class and its subclasses go out as that Ruby serializer writes them, and come back."""

    class Money:
        def __init__(self, cents):
            self.cents = cents

    class Salary(Money):
        pass

    register_serializer(
        "MoneySerializer",
        Money,
        to_fields=lambda m: {"cents": m.cents},
        from_fields=lambda fields: Money(fields["cents"]),
    )

    assert written([Salary(5)]) == [{"_aj_serialized": "MoneySerializer", "cents": 5}]
    assert read({"_aj_serialized": "MoneySerializer", "cents": 7}).cents == 7
    with pytest.raises(ConfigError, match="own serializer"):
        register_serializer("ActiveJob::Serializers::DateSerializer", date, to_fields=dict, from_fields=dict)


def test_the_rails_release_beside_a_sidekiq():
    """Sidekiq 6 stands beside Rails 6.1; where nothing is known, what all read is written."""
    assert Rails.beside(Dialect.pinned("6.4.1")) == RAILS_6_1
    assert Rails.beside(Dialect.pinned("8")) == RAILS_7_1
    assert Rails.beside(Dialect.unknown()) == RAILS_6_1
    assert Rails.pinned("7.1.3.4") == RAILS_7_1
    for text in ("5.2", "seven"):
        with pytest.raises(ConfigError, match="rails_version"):
            Rails.pinned(text)


arguments = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.text(st.characters(exclude_categories=["Cs"])).map(Symbol)
    | st.dates()
    | st.datetimes(timezones=st.just(UTC))
    | st.timedeltas(min_value=timedelta(days=-10_000), max_value=timedelta(days=10_000))
    | st.decimals(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abc_", max_size=3) | st.text("xyz", max_size=3).map(Symbol), inner, max_size=4)
        | st.builds(Range, inner, inner, st.booleans())
    ),
    max_leaves=12,
)


@given(arguments)
def test_any_value_comes_back_equal_through_real_json(value):
    """Written, dumped, parsed and read: the same value, and the same bytes when written again."""
    raw = dumps(serialize([value], RAILS_7_1), FloatText.RUBY)

    [seen] = deserialize(loads(raw))

    assert seen == value
    assert dumps(serialize([seen], RAILS_7_1), FloatText.RUBY) == raw
