"""One running job, written and read."""

import pytest

from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.work import WorkEntry, dump_work, parse_work

PAYLOAD = b'{"class":"K","args":["\xc3\xa9",123456789012345678901234567890]}'


def test_the_payload_is_a_text_since_6_0_2() -> None:
    """The bytes that were fetched, as a JSON string."""
    text = dump_work("default", PAYLOAD, 1700000000, dialect=Dialect.pinned("7"))

    assert text.decode() == (
        '{"queue":"default","payload":"{\\"class\\":\\"K\\",\\"args\\":[\\"é\\",123456789012345678901234567890]}",'
        '"run_at":1700000000}'
    )


def test_the_payload_was_an_object_before() -> None:
    """The same bytes, spliced in."""
    text = dump_work("default", PAYLOAD, 1700000000, dialect=Dialect.pinned("6.0.1"))

    assert text == b'{"queue":"default","payload":' + PAYLOAD + b',"run_at":1700000000}'


@pytest.mark.parametrize("version", ["6.0.1", "6.4.1", "8.1.7"])
def test_what_is_written_is_read(version: str) -> None:
    """By readers of either form."""
    text = dump_work("low", PAYLOAD, 1700000000, dialect=Dialect.pinned(version))

    assert parse_work(text) == WorkEntry("low", PAYLOAD, 1700000000)


def test_a_payload_that_is_not_utf_8_is_shown_as_far_as_it_goes() -> None:
    """It is being refused just then; the beat must not fail for it."""
    text = dump_work("low", b'{"a":"\xff"}', 1, dialect=Dialect.pinned("7"))

    assert parse_work(text) == WorkEntry("low", '{"a":"\ufffd"}'.encode(), 1)


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{", b'{"queue":1,"payload":"x"}', b'{"payload":"x"}', b'{"queue":"q"}',
     b'{"queue":"q","payload":[1]}', b'{"queue":"q","payload":{"a":1E400}}'],
)  # fmt: skip
def test_what_is_no_entry_is_none(raw: bytes) -> None:
    """A damaged entry does not stop a reader."""
    assert parse_work(raw) is None


def test_an_entry_without_a_time_is_read() -> None:
    """Its start is then unknown."""
    assert parse_work(b'{"queue":"q","payload":"{}","run_at":"now"}') == WorkEntry("q", b"{}", None)
