"""
Object serializers: Active Job's own, and those that a program registers to match its Ruby ones.

Each writes a value as `{"_aj_serialized": "<Ruby class>", …}`. Source: Rails 6.0 to 8.1, activejob/serializers.
"""

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from sidekiq_py.active_job.rails import Rails
from sidekiq_py.active_job.times import RubyTime, parse_date, parse_time, time_text
from sidekiq_py.active_job.values import Duration, Number, Range, RubyModule, Symbol
from sidekiq_py.errors import ConfigError

SERIALIZED_KEY = "_aj_serialized"

Fields = dict[str, Any]
Convert = Callable[[Any], Any]

_PREFIX = "ActiveJob::Serializers::"


class CustomSerializer(NamedTuple):
    """A serializer registered with `register_serializer`."""

    ruby_class: str
    kind: type
    to_fields: Callable[[Any], Mapping[str, Any]]
    from_fields: Callable[[Fields], Any]


_custom: dict[str, CustomSerializer] = {}


def register_serializer(
    ruby_class: str,
    kind: type,
    *,
    to_fields: Callable[[Any], Mapping[str, Any]],
    from_fields: Callable[[Fields], Any],
) -> None:
    """
    Serialise values of *kind* as the Ruby side's own serializer does.

        register_serializer("MoneySerializer", Money,
            to_fields=lambda money: {"amount": money.cents, "currency": money.currency},
            from_fields=lambda fields: Money(fields["amount"], fields["currency"]))

    Args:
        ruby_class: The serializer's class in Ruby, a subclass of `ActiveJob::Serializers::ObjectSerializer`.
        kind: The Python class, including its subclasses.
        to_fields, from_fields: Convert between a value and the fields that the Ruby serializer's `serialize` passes to
            `super`: plain JSON values.

    Raises:
        ConfigError: *ruby_class* is one of Active Job's own.
    """
    if ruby_class.startswith(_PREFIX):
        raise ConfigError(f"{ruby_class} is Active Job's own serializer; name the one of your app")
    _custom[ruby_class] = CustomSerializer(ruby_class, kind, to_fields, from_fields)


def clear_serializers() -> None:
    """Forget all registered serializers."""
    _custom.clear()


def custom_serializer_for(value: Any) -> CustomSerializer | None:
    """The registered serializer for *value*; one for its own class takes precedence over those of its bases."""
    if not _custom:
        return None
    fitting = [custom for custom in _custom.values() if isinstance(value, custom.kind)]
    return min(fitting, key=lambda custom: type(value).__mro__.index(custom.kind), default=None)


def write_object(value: Any, rails: Rails, write: Convert) -> Any:
    """
    The JSON form of a value that is not plain JSON.

    Args:
        write: Writes a nested value.

    Raises:
        TypeError: There is no serializer for it; the message continues "… is of type X,".
        ValueError: It cannot be serialised; the message continues the argument's position.
    """
    for kind, writer in _WRITERS:
        if isinstance(value, kind):
            return writer(value, rails, write)
    raise TypeError(
        "which no serializer of Active Job knows; pass a plain value (str(x), x.value, list(x)), "
        "or call register_serializer for its class"
    )


def read_object(fields: Fields, read: Convert) -> Any:
    """
    The value of an object with `_aj_serialized`.

    Args:
        read: Reads a nested value.

    Raises:
        Exception: The object is invalid; the type depends on what is wrong.
    """
    name = fields[SERIALIZED_KEY]
    reader = _READERS.get(name)
    if reader is not None:
        return reader(fields, read)
    custom = _custom.get(name) if isinstance(name, str) else None
    if custom is None:
        raise LookupError(f"serializer {name} is not known; register it with register_serializer")
    return custom.from_fields({key: value for key, value in fields.items() if key != SERIALIZED_KEY})


def tagged(ruby_class: str, **fields: Any) -> Fields:
    """An object of one of Active Job's serializers."""
    return {SERIALIZED_KEY: f"{_PREFIX}{ruby_class}", **fields}


def big_decimal_text(number: Decimal) -> str:
    """`BigDecimal#to_s` as ActiveSupport defines it: no exponent, at least one decimal, no trailing zeros."""
    if number.is_nan():
        return "NaN"
    if number.is_infinite():
        return "-Infinity" if number < 0 else "Infinity"
    whole, _, decimals = f"{number:f}".partition(".")
    return f"{whole}.{decimals.rstrip('0') or '0'}"


