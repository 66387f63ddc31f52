"""The job hash, without Ruby at hand."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError, JsonParseError, PayloadError
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.payload import (
    absolute_at,
    args_of,
    bulk_payload,
    call_item,
    dump,
    encode,
    for_queue,
    normalize,
    parse_job,
    prepare_repush,
    score_text,
)

NOW = 1700000000.123
JID = "0123456789abcdef01234567"
ITEM = {"class": "HardJob", "args": [1, "x"]}


def _normal(item: dict[str, Any], dialect: Dialect, **options: Any) -> dict[str, Any]:
    return normalize(item, dialect=dialect, now=NOW, jid=JID, **options)


def test_perform_async_is_written_in_each_release_s_order(dialect: Dialect) -> None:
    """Defaults in front since 6.0.4, args before class since 6.4, milliseconds since 8."""
    payload = _normal(call_item("HardJob", [1, "x"], dialect=dialect), dialect)

    text = for_queue(payload, dialect=dialect, now=NOW).decode()

    seconds = f'"jid":"{JID}","created_at":1700000000.123,"enqueued_at":1700000000.123}}'
    assert (
        text
        == {
            (6, 0, 0): '{"class":"HardJob","args":[1,"x"],"retry":true,"queue":"default",' + seconds,
            (6, 0, 4): '{"retry":true,"queue":"default","class":"HardJob","args":[1,"x"],' + seconds,
            (6, 4, 1): '{"retry":true,"queue":"default","args":[1,"x"],"class":"HardJob",' + seconds,
            (7, 3, 2): '{"retry":true,"queue":"default","args":[1,"x"],"class":"HardJob",' + seconds,
            (8, 1, 7): '{"retry":true,"queue":"default","args":[1,"x"],"class":"HardJob",'
            f'"jid":"{JID}","created_at":1700000000123,"enqueued_at":1700000000123}}',
        }[dialect.version]
    )


def test_a_scheduled_job_has_class_before_args_and_no_enqueued_at(sidekiq_8: Dialect) -> None:
    """The score is float seconds in every release."""
    payload = _normal(call_item("HardJob", [1, "x"], dialect=sidekiq_8, at=NOW + 60), sidekiq_8)

    score, member = encode(payload, dialect=sidekiq_8, now=NOW)

    assert score == "1700000060.123"
    assert member == (
        b'{"retry":true,"queue":"default","class":"HardJob","args":[1,"x"],"jid":"%b","created_at":1700000000123}'
        % JID.encode()
    )
    assert payload["at"] == NOW + 60


@pytest.mark.parametrize(
    ("version", "is_set", "is_scheduled", "args_first"),
    [
        ("6.0.4", False, False, False), ("6.0.4", True, False, True), ("6.0.4", True, True, False),
        ("6.0.4", False, True, False), ("6.3.0", False, False, False), ("6.3.0", True, True, True),
        ("6.4.0", False, False, True), ("6.4.0", False, True, False), ("8.1.7", True, True, True),
    ],
)  # fmt: skip
def test_the_order_of_class_and_args_follows_the_call(
    version: str, is_set: bool, is_scheduled: bool, args_first: bool
) -> None:
    """As each release's `Setter` builds the item."""
    options = {"queue": "low"} if is_set else None

    item = call_item("K", [], dialect=Dialect.pinned(version), set_options=options, at=1.0 if is_scheduled else None)

    assert [key for key in item if key in ("class", "args")] == (["args", "class"] if args_first else ["class", "args"])


def test_class_options_come_first_and_the_caller_s_values_win() -> None:
    """`retry` and `queue` keep their place whoever sets them."""
    dialect = Dialect.pinned("7")
    item = {"queue": "low", "tags": ["a"], **ITEM}

    payload = _normal(item, dialect, class_options={"backtrace": 5, "queue": "critical", "retry": 3})

    assert list(payload) == ["retry", "queue", "backtrace", "tags", "class", "args", "jid", "created_at"]
    assert (payload["retry"], payload["queue"]) == (3, "low")
    assert item == {"queue": "low", "tags": ["a"], **ITEM}


