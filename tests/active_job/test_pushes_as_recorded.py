"""
What Active Job pushed with each recorded release of Sidekiq (Rails 6.0, 6.1 and 7.2), pushed again in Python.

Ids and times differ; how they are spelled does not.
"""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import sidekiq_py as sidekiq
from interop_tests.support.recordings import Recording, named, recordings
from sidekiq_py import active_job
from sidekiq_py.active_job import (
    Duration,
    GlobalID,
    IndifferentHash,
    Keywords,
    Rails,
    Range,
    RubyModule,
    Symbol,
    symbolize,
)
from sidekiq_py.active_job.arguments import deserialize, serialize
from sidekiq_py.errors import SidekiqError
from sidekiq_py.testing import fake
from sidekiq_py.testing.performing import perform
from sidekiq_py.wire.json_dialect import dumps, loads

BERLIN = ZoneInfo("Europe/Berlin")
NEXT_CENTURY = datetime(2100, 1, 1, tzinfo=UTC)
OPTIONS = {"retry": 3, "backtrace": True}

Push = Callable[..., object]
SITUATION = "active_job_"


def echo(*arguments: Any, **options: Any) -> Push:
    """`EchoJob.perform_later` with these."""
    return partial(active_job.perform_later, "EchoJob", *arguments, **options)


def all_later(*jobs: tuple[tuple[Any, ...], dict[str, Any]]) -> Push:
    """`ActiveJob.perform_all_later` of jobs, each with its options."""

    def push(**options: Any) -> object:
        return active_job.perform_all_later([active_job.new_job(*job, **more, **options) for job, more in jobs])

    return push


PUSHES: dict[str, Push] = {
    "argument_nothing": echo(),
    "argument_json_types": echo(1, -2.5, "text", None, True, False, 10**30),
    "argument_array": echo([1, [2, Symbol("three")]]),
    "argument_symbol": echo(Symbol("a_symbol")),
    "argument_date": echo(date(2024, 2, 29)),
    "argument_time": echo(datetime(2024, 2, 29, 13, 5, 9, 123_456, tzinfo=timezone(timedelta(hours=2)))),
    "argument_time_with_zone": echo(datetime(2024, 2, 29, 13, 5, 9, 500_000, tzinfo=BERLIN)),
    "argument_duration": echo(Duration(days=2, hours=3)),
    "argument_duration_of_months": echo(Duration(months=1)),
    "argument_module": echo(RubyModule("Billing")),
    "argument_class": echo(RubyModule("Billing::InvoiceJob")),
    "argument_big_decimal": echo(Decimal("12.340")),
    "argument_global_id": echo(GlobalID("gid://fixtures/FixtureRecord/42")),
    "argument_global_id_with_special_characters": echo(GlobalID.create("fixtures", "FixtureRecord", "a b/c?d")),
    "argument_hash_with_string_keys": echo({"b": 1, "a": {"c": Symbol("d")}}),
    "argument_hash_with_symbol_keys": echo([symbolize({"b": 1, "a": symbolize({"c": Symbol("d")})})]),
    "argument_hash_with_mixed_keys": echo([{"text": 1, Symbol("symbol"): 2}]),
    "argument_hash_with_indifferent_access": echo([IndifferentHash(b=1, a=IndifferentHash(c=2))]),
    "argument_keyword_arguments": echo(1, Keywords(name="value", list=[1, Symbol("two")])),
    "argument_range": echo(Range(1, 5)),
    "set_wait": echo(1, wait=60),
    "set_wait_duration": echo(1, wait=timedelta(hours=1.5)),
    "set_wait_until": echo(1, wait_until=NEXT_CENTURY + timedelta(seconds=0.5)),
    "set_wait_until_with_zone": echo(1, wait_until=NEXT_CENTURY.astimezone(BERLIN)),
    "set_queue_and_priority": echo(1, queue="low", priority=5),
    "locale_and_time_zone": echo(1, locale="de", timezone="Europe/Berlin"),
    "sidekiq_options": partial(active_job.perform_later, "EchoOptionsJob", 1, queue="mailers", sidekiq_options=OPTIONS),
    "perform_all_later": all_later(
        (("EchoJob", 1), {}),
        (("EchoJob", 2), {}),
        (("EchoOptionsJob", 3), {"queue": "mailers", "sidekiq_options": OPTIONS}),
    ),
    "perform_all_later_with_wait": all_later((("EchoJob", 1), {"wait": 60}), (("EchoJob", 2), {"wait": 120})),
    "perform_all_later_with_past_wait": all_later((("EchoJob", 1), {"wait": -60})),
}
ALL = [found for found in recordings() if found.situation.startswith(SITUATION) and "active_job" in found.input]
RAILS = {found.sidekiq: found.input["active_job"] for found in ALL}
CALLS = [found for found in ALL if found.situation.removeprefix(SITUATION) in PUSHES]
# 6.0.3 writes no nanoseconds and 6.1 does, of which Python's own datetime holds the first six digits.
_MASKS: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r'"[0-9a-f]{24}"'), '"JID"'),
    (re.compile(r'"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"'), '"UUID"'),
    (re.compile(r'(?<=_at":)\d{10}\.\d+'), "SECONDS"),
    (re.compile(r'(?<=_at":)\d{13}'), "MILLISECONDS"),
    (re.compile(r'(?<=_at":)"[^"]*"'), lambda match: re.sub(r"\d", "0", match[0])),
    (re.compile(r"(?<=13:05:09\.123456)\d{3}"), "000"),
]


