"""Values as Ruby writes them and as Python means them; each pair is one argument of a job."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from sidekiq_py.active_job import Duration, GlobalID, IndifferentHash, Keywords, Range, RubyModule, Symbol

BERLIN = ZoneInfo("Europe/Berlin")

# What every Rails since 6.1 knows.
COMMON: list[tuple[str, Any]] = [
    ("nil", None),
    ("true", True),
    ("2 ** 80", 2**80),
    ("1.5", 1.5),
    ("1e20", 1e20),
    ("'Zoë 🎈'", "Zoë 🎈"),
    ("[1, [:a, []]]", [1, [Symbol("a"), []]]),
    (":low", Symbol("low")),
    (":'with space'", Symbol("with space")),
    ("{}", {}),
    ("{'a' => 1}", {"a": 1}),
    ("{a: 1, 'b' => {c: :d}}", {Symbol("a"): 1, "b": {Symbol("c"): Symbol("d")}}),
    ("{'x' => [{y: 1}]}.with_indifferent_access", IndifferentHash(x=[IndifferentHash(y=1)])),
    ("keywords(a: 1, b: [:c]).last", Keywords(a=1, b=[Symbol("c")])),
    ("keywords(**{'s' => 1}, a: 2).last", Keywords(s=1, a=2)),
    ("3.days", Duration(days=3)),
    ("1.5.hours", Duration(hours=1.5)),
    ("1.year + 2.months - 3.seconds", Duration(years=1, months=2, seconds=-3)),
    ("0.minutes", Duration(minutes=0)),
    ("(1.0 / 3).seconds", Duration(seconds=1 / 3)),
    ("Date.new(2024, 2, 29)", date(2024, 2, 29)),
    ("Date.new(1, 1, 1)", date(1, 1, 1)),
    ("Time.utc(2024, 2, 29, 12, 30, 5.25r)", datetime(2024, 2, 29, 12, 30, 5, 250_000, UTC)),
    ("Time.at(1700000000, 123456789, :nsec).utc", datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC)),
    ("Time.at(0).getlocal('+05:30')", datetime(1970, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))),
    ("Time.at(0).getlocal('-00:30')", datetime(1969, 12, 31, 23, 30, tzinfo=timezone(-timedelta(minutes=30)))),
    ("Time.at(0).getlocal('+00:00')", datetime(1970, 1, 1, tzinfo=UTC)),
    ("Time.at(-1).utc", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ("DateTime.new(2024, 1, 2, 3, 4, 5.123456789r, '+02:00')", datetime(2024, 1, 2, 1, 4, 5, 123_456, UTC)),
    ("DateTime.new(2024, 1, 2)", datetime(2024, 1, 2, tzinfo=UTC)),
    ("Time.zone.at(1700000000.5)", datetime(2023, 11, 14, 23, 13, 20, 500_000, BERLIN)),
    ("Time.find_zone('London').local(2024, 1, 2)", datetime(2024, 1, 2, tzinfo=ZoneInfo("Europe/London"))),
    ("String", RubyModule("String")),
    ("ActiveJob::Arguments", RubyModule("ActiveJob::Arguments")),
    ("Invoice.new('5')", GlobalID("gid://shop/Invoice/5")),
    ("Invoice.new('a b/ü*~?')", GlobalID.create("shop", "Invoice", "a b/ü*~?")),
    (
        "[Invoice.new('1'), {of: Invoice.new('2')}]",
        [GlobalID("gid://shop/Invoice/1"), {Symbol("of"): GlobalID("gid://shop/Invoice/2")}],
    ),
]

# Rails 7.1 and later; recorded in `recorded/`, and asked of Ruby where such a Rails is installed.
SINCE_7_1: list[tuple[str, Any]] = [
    ("1..3", Range(1, 3)),
    ("(1...)", Range(1, None, exclude_end=True)),
    ("(nil..'z')", Range(None, "z")),
    ("Date.new(2024, 1, 1)...Date.new(2024, 2, 1)", Range(date(2024, 1, 1), date(2024, 2, 1), exclude_end=True)),
    ("(:a..:b)", Range(Symbol("a"), Symbol("b"))),
    ("BigDecimal('12.50')", Decimal("12.5")),
    ("BigDecimal('-0')", Decimal("-0")),
    ("BigDecimal('1e30')", Decimal("1e30")),
    ("BigDecimal('0.000000000000000000000000000000123456789')", Decimal("1.23456789e-31")),
    ("BigDecimal('Infinity')", Decimal("Infinity")),
    ("Time.zone.at(1700000000.5)", datetime(2023, 11, 14, 23, 13, 20, 500_000, BERLIN)),
    ("Time.find_zone('UTC').local(2024, 1, 2)", datetime(2024, 1, 2, tzinfo=UTC)),
    (
        "Time.find_zone('Eastern Time (US & Canada)').local(2024, 7, 2)",
        datetime(2024, 7, 2, tzinfo=ZoneInfo("America/New_York")),
    ),
]
