"""What real Sidekiq wrote, byte for byte, from the recordings that are checked in."""

import base64
from typing import Any

import pytest

from interop_tests.support.recordings import Recording, recording, recordings
from sidekiq_py.errors import JsonParseError
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.failure import UNPRINTABLE_ERROR, decrement_for_manual_retry, record_failure
from sidekiq_py.wire.json_dialect import loads
from sidekiq_py.wire.payload import (
    absolute_at,
    call_item,
    dump,
    for_queue,
    for_schedule,
    normalize,
    parse_job,
    prepare_repush,
)
from sidekiq_py.wire.process_info import PYTHON_LABEL, CapsuleFacts, ProcessFacts, info_json
from sidekiq_py.wire.work import dump_work

RELEASE = Dialect.pinned("6.4.1")
FIRST_JID = "0eff39bf4ff29ad640023d1a"


def _named(found: list[Recording]) -> list[Any]:
    assert found
    return [pytest.param(situation, id=situation.situation) for situation in found]


def _is_single_push(found: Recording) -> bool:
    is_call = found.input.get("call") in ("perform_async", "perform_in", "perform_at", "push")
    return is_call and "middleware_adds" not in found.input


SINGLE_PUSHES = [found for found in recordings() if _is_single_push(found)]
REPUSHES = [found for found in recordings() if found.input.get("step") in ("promote", "add_to_queue", "retry")]
RUNS = [found for found in recordings() if found.input.get("step") == "run" and found.key in ("retry", "dead")]
MALFORMED = [found for found in RUNS if found.situation.startswith("malformed_")]
FAILURES = [found for found in RUNS if found.members and found not in MALFORMED]


def _item(told: dict[str, Any]) -> dict[str, Any]:
    if told["call"] == "push":
        return dict(told["item"])
    set_options = dict(told["set"]) if "set" in told else None
    wait = (set_options or {}).pop("wait", None) or (set_options or {}).pop("wait_until", None)
    interval = told.get("interval", wait)
    at = None if interval is None else absolute_at(interval, told["now"])
    is_scheduled = interval is not None
    return call_item(
        told["job"], told["args"], dialect=RELEASE, set_options=set_options, at=at, is_scheduled=is_scheduled
    )


def _pushed(payload: dict[str, Any], now: float) -> bytes:
    if "at" in payload:
        return for_schedule(payload, dialect=RELEASE)[1]
    return for_queue(payload, dialect=RELEASE, now=now)


@pytest.mark.parametrize("found", _named(SINGLE_PUSHES))
def test_a_push_leaves_ruby_s_bytes(found: Recording) -> None:
    """Every recorded call of one job."""
    now = found.input["now"]
    [member] = found.members
    pushed_at = loads(member).get("enqueued_at", now)  # the clock ran on in one of them

    payload = normalize(
        _item(found.input), dialect=RELEASE, now=now, jid=FIRST_JID, class_options=found.input.get("options")
    )

    assert _pushed(payload, pushed_at) == member


@pytest.mark.parametrize("found", _named(REPUSHES))
def test_a_move_to_the_queue_leaves_ruby_s_bytes(found: Recording) -> None:
    """By the poller and by the API, for payloads in Ruby's and in foreign spelling."""
    payload = parse_job(found.before)
    if found.input["step"] == "retry":
        decrement_for_manual_retry(payload)

    repushed = prepare_repush(payload, dialect=RELEASE, now=found.input["now"])

    assert [_pushed(repushed, found.input["now"])] == found.members


@pytest.mark.parametrize("found", _named(FAILURES))
def test_a_failure_leaves_ruby_s_bytes(found: Recording) -> None:
    """In `retry` and in `dead`."""
    payload, error = loads(found.before), found.input["error"]

    record_failure(
        payload,
        error_class=error["class"],
        error_message=_message(error["message"]),
        backtrace=error["backtrace"],
        queue=found.input["queue"],
        dialect=RELEASE,
        now=found.input["now"],
        retry_option=3,
    )

    assert [dump(payload, dialect=RELEASE)] == found.members


@pytest.mark.parametrize("found", _named(MALFORMED))
def test_what_ruby_cannot_read_we_cannot_read(found: Recording) -> None:
    """It lies in `dead`, untouched."""
    with pytest.raises(JsonParseError):
        parse_job(found.before)

    assert found.members == [found.before]


def test_a_beat_s_info_is_ruby_s() -> None:
    """But for the label by which our processes are known."""
    found = recording("heartbeat_info")
    weights = dict.fromkeys(found.input["queues"], 0)
    facts = ProcessFacts(
        hostname="fixture-host",
        started_at=found.input["now"],
        pid=4242,
        tag=found.input["tag"],
        capsules=(CapsuleFacts("default", found.input["concurrency"], "strict", weights),),
        labels=(),
        identity="fixture-host:4242:5eed5eed5eed",
        version="6.4.1",
    )

    info = info_json(facts, RELEASE)

    assert info.replace(f'"{PYTHON_LABEL}"'.encode(), b"") == dict(found.members)[b"info"]


def test_a_running_job_s_entry_is_ruby_s() -> None:
    """The payload as the text that was fetched."""
    found = recording("heartbeat_work")
    [(_, entry)] = found.members
    [payload] = found.input["before"]

    assert dump_work("default", payload.encode(), 1700000000, dialect=RELEASE) == entry


def _message(told: Any) -> str:
    if told is None:
        return UNPRINTABLE_ERROR
    return base64.b64decode(told["base64"]).decode(errors="surrogateescape") if isinstance(told, dict) else str(told)