def test_a_null_retry_stays_null_since_6_0_4(dialect: Dialect) -> None:
    """Older releases put the default in its place."""
    payload = _normal({**ITEM, "retry": None}, dialect)

    assert payload["retry"] == (None if dialect.defaults_first else True)


def test_a_created_at_of_false_is_filled_in(dialect: Dialect) -> None:
    """As Ruby's `||=` does, which leaves a 0 alone."""
    payload = _normal({**ITEM, "created_at": False}, dialect)

    assert payload["created_at"] == dialect.stamp(NOW)
    repushed = prepare_repush({**payload, "created_at": False}, dialect=dialect, now=NOW, jid=JID)
    assert repushed["created_at"] == dialect.stamp(NOW)
    assert _normal({**ITEM, "created_at": 0}, dialect)["created_at"] == 0


def test_a_given_jid_and_created_at_are_kept(dialect: Dialect) -> None:
    """Retried and scheduled jobs keep both for life."""
    payload = _normal({**ITEM, "jid": "mine", "created_at": 1.5}, dialect)

    assert (payload["jid"], payload["created_at"]) == ("mine", 1.5)


def test_retry_for_becomes_whole_seconds() -> None:
    """Ruby's `to_i`, since 7.1.3; a timedelta is as good."""
    dialect = Dialect.pinned("8")

    assert _normal({**ITEM, "retry_for": 3600.9}, dialect)["retry_for"] == 3600
    assert _normal({**ITEM, "retry_for": timedelta(hours=48)}, dialect)["retry_for"] == 172800
    assert _normal(ITEM, dialect, class_options={"retry_for": 10.5})["retry_for"] == 10
    assert _normal({**ITEM, "retry_for": 3600.9}, Dialect.pinned("6"))["retry_for"] == 3600.9


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ([], "a job must be a dict with 'class' and 'args'"),
        ({"args": []}, "the job has no 'class'"),
        ({"class": "K"}, "the job has no 'args'"),
        ({"class": "K", "args": "x"}, r"args is 'x'; give a list, \[x\] for a single argument"),
        ({"class": "K", "args": (1,)}, r"args is \(1,\); give a list"),
        ({"class": "", "args": []}, "class is ''; give the name under which workers know the job"),
        ({"class": object, "args": []}, "class is <class 'object'>"),
        ({"class": "K", "args": [], b"at": 2}, "a job's keys must be strings, but b'at' is of type bytes"),
        ({**ITEM, "at": None}, "at is None; give epoch seconds"),
        ({**ITEM, "at": True}, "at is True"),
        ({**ITEM, "at": float("nan")}, "at is nan"),
        ({**ITEM, "at": datetime(2025, 1, 1, tzinfo=UTC)}, r"for a datetime its \.timestamp\(\)"),
        ({**ITEM, "tags": "a"}, "tags is 'a'; give a list of strings"),
        ({**ITEM, "tags": ""}, "tags is ''; give a list of strings"),
        ({**ITEM, "queue": ""}, "queue is ''; give the queue's name"),
        ({**ITEM, "queue": None}, "queue is None"),
        ({**ITEM, "jid": 5}, "jid is 5; give a string that no other job has"),
        ({**ITEM, "retry_for": 2_000_000_000}, "give a duration such as 48 \\* 3600, not a point in time"),
        ({**ITEM, "retry_for": "2h"}, "retry_for is '2h'; give seconds or a timedelta"),
    ],
)
def test_an_unusable_item_is_refused_with_advice(item: Any, message: str) -> None:
    """What Ruby answers with an ArgumentError, and what it would write wrongly."""
    with pytest.raises(PayloadError, match=message):
        _normal(item, Dialect.pinned("7"))


def test_a_value_that_is_not_json_is_named() -> None:
    """Options are checked when they are written."""
    payload = _normal({**ITEM, "tags": [datetime(2025, 1, 1, tzinfo=UTC)]}, Dialect.pinned("7"))

    with pytest.raises(ArgumentTypeError, match=r'payload\["tags"\]\[0\] is a datetime'):
        for_queue(payload, dialect=Dialect.pinned("7"), now=NOW)