def _write_time(moment: datetime, rails: Rails, write: Convert) -> Fields:
    if moment.utcoffset() is None:
        raise ValueError("is a datetime without a zone; make it aware, as datetime.now(timezone.utc) is")
    zone = getattr(moment.tzinfo, "key", None)
    if zone == "UTC":
        zone = "Etc/UTC"  # what Rails writes for its zone of the name UTC
    text = kind = None
    if isinstance(moment, RubyTime):
        text, kind, zone = moment.text, moment.kind, moment.time_zone or (None if moment.text else zone)
    # A datetime in a named zone corresponds to a TimeWithZone in Rails.
    kind = kind or ("TimeWithZone" if zone else "Time")
    fields = tagged(f"{kind}Serializer", value=text or time_text(moment, rails.fraction_digits))
    if kind == "TimeWithZone" and zone and (rails.has_time_zone or text):
        fields["time_zone"] = zone
    return fields


def _write_duration(duration: timedelta, rails: Rails, write: Convert) -> Fields:
    if isinstance(duration, Duration):
        value, parts = duration.value, duration.parts
    else:
        # Only seconds: in Ruby a day or a month is a step in the calendar, but a timedelta is elapsed time.
        seconds: Number = duration.total_seconds() if duration.microseconds else duration // timedelta(seconds=1)
        value, parts = seconds, {"seconds": seconds}
    pairs = [[write(Symbol(unit)), number] for unit, number in parts.items()]
    return tagged("DurationSerializer", value=value, parts=pairs)


def _write_decimal(number: Decimal, rails: Rails, write: Convert) -> Any:
    text = big_decimal_text(number)
    return tagged("BigDecimalSerializer", value=text) if rails.has_big_decimal else text


def _write_range(interval: Range | range, rails: Rails, write: Convert) -> Fields:
    if isinstance(interval, range):
        if interval.step != 1:
            raise ValueError(f"is {interval!r}, and a Ruby range has no step; pass list(...) of it")
        interval = Range(interval.start, interval.stop, exclude_end=True)
    if not rails.has_range:
        raise ValueError("is a range, which Rails reads from 7.0 on; pass two arguments, or set rails_version")
    return tagged(
        "RangeSerializer", begin=write(interval.begin), end=write(interval.end), exclude_end=interval.exclude_end
    )


def _write_module(module: RubyModule, rails: Rails, write: Convert) -> Fields:
    if not rails.has_module:
        raise ValueError("is a class, which Rails reads from 6.1 on; pass its name")
    return tagged("ModuleSerializer", value=module.name)


def _read_duration(fields: Fields, read: Convert) -> Duration:
    value, parts = fields["value"], read(fields["parts"])
    if type(value) not in (int, float):
        raise ValueError(f"a Duration has the value {value!r}; expected a number of seconds")
    return Duration.of(value, {str(unit): number for unit, number in parts})


def _read_zoned_time(fields: Fields, read: Convert) -> RubyTime:
    return parse_time(fields["value"], "TimeWithZone", fields.get("time_zone"))


def _read_range(fields: Fields, read: Convert) -> Range:
    return Range(read(fields["begin"]), read(fields["end"]), bool(fields["exclude_end"]))


_WRITERS: list[tuple[type | tuple[type, ...], Callable[[Any, Rails, Convert], Any]]] = [
    (Symbol, lambda symbol, rails, write: tagged("SymbolSerializer", value=str(symbol))),
    (datetime, _write_time),
    (date, lambda day, rails, write: tagged("DateSerializer", value=day.isoformat())),
    (timedelta, _write_duration),
    (Decimal, _write_decimal),
    ((Range, range), _write_range),
    (RubyModule, _write_module),
]
_READERS: dict[str, Callable[[Fields, Convert], Any]] = {
    f"{_PREFIX}SymbolSerializer": lambda fields, read: Symbol(fields["value"]),
    f"{_PREFIX}DurationSerializer": _read_duration,
    f"{_PREFIX}DateSerializer": lambda fields, read: parse_date(fields["value"]),
    f"{_PREFIX}DateTimeSerializer": lambda fields, read: parse_time(fields["value"], "DateTime"),
    f"{_PREFIX}TimeSerializer": lambda fields, read: parse_time(fields["value"], "Time"),
    f"{_PREFIX}TimeWithZoneSerializer": _read_zoned_time,
    f"{_PREFIX}ModuleSerializer": lambda fields, read: RubyModule(fields["value"]),
    f"{_PREFIX}RangeSerializer": _read_range,
    f"{_PREFIX}BigDecimalSerializer": lambda fields, read: Decimal(fields["value"]),
}