def masked(raw: bytes) -> str:
    """A payload's text without ids and times, digit by digit where form counts."""
    text = raw.decode()
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text


def payloads_of(found: Recording) -> list[bytes]:
    """All that was pushed, to whatever queue or set."""
    return [
        member
        for name, held in found.database.items()
        if name.startswith(("queue:", "sched"))
        for member in held.members
    ]


@pytest.mark.parametrize("found", named(*[found for found in CALLS if "refused" not in found.input]))
def test_a_push_has_the_bytes_that_rails_pushed(found: Recording) -> None:
    """The inner job object, its arguments, and Sidekiq's keys around it."""
    sidekiq.configure(sidekiq_version=found.sidekiq)

    with fake() as enqueued:
        PUSHES[found.situation.removeprefix(SITUATION)](rails_version=found.input["active_job"])

    assert sorted(masked(job.raw) for job in enqueued) == sorted(masked(raw) for raw in payloads_of(found))


@pytest.mark.parametrize("found", named(*[found for found in CALLS if "refused" in found.input]))
def test_an_argument_that_rails_refuses_is_refused(found: Recording) -> None:
    """A module before 6.1, a range before 7.0: that release of Rails cannot read them either."""
    sidekiq.configure(sidekiq_version=found.sidekiq)

    with fake() as enqueued, pytest.raises(SidekiqError):
        PUSHES[found.situation.removeprefix(SITUATION)](rails_version=found.input["active_job"])

    assert len(enqueued) == 0


@pytest.mark.parametrize("found", named(*[found for found in ALL if payloads_of(found)]))
def test_arguments_come_out_as_they_came_in(found: Recording) -> None:
    """Read as values and written back for the same Rails: not a byte changes, including nanoseconds."""
    rails = Rails.pinned(found.input["active_job"])

    for raw in payloads_of(found):
        arguments = loads(raw)["args"][0]["arguments"]
        again = serialize(deserialize(arguments), rails)
        assert dumps(again, found.dialect.float_text) == dumps(arguments, found.dialect.float_text)


class FixtureError(Exception):
    """What Rails' job raised."""


@pytest.mark.parametrize("found", named(*[found for found in recordings() if found.situation == "active_job_retry_on"]))
def test_a_job_that_retries_itself_leaves_what_rails_left(found: Recording) -> None:
    """A new job with the old `job_id` in `schedule`, one more execution, and the exception counted."""
    sidekiq.configure(sidekiq_version=found.sidekiq)

    @active_job.active_job(
        "ActiveRetryJob",
        retry_on={FixtureError: {"wait": 30, "attempts": 3, "jitter": 0}},
        rails_version=RAILS[found.sidekiq],
    )
    def fail(message: str) -> None:
        raise FixtureError(message)

    with fake() as enqueued:
        perform(found.before, sidekiq.server_middleware, is_scheduled=False)

    [job] = enqueued
    assert masked(job.raw) == masked(found.members[0])


@pytest.mark.parametrize(
    "found", named(*[found for found in recordings() if found.situation == "active_job_discard_on"])
)
def test_a_job_that_is_discarded_leaves_nothing(found: Recording) -> None:
    """As in Rails."""
    sidekiq.configure(sidekiq_version=found.sidekiq)

    @active_job.active_job("ActiveDiscardJob", discard_on=FixtureError)
    def fail() -> None:
        raise FixtureError

    with fake() as enqueued:
        perform(found.before, sidekiq.server_middleware, is_scheduled=False)

    assert len(enqueued) == 0
    assert set(found.database) == {"queues"}