@pytest.mark.parametrize("at", [{}, {"at": 4e9}])
def test_an_argument_that_is_not_json_is_named_without_the_payload(at: dict[str, Any]) -> None:
    """Callers know it as an argument, not as a part of the payload."""
    payload = _normal({**ITEM, "args": [1, {"when": datetime(2025, 1, 1, tzinfo=UTC)}], **at}, Dialect.pinned("7"))

    with pytest.raises(ArgumentTypeError, match=r'^args\[1\]\["when"\] is a datetime'):
        encode(payload, dialect=Dialect.pinned("7"), now=NOW)


def test_middleware_s_keys_stand_before_enqueued_at() -> None:
    """They are added between `normalize` and the push."""
    dialect = Dialect.pinned("7")
    payload = _normal(ITEM, dialect)
    payload["cattr"] = {"user": 1}

    text = for_queue(payload, dialect=dialect, now=NOW)

    assert text.endswith(b'"cattr":{"user":1},"enqueued_at":1700000000.123}')


def test_a_scheduled_job_loses_a_given_enqueued_at_since_7_1_2(dialect: Dialect) -> None:
    """Active Job sets it although nothing was enqueued yet."""
    payload = _normal({**ITEM, "at": 4e9, "enqueued_at": 5.5}, dialect)

    _, member = encode(payload, dialect=dialect, now=NOW)

    assert (b'"enqueued_at":5.5' in member) == (dialect.version < (7, 1, 2))


def test_a_bulk_job_is_stamped_before_middleware_up_to_6_4_0() -> None:
    """So middleware's keys come behind, and scheduled jobs keep the stamp."""
    for version, keys in (("6.4.0", ["enqueued_at", "at"]), ("6.4.1", ["at"])):
        dialect = Dialect.pinned(version)
        template = _normal({"class": "K", "args": [[1]]}, dialect)

        job = bulk_payload(template, [1], jid="b", dialect=dialect, now=NOW, at=5.0)

        assert list(job) == ["retry", "queue", "class", "args", "jid", "created_at", *keys]
        assert (job["args"], job["jid"]) == ([1], "b")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1700000000.5, "1700000000.5"), (4000000000, "4000000000"), (4e9, "4000000000.0"), (1e17, "1.0e+17"), (0, "0")],
)
def test_a_score_is_ruby_s_to_s(seconds: float, text: str) -> None:
    """An integer has no point; a float is `Float#to_s` beside every json gem."""
    assert score_text(seconds) == text


@pytest.mark.parametrize(
    ("interval", "at"),
    [(60, NOW + 60), (0.25, NOW + 0.25), (0, None), (-5, None), (1_000_000_000, None), (999_999_999, NOW + 999_999_999),
     (1_600_000_000, None), (1_800_000_000, 1_800_000_000.0), (NOW, None)],
)  # fmt: skip
def test_an_interval_is_told_from_a_moment_by_its_size(interval: float, at: float | None) -> None:
    """What is not in the future goes out at once."""
    assert absolute_at(interval, NOW) == at


@pytest.mark.parametrize("interval", [float("nan"), float("inf")])
def test_a_moment_that_is_no_number_is_refused(interval: float) -> None:
    """It would be a score that never comes due, or always is."""
    with pytest.raises(PayloadError, match="cannot be scheduled"):
        absolute_at(interval, NOW)


def test_a_payload_is_read_as_it_stands() -> None:
    """Keys that nobody knows, long integers and order are kept; nothing is added."""
    raw = b'{"zeta":1,"class":"K","big":123456789012345678901234567890}'

    payload = parse_job(raw)

    assert list(payload.items()) == [("zeta", 1), ("class", "K"), ("big", 123456789012345678901234567890)]
    assert dump(payload, dialect=Dialect.pinned("7")) == raw


