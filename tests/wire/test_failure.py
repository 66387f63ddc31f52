"""What a failed attempt leaves, without Ruby at hand."""

import base64
import json
import zlib
from typing import Any

import pytest

from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.failure import (
    compress_backtrace,
    decrement_for_manual_retry,
    expand_backtrace,
    record_failure,
    scrub_message,
)

NOW = 1700000000.123
LINES = ["a.py:1", "b.py:2", "c.py:3"]


def _fail(payload: dict[str, Any], dialect: Dialect, **changes: Any) -> int:
    told: dict[str, Any] = {
        "error_class": "ValueError", "error_message": "boom", "backtrace": LINES, "queue": "fetched", "now": NOW,
    }  # fmt: skip
    return record_failure(payload, dialect=dialect, **(told | changes))


def _stored(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


def test_the_first_failure_appends_its_fields(dialect: Dialect) -> None:
    """The queue is the one where it was fetched, in its old place."""
    payload = {"queue": "old", "class": "K", "retry": True, "zeta": 1}

    count = _fail(payload, dialect)

    assert count == 0
    assert list(payload.items()) == [
        ("queue", "fetched"), ("class", "K"), ("retry", True), ("zeta", 1), ("error_message", "boom"),
        ("error_class", "ValueError"), ("failed_at", dialect.stamp(NOW)), ("retry_count", 0),
    ]  # fmt: skip


def test_later_failures_update_in_place_and_append_retried_at_once(dialect: Dialect) -> None:
    """After the backtrace, if there is one."""
    payload: dict[str, Any] = {"queue": "q", "retry": True, "backtrace": 2}

    counts = [_fail(payload, dialect, error_message=str(turn)) for turn in range(3)]

    assert counts == [0, 1, 2]
    assert list(payload)[3:] == [
        "error_message", "error_class", "failed_at", "retry_count", "error_backtrace", "retried_at",
    ]  # fmt: skip
    assert (payload["error_message"], payload["retry_count"]) == ("2", 2)


def test_the_retry_queue_comes_before_the_fetched_one(sidekiq_6: Dialect) -> None:
    """Also when the payload had no queue at all."""
    payload = {"retry": 3, "retry_queue": "slow"}

    _fail(payload, sidekiq_6)

    assert payload["queue"] == "slow"


@pytest.mark.parametrize(
    ("payload", "option", "kept"),
    [
        ({}, 3, 3),
        ({"retry": None}, 3, 3),
        ({"retry": 0}, 3, 0),
        ({"retry": False}, 3, False),
        ({"retry": None}, None, None),
    ],
)
def test_an_absent_retry_is_taken_from_the_declared_job(
    payload: dict[str, Any], option: object, kept: object, sidekiq_6: Dialect
) -> None:
    """If the class is known; a given value stays, false and 0 too."""
    _fail(payload, sidekiq_6, retry_option=option)

    assert payload["retry"] == kept
    assert next(iter(payload)) == "retry"


@pytest.mark.parametrize(
    ("option", "kept"),
    [
        (True, LINES),
        (2, LINES[:2]),
        (0, []),
        ("2", LINES[:2]),
        ("x", []),
        (False, None),
        (None, None),
        (-1, LINES[:-1]),
    ],
)
def test_the_backtrace_is_kept_as_far_as_the_payload_asks(option: object, kept: object, sidekiq_6: Dialect) -> None:
    """True for all lines, a number for the first."""
    payload = {"retry": True, "backtrace": option}

    _fail(payload, sidekiq_6)

    assert expand_backtrace(payload.get("error_backtrace")) == kept


def test_an_error_without_a_backtrace_is_recorded_all_the_same(sidekiq_6: Dialect) -> None:
    """Ruby's retry fails there."""
    payload = {"retry": True, "backtrace": True}

    _fail(payload, sidekiq_6, backtrace=None)

    assert "error_backtrace" not in payload


@pytest.mark.parametrize(
    ("stored", "count"),
    [("3", 4), ("+3", 4), (2.0, 3), ("x", 1), ([], 1), (True, 2), (False, 0), (None, 0), ("9" * 5000, 10**5000)],
    ids=lambda value: "" if isinstance(value, int) else repr(value)[:9],
)
def test_a_foreign_retry_count_does_not_stop_the_retry(stored: object, count: int, sidekiq_6: Dialect) -> None:
    """Ruby raises on a text and so loses the job."""
    assert _fail({"retry": True, "retry_count": stored}, sidekiq_6) == count


def test_a_message_is_cut_and_scrubbed() -> None:
    """10,000 characters, whatever their bytes; what UTF-8 cannot carry becomes U+FFFD."""
    assert scrub_message("é" * 10_001) == "é" * 10_000
    assert scrub_message(b"broken \xe9 text".decode(errors="surrogateescape")) == "broken \ufffd text"
    assert scrub_message("a\ud800\udfff😀") == "a\ufffd\ufffd😀"


@pytest.mark.parametrize(
    ("raw", "scrubbed"),
    [
        (b"cut off \xf0\x9f\x98", "cut off \ufffd"),
        (b"\xe2\x82 and \xe2\x82\xff", "\ufffd and \ufffd\ufffd"),
        (b"\xed\xa0\x80\xc0\xaf", "\ufffd" * 5),
    ],
)
def test_bytes_of_a_character_that_was_cut_off_become_one(raw: bytes, scrubbed: str) -> None:
    """Run in Ruby: `raw.force_encoding("UTF-8").scrub`."""
    assert scrub_message(raw.decode(errors="surrogateescape")) == scrubbed


def test_the_error_class_is_scrubbed_too(sidekiq_6: Dialect) -> None:
    """Nothing that an exception says may make the payload unwritable."""
    payload: dict[str, Any] = {"retry": True, "backtrace": True}

    _fail(payload, sidekiq_6, error_class="Odd\ud800", backtrace=["line \udcff"])

    assert payload["error_class"] == "Odd\ufffd"
    assert expand_backtrace(payload["error_backtrace"]) == ["line \ufffd"]


def test_the_backtrace_s_base64_has_line_breaks_up_to_7_2_0() -> None:
    """60 characters a line, and one break at the end."""
    lines = [f"app/{number}.py:{number * number}" for number in range(40)]

    mime = compress_backtrace(lines, dialect=Dialect.pinned("7.2.0"))
    strict = compress_backtrace(lines, dialect=Dialect.pinned("7.2.1"))

    assert mime.replace("\n", "") == strict
    assert mime.endswith("\n")
    assert {len(line) for line in mime.split("\n")[:-2]} == {60}
    assert json.loads(zlib.decompress(base64.b64decode(strict, validate=True))) == lines


def test_before_6_0_2_the_backtrace_is_an_array() -> None:
    """Ruby read arrays then, and wrote what only Ruby reads."""
    payload: dict[str, Any] = {"retry": True, "backtrace": 1}

    _fail(payload, Dialect.pinned("6.0.1"))

    assert payload["error_backtrace"] == ["a.py:1"]


@pytest.mark.parametrize(
    "value",
    [
        None, 5, {}, [1], "", "not base64!", base64.b64encode(b"not zlib").decode(), "é", "\ud800",
        _stored(b"\x04\bMarshal"), _stored(b'{"a":1}'), _stored(b"[1]"), _stored(b"[" + b" " * 50_000_000),
        _stored(json.dumps(LINES).encode())[:-12],
    ],
    ids=range(14),
)  # fmt: skip
def test_a_backtrace_that_cannot_be_read_is_none(value: object) -> None:
    """Whatever stands there, nothing is raised, and a small text does not swell without bound."""
    assert expand_backtrace(value) is None


@pytest.mark.parametrize("version", ["6.0.2", "7.2.0", "8.1.7"])
def test_every_release_s_backtrace_is_read(version: str) -> None:
    """And the arrays of old."""
    assert expand_backtrace(compress_backtrace(LINES, dialect=Dialect.pinned(version))) == LINES
    assert expand_backtrace(LINES) == LINES


@pytest.mark.parametrize(("stored", "count"), [(3, 2), (0, -1), ("3", "3"), (None, None)])
def test_a_retry_by_hand_is_free(stored: object, count: object) -> None:
    """Below zero too, as in Ruby; what is no integer is left."""
    payload = {"retry_count": stored}

    decrement_for_manual_retry(payload)
    decrement_for_manual_retry(absent := {"class": "K"})

    assert payload == {"retry_count": count}
    assert absent == {"class": "K"}
