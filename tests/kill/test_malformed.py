"""Whatever stands in a queue: no process crashes on it, and nothing vanishes."""

import json
import random
import string
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.kill.conftest import Fleet
from tests.support.ledger import STARTED, job_text, push_jobs, stock
from tests.support.waiting import eventually

PUSHED_AT = 1760000000.123456


def random_value(draw: random.Random, depth: int = 0) -> Any:
    """Some JSON value."""
    kind = draw.randrange(9 if depth < 3 else 6)
    if kind == 0:
        return None
    if kind == 1:
        return draw.choice([True, False])
    if kind == 2:
        return draw.choice([0, -1, 10**30, -(2**63), 2**64, draw.randrange(10**6)])
    if kind == 3:
        return draw.choice([0.1, -1e300, 5e-324, draw.random()])
    if kind in (4, 5):
        return "".join(draw.choice(string.printable + "éß日本\u2028\x00") for _ in range(draw.randrange(12)))
    if kind == 6:
        return [random_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {str(random_value(draw, 3)): random_value(draw, depth + 1) for _ in range(draw.randrange(4))}


def text_of(number: int, job_class: str, args: Sequence[Any] = ()) -> str:
    """A payload whose times are always the same, so that one seed always makes the same payloads."""
    return job_text(number, job_class, args, created_at=PUSHED_AT, enqueued_at=PUSHED_AT)


def sound(number: int, draw: random.Random, **more: Any) -> dict[str, Any]:
    """A job that would run."""
    job: dict[str, Any] = json.loads(text_of(number, draw.choice(["swallow", "choke", "NobodyDeclares"])))
    return {**job, **more}


def without_a_key(number: int, draw: random.Random) -> bytes:
    """Some key is missing."""
    job = sound(number, draw)
    del job[draw.choice(list(job))]
    return json.dumps(job).encode()


def of_wrong_types(number: int, draw: random.Random) -> bytes:
    """Some keys have values that they never have."""
    keys = [
        "class",
        "args",
        "jid",
        "retry",
        "queue",
        "created_at",
        "enqueued_at",
        "backtrace",
        "retry_count",
        "failed_at",
    ]
    keys += ["retry_for", "dead", "at", "wrapped", "tags", "error_backtrace", "retry_queue", "cattr", "locale"]
    return json.dumps(sound(number, draw, **{draw.choice(keys): random_value(draw) for _ in range(2)})).encode()


def truncated(number: int, draw: random.Random) -> bytes:
    """Cut off somewhere."""
    raw = json.dumps(sound(number, draw)).encode()
    return raw[: draw.randrange(len(raw))]


def with_a_broken_byte(number: int, draw: random.Random) -> bytes:
    """One byte is another one."""
    raw = bytearray(json.dumps(sound(number, draw)).encode())
    raw[draw.randrange(len(raw))] = draw.randrange(256)
    return bytes(raw)


def deeply_nested(number: int, draw: random.Random) -> bytes:
    """Deeper than any parser goes."""
    depth = draw.choice([20, 99, 100, 101, 500, 5000, 100_000])
    opened, closed = draw.choice([(b"[", b"]"), (b'{"a":', b"}")])
    nested = opened * depth + b"1" + closed * (depth if draw.randrange(2) else depth - 1)
    return text_of(number, "swallow").encode().replace(b'"args":[%d]' % number, b'"args":[' + nested + b"]")


def huge(number: int, draw: random.Random) -> bytes:
    """Long texts, long numbers, many keys."""
    size = draw.choice([10_000, 100_000, 1_000_000])
    kind = draw.randrange(3)
    if kind == 0:
        return text_of(number, "choke", ["x" * size]).encode()
    if kind == 1:
        digits = b'"args":[' + b"9" * (size // 10) + b"]"
        return text_of(number, "swallow").encode().replace(b'"args":[%d]' % number, digits)
    return json.dumps({**json.loads(text_of(number, "choke")), **{f"k{n}": n for n in range(size // 100)}}).encode()


def random_bytes(number: int, draw: random.Random) -> bytes:
    """No JSON at all."""
    return draw.randbytes(draw.randrange(1, 200))


def other_json(number: int, draw: random.Random) -> bytes:
    """JSON, and no job."""
    return json.dumps(random_value(draw)).encode()


MAKERS = [without_a_key, of_wrong_types, truncated, with_a_broken_byte, random_bytes, other_json]


def payloads(count: int, draw: random.Random) -> list[bytes]:
    """All different, so that each can be followed."""
    found: dict[bytes, None] = {}
    while len(found) < count:
        number = len(found)
        maker = deeply_nested if number % 50 == 7 else huge if number % 200 == 9 else draw.choice(MAKERS)
        found[maker(number, draw)] = None
    return list(found)


@pytest.mark.parametrize("count", [2000, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_malformed_payloads_crash_nothing_and_none_vanishes(
    fleet: Fleet, report: Callable[[object], None], count: int
) -> None:
    """Each is in `dead` or `retry`, or it ran; and the worker goes on to the next sound job."""
    jobs = payloads(count, random.Random(2024))
    for start in range(0, count, 500):
        fleet.client.lpush("queue:default", *jobs[start : start + 500])
    fleet.keep_retries()
    # A broken byte may turn `jid` into `bid`. By default a worker leaves a queue with such a job to Ruby.
    worker = fleet.start(concurrency=5, extension_keys={"bid": "run"})

    # Most of them fail, with a traceback in the log.
    eventually(lambda: not fleet.client.llen("queue:default"), 0.045 * count, every_seconds=0.1)
    push_jobs(fleet.client, [job_text(10**6)])
    eventually(lambda: 10**6 in fleet.ledger.numbers(STARTED))
    eventually(lambda: not fleet.in_flight)

    places = {name: len(found) for name, found in stock(fleet.client).items() if found}
    eventually(lambda: int(fleet.client.get("stat:processed") or 0) == count + 1)
    processed, failed = (int(value or 0) for value in fleet.client.mget("stat:processed", "stat:failed"))
    dropped = failed - places.get("dead", 0) - places.get("retry", 0)
    asked_for = sum(map(asks_to_be_dropped, jobs))
    report(f"pushed={count} succeeded={processed - failed - 1} failed={failed} {places} dropped={dropped}")
    assert worker.is_running
    assert "Internal error" not in worker.log
    assert set(places) <= {"dead", "retry"}
    assert 0 <= dropped <= asked_for


def asks_to_be_dropped(raw: bytes) -> bool:
    """It says `retry: false` or `dead: false`: its failure is its end, as in Ruby."""
    try:
        job = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return isinstance(job, dict) and (job.get("retry") is False or job.get("dead") is False)