@pytest.mark.parametrize("raw", [b'{"class":"K"}', b'{"class":"K","args":null}', b'{"class":"K","args":[]}'])
def test_missing_arguments_count_as_none(raw: bytes) -> None:
    """As in Ruby, where `perform` is then called with nothing."""
    assert args_of(parse_job(raw)) == []


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"2", "a job must be a JSON object, but this is a number"), (b"[1]", "this is an array"),
        (b'"x"', "this is a string"), (b"null", "this is null"), (b"true", "this is a boolean"),
        (b"{}", "the job's class is None"),
        (b'{"class":5}', "the job's class is 5, but it must be a name"), (b'{"class":""}', "the job's class is ''"),
        (b'{"class":"K","args":{}}', "the job's args are an object, but they must be an array"),
    ],
)  # fmt: skip
def test_json_that_is_no_job_says_which_rule_failed(raw: bytes, message: str) -> None:
    """Ruby loses the scalars without a trace."""
    with pytest.raises(PayloadError, match=message) as caught:
        parse_job(raw)

    assert type(caught.value) is PayloadError


def test_bytes_that_are_no_json_are_told_apart() -> None:
    """A `JsonParseError` is a `PayloadError` too."""
    with pytest.raises(JsonParseError):
        parse_job(b"{broken")


def test_a_promoted_job_has_retry_and_queue_in_front_since_6_0_4(dialect: Dialect) -> None:
    """Everything else keeps its order, `enqueued_at` its place."""
    raw = b'{"class":"K","queue":"low","enqueued_at":1.5,"args":[],"jid":"a","created_at":1.5,"x":{"y":[1e-7]}}'

    payload = prepare_repush(parse_job(raw), dialect=dialect, now=NOW, jid=JID)
    for_queue(payload, dialect=dialect, now=NOW)

    rest = ["class", "enqueued_at", "args", "jid", "created_at", "x"]
    if dialect.defaults_first:
        assert list(payload) == ["retry", "queue", *rest]
    else:
        assert list(payload) == ["class", "queue", *rest[1:], "retry"]
    assert (payload["queue"], payload["retry"], payload["enqueued_at"]) == ("low", True, dialect.stamp(NOW))


@pytest.mark.parametrize(
    ("queue", "pushed"),
    [("low", "low"), (5, "5"), (10**5000, "1" + "0" * 5000), ("", "default"), (None, "default"), ([], "default")],
    ids=lambda value: "" if isinstance(value, int) else repr(value)[:9],
)
def test_a_promoted_job_with_an_unusable_queue_goes_to_the_default_one(queue: Any, pushed: str) -> None:
    """Ruby raises between the two sets and loses the job."""
    repushed = prepare_repush({"class": "K", "queue": queue}, dialect=Dialect.pinned("7"), now=NOW, jid="a")

    assert repushed["queue"] == pushed


def test_a_promoted_job_gets_what_it_lacks() -> None:
    """An id if one is handed in, and its `created_at`."""
    dialect = Dialect.pinned("8")

    assert prepare_repush({"class": "K"}, dialect=dialect, now=NOW, jid="new") == {
        "retry": True, "queue": "default", "class": "K", "jid": "new", "created_at": 1700000000123,
    }  # fmt: skip
    assert prepare_repush({"class": "K", "retry_for": 1.5}, dialect=dialect, now=NOW, jid=JID)["retry_for"] == 1


def test_a_stored_at_is_heeded_if_it_is_a_number() -> None:
    """Ruby's client schedules such a job again; anything else would stop it."""
    dialect = Dialect.pinned("7")

    assert prepare_repush({"class": "K", "at": 4e9}, dialect=dialect, now=NOW, jid=JID)["at"] == 4e9
    assert "at" not in prepare_repush({"class": "K", "at": "soon"}, dialect=dialect, now=NOW, jid=JID)


def test_a_payload_that_can_be_read_and_not_written_is_told() -> None:
    """`1E400` is infinite; Ruby loses such a job when it fails."""
    payload = parse_job(b'{"class":"K","args":[1E400]}')

    with pytest.raises(ArgumentValueError, match=r'payload\["args"\]\[0\] is inf'):
        dump(payload, dialect=Dialect.pinned("7"))
