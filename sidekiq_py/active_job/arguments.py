"""
Convert a job's `arguments` between Python values and the JSON that Active Job writes for them.

    serialize([Symbol("low"), date(2024, 2, 29)], rails)   -> the list for the job object
    deserialize(job_object["arguments"])                   -> Python values

Source: Rails 6.0 to 8.1, activejob/arguments.rb.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sidekiq_py.active_job.global_id import GlobalID, Identified, locate
from sidekiq_py.active_job.rails import Rails
from sidekiq_py.active_job.serializers import SERIALIZED_KEY, custom_serializer_for, read_object, write_object
from sidekiq_py.active_job.values import IndifferentHash, Keywords, Symbol
from sidekiq_py.errors import ArgumentError, ArgumentTypeError, ArgumentValueError, DeserializationError

GLOBALID_KEY = "_aj_globalid"
SYMBOL_KEYS_KEY = "_aj_symbol_keys"
KEYWORDS_KEY = "_aj_ruby2_keywords"
INDIFFERENT_KEY = "_aj_hash_with_indifferent_access"
RESERVED_KEYS = frozenset({GLOBALID_KEY, SYMBOL_KEYS_KEY, KEYWORDS_KEY, INDIFFERENT_KEY, SERIALIZED_KEY})

# The payload, its `args`, the job object and its `arguments` take four of Ruby's hundred levels.
_MAX_DEPTH = 96
_PLAIN = frozenset({str, int, float, bool, type(None)})


def serialize(arguments: Sequence[Any], rails: Rails) -> list[Any]:
    """
    The JSON values for *arguments*.

    Raises:
        ArgumentTypeError: Active Job cannot serialise a type; the message names the argument's position.
        ArgumentValueError: An argument has a reserved key, is a naive datetime, or cannot be read by that Rails
            release.
    """
    writer = _Writer(rails)
    return [writer.write(argument, f"arguments[{index}]", 0) for index, argument in enumerate(arguments)]


def deserialize(serialized: Sequence[Any]) -> list[Any]:
    """
    The values that Active Job wrote, in the same order.

    Raises:
        DeserializationError: One of them cannot be read, or its record could not be found.
    """
    values = []
    for index, argument in enumerate(serialized):
        try:
            values.append(_read(argument))
        except Exception as error:
            raise DeserializationError(f"arguments[{index}] cannot be read: {type(error).__name__}: {error}") from error
    return values


class _Writer:
    def __init__(self, rails: Rails) -> None:
        self._rails = rails

    def write(self, value: Any, place: str, depth: int, *, is_indifferent: bool = False) -> Any:
        """The form of a value; in a HashWithIndifferentAccess, each hash is one too, however deep inside."""
        if type(value) in _PLAIN:
            return value
        if depth > _MAX_DEPTH:
            raise ArgumentValueError(f"{place} is nested deeper than JSON in Ruby may be; flatten it", place)
        if type(value) is list:
            return [
                self.write(item, f"{place}[{index}]", depth + 1, is_indifferent=is_indifferent)
                for index, item in enumerate(value)
            ]
        if isinstance(value, dict):
            return self._write_hash(value, place, depth, is_indifferent or isinstance(value, IndifferentHash))
        return self._write_object(value, place, depth)

    def _write_hash(self, value: dict[Any, Any], place: str, depth: int, is_indifferent: bool) -> dict[str, Any]:
        written = {}
        for key, item in value.items():
            _check_key(key, place)
            written[str(key)] = self.write(item, f"{place}[{str(key)!r}]", depth + 1, is_indifferent=is_indifferent)
        if is_indifferent:
            written[INDIFFERENT_KEY] = True
        else:
            marker = KEYWORDS_KEY if isinstance(value, Keywords) else SYMBOL_KEYS_KEY
            written[marker] = [str(key) for key in value if isinstance(key, Symbol)]
        return written

    def _write_object(self, value: Any, place: str, depth: int) -> Any:
        custom = custom_serializer_for(value)
        if custom:
            return {SERIALIZED_KEY: custom.ruby_class, **custom.to_fields(value)}
        if isinstance(value, Identified):
            return {GLOBALID_KEY: str(value.to_global_id())}
        if isinstance(value, str) and not isinstance(value, Symbol):
            return str.__str__(value)
        inner: Callable[[Any], Any] = lambda item: self.write(item, f"{place} (inside)", depth + 1)  # noqa: E731
        try:
            return write_object(value, self._rails, inner)
        except ArgumentError:
            raise
        except TypeError as error:
            raise ArgumentTypeError(f"{place} is of type {type(value).__name__}, {error}", place) from None
        except ValueError as error:
            raise ArgumentValueError(f"{place} {error}", place) from None


def _check_key(key: Any, place: str) -> None:
    if not isinstance(key, str):
        raise ArgumentTypeError(
            f"{place} has the key {key!r} of type {type(key).__name__}; keys are strings or Symbols, pass str(key)",
            place,
        )
    if key in RESERVED_KEYS:
        raise ArgumentValueError(f"{place} has the key {key!r}, which Active Job reserves for itself; rename it", place)


def _read(value: Any) -> Any:
    if type(value) is list:
        return [_read(item) for item in value]
    if type(value) is not dict:
        return value
    if len(value) == 1 and GLOBALID_KEY in value:
        return locate(GlobalID(value[GLOBALID_KEY]))
    if SERIALIZED_KEY in value:
        return read_object(value, _read)
    return _read_hash(value)


def _read_hash(value: dict[str, Any]) -> dict[str, Any]:
    items = {key: _read(item) for key, item in value.items()}
    if items.pop(INDIFFERENT_KEY, None):
        return IndifferentHash(items)
    symbol_keys = items.pop(SYMBOL_KEYS_KEY, None)
    if symbol_keys is not None:
        return _with_symbols(items, symbol_keys)
    keywords = items.pop(KEYWORDS_KEY, None)
    if keywords is None:
        return items
    hash_of_keywords = Keywords()
    hash_of_keywords.update(_with_symbols(items, keywords))
    return hash_of_keywords


def _with_symbols(items: dict[str, Any], symbol_keys: list[str]) -> dict[str, Any]:
    return {Symbol(key) if key in symbol_keys else key: item for key, item in items.items()}
