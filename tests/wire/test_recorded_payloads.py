"""What each release of real Sidekiq wrote, byte for byte, from the recordings that are checked in."""

import base64
from typing import Any

import pytest

from interop_tests.support.recordings import Recording, named, recordings, recordings_of
from sidekiq_py.errors import JsonParseError
from sidekiq_py.wire.failure import UNPRINTABLE_ERROR, decrement_for_manual_retry, record_failure
from sidekiq_py.wire.json_dialect import loads
from sidekiq_py.wire.payload import (
    absolute_at,
    call_item,
    dump,
    encode,
    for_queue,
    normalize,
    parse_job,
    prepare_repush,
)
from sidekiq_py.wire.process_info import PYTHON_LABEL, CapsuleFacts, ProcessFacts, info_json
from sidekiq_py.wire.work import dump_work

FIRST_JID = "0eff39bf4ff29ad640023d1a"
# Symbols, and keys that are no strings, are Ruby's own.
RUBY_ONLY = ("perform_async_symbols_", "perform_async_numbers_as_keys")


def _is_single_push(found: Recording) -> bool:
    given = found.input
    is_call = given.get("call") in ("perform_async", "perform_in", "perform_at", "push")
    is_more = any(key.startswith("middleware_") or key in ("current", "defaults", "refused") for key in given)
    return is_call and not is_more and not found.situation.startswith((*RUBY_ONLY, "queue_of_no_name"))


ALL = recordings()
SINGLE_PUSHES = [found for found in ALL if _is_single_push(found)]
REPUSHES = [found for found in ALL if found.input.get("step") in ("promote", "add_to_queue", "retry") and found.members]
RUNS = [found for found in ALL if found.input.get("step") == "run" and found.key in ("retry", "dead")]
MALFORMED = [found for found in RUNS if found.situation.startswith("malformed_")]
FAILURES = [found for found in RUNS if found.members and found not in MALFORMED]
# What a job's class says where its payload says nothing.
HEARTBEATS = (
    "heartbeat_info",
    "heartbeat_again",
    "heartbeat_weights",
    "heartbeat_random",
    "heartbeat_capsules",
    "heartbeat_embedded",
)
CLASS_RETRY = {"RetryThreeJob": 3}


def _item(found: Recording) -> dict[str, Any]:
    given, dialect = found.input, found.dialect
    if given["call"] == "push":
        return dict(given["item"])
    set_options = dict(given["set"]) if "set" in given else None
    waits = [set_options.pop(name) for name in ("wait_until", "wait") if name in set_options] if set_options else []
    interval = given.get("interval", waits[0] if waits else None)
    at = None if interval is None else absolute_at(interval, given["now"])
    is_scheduled = interval is not None
    return call_item(
        given["job"], given["args"], dialect=dialect, set_options=set_options, at=at, is_scheduled=is_scheduled
    )


def _pushed(payload: dict[str, Any], found: Recording, now: float) -> bytes:
    if "at" in payload:
        return encode(payload, dialect=found.dialect, now=now)[1]
    return for_queue(payload, dialect=found.dialect, now=now)


@pytest.mark.parametrize("found", named(*SINGLE_PUSHES))
def test_a_push_leaves_ruby_s_bytes(found: Recording) -> None:
    """Every recorded call of one job."""
    now = found.input["now"]
    [member] = found.members
    payload = normalize(
        _item(found), dialect=found.dialect, now=now, jid=FIRST_JID, class_options=found.input.get("options")
    )

    pushed = _pushed(payload, found, now)

    if found.situation == "perform_async_while_the_clock_runs":
        assert _without_times(pushed) == _without_times(member)
    else:
        assert pushed == member


@pytest.mark.parametrize("found", named(*REPUSHES))
def test_a_move_to_the_queue_leaves_ruby_s_bytes(found: Recording) -> None:
    """By the poller and by the API, for payloads in Ruby's own and in foreign spelling."""
    payload = parse_job(found.before)
    if found.input["step"] == "retry":
        decrement_for_manual_retry(payload)

    repushed = prepare_repush(payload, dialect=found.dialect, now=found.input["now"], jid="a")

    assert [_pushed(repushed, found, found.input["now"])] == found.members


@pytest.mark.parametrize("found", named(*FAILURES))
def test_a_failure_leaves_ruby_s_bytes(found: Recording) -> None:
    """In `retry` and in `dead`."""
    payload, error = loads(found.before), found.input["error"]

    record_failure(
        payload,
        error_class=error["class"],
        error_message=_message(error["message"]),
        backtrace=error["backtrace"],
        queue=found.input["queue"],
        dialect=found.dialect,
        now=found.input["now"],
        retry_option=CLASS_RETRY.get(payload.get("class"), True),
    )

    assert [dump(payload, dialect=found.dialect)] == found.members


@pytest.mark.parametrize("found", named(*MALFORMED))
def test_what_ruby_cannot_read_we_cannot_read(found: Recording) -> None:
    """It ends in `dead`, untouched."""
    with pytest.raises(JsonParseError):
        parse_job(found.before)

    assert found.members == [found.before]


@pytest.mark.parametrize("found", named(*[found for found in ALL if found.situation in HEARTBEATS]))
def test_a_beat_s_info_is_ruby_s(found: Recording) -> None:
    """Except for the label that identifies our processes."""
    given = found.input
    capsules = [("default", given["concurrency"], given["queues"])]
    capsules += [(name, count, queues) for name, (queues, count) in given.get("capsules", {}).items()]
    facts = ProcessFacts(
        hostname="fixture-host",
        started_at=given.get("started_at", given["now"]),
        pid=4242,
        tag=given["tag"],
        capsules=tuple(_capsule(*capsule) for capsule in capsules),
        labels=(),
        identity="fixture-host:4242:5eed5eed5eed",
        version=found.sidekiq,
        embedded=given.get("embedded", False),
    )

    info = info_json(facts, found.dialect)

    assert info.replace(f'"{PYTHON_LABEL}"'.encode(), b"") == dict(found.members)[b"info"]


@pytest.mark.parametrize("found", named(*recordings_of("heartbeat_work")))
def test_a_running_job_s_entry_is_ruby_s(found: Recording) -> None:
    """With the payload as the text that was fetched."""
    [(_, entry)] = found.members
    [payload] = found.input["before"]

    assert dump_work("default", payload.encode(), 1700000000, dialect=found.dialect) == entry


def _capsule(name: str, concurrency: int, queues: list[Any]) -> CapsuleFacts:
    pairs = [(queue, 0) if isinstance(queue, str) else (queue[0], int(queue[1])) for queue in queues]
    weights = dict(pairs)
    mode = "strict" if not any(weights.values()) else "random" if set(weights.values()) == {1} else "weighted"
    return CapsuleFacts(name, concurrency, mode, weights)


def _without_times(raw: bytes) -> dict[str, Any]:
    return {key: value for key, value in loads(raw).items() if not key.endswith("_at")}


def _message(given: Any) -> str:
    if given is None:
        return UNPRINTABLE_ERROR
    return base64.b64decode(given["base64"]).decode(errors="surrogateescape") if isinstance(given, dict) else str(given)
